"""Before whom a character at the desk speaks, and what it remembers before them. M2

Whatever is recalled at the desk is recalled here, so that it passes the same gate with the same company: whose
conversation it is, whoever was let into a room where it is held, and whoever has spoken in it.
"""

from __future__ import annotations

from coterie.cast.people import PeopleQueries
from coterie.kernel import Store
from coterie.memory import Memory
from coterie.memory.gates import Viewpoint
from coterie.memory.recall import RecalledMemory
from coterie.modes.desk.officebook import DeskChat

_HERE = """
    SELECT speaker FROM desk_history WHERE room = ?1 AND role = 'user' AND speaker != ''
    UNION SELECT guest.person FROM surface_room held JOIN room_guest guest USING (surface, room) WHERE held.context = ?1
"""


class Audience:
    def __init__(self, store: Store, memory: Memory) -> None:
        self._store = store
        self._memory = memory
        self._people = PeopleQueries(store)

    def present(self, chat: DeskChat) -> frozenset[str]:
        return frozenset([chat.person, *(person for (person,) in self._store.query(_HERE, (chat.room,)))])

    def witnesses(self, chat: DeskChat) -> tuple[str, ...]:
        """Of what is said there now."""
        return tuple(sorted({chat.character, *self.present(chat)}))

    def viewpoint(self, chat: DeskChat) -> Viewpoint:
        return self._before(chat, self.present(chat), chat.room)

    def viewpoint_of_person(self, chat: DeskChat) -> Viewpoint:
        """Before the person alone, wherever they talk: what is bound to a room is left out."""
        return self._before(chat, frozenset([chat.person]), None)

    def recall(self, chat: DeskChat, question: str, k: int) -> list[RecalledMemory]:
        return self._memory.recall_as(self.viewpoint(chat), question, k=k)

    def recall_for_other(self, other: str, chat: DeskChat, question: str, k: int) -> list[RecalledMemory]:
        """What another character remembers when it is asked from this conversation: the asker hears it too."""
        view = self.viewpoint(chat)
        asked = Viewpoint.of(other, chat.room, [*view.present, chat.character], view.people)
        return self._memory.recall_as(asked, question, k=k)

    def _before(self, chat: DeskChat, present: frozenset[str], room: str | None) -> Viewpoint:
        talking = self._store.query("SELECT DISTINCT person FROM desk_chat")
        people = [*self._people.ids(), *present, *(person for (person,) in talking)]
        return Viewpoint.of(chat.character, room, present, people)
