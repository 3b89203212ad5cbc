"""Before whom a character at the desk speaks, and what it remembers before them. M2

Whatever is recalled at the desk is recalled here, so that it passes the same gate with the same company: whose
conversation it is, whoever was let into a room where it is held, and whoever has spoken in it.
"""

from __future__ import annotations

import json

from coterie.characters.people import PeopleQueries
from coterie.eventstore import Event, Projection, Rows, Store, on
from coterie.memory import Memory
from coterie.memory.access import Viewpoint
from coterie.memory.recall import RecalledMemory
from coterie.modes.desk.events import BulletinWritten
from coterie.modes.desk.queries import DeskChat

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


# The bulletin: what a character should know now when it talks with somebody, as it was last written. D8
#
# It is told only as long as every memory it was made of is there and may be told to those who are present: what was
# rewound, forgotten or made private since is not known by way of it either. M2, M6


class BulletinProjection(Projection):
    name = "desk_bulletins"
    version = 2
    schema = """
        CREATE TABLE desk_bulletin(character TEXT, person TEXT, text TEXT NOT NULL, upto INTEGER NOT NULL,
            memories TEXT NOT NULL, PRIMARY KEY(character, person)) WITHOUT ROWID;
    """

    @on(BulletinWritten)
    def written(self, rows: Rows, event: Event[BulletinWritten]) -> None:
        it = event.payload
        told = (it.character, it.person, it.text, it.upto, json.dumps(it.memories))
        rows.run("INSERT OR REPLACE INTO desk_bulletin VALUES (?, ?, ?, ?, ?)", told)


class Bulletins:
    def __init__(self, store: Store, memory: Memory, company: Audience) -> None:
        self._store = store
        self._memory = memory
        self._company = company

    def text(self, chat: DeskChat) -> str:
        """What may be told of it in this conversation: all of it or nothing."""
        text, memories = self._written(chat)
        return text if text and self._holds(self._company.viewpoint(chat), memories) else ""

    def stale(self, chat: DeskChat) -> bool:
        """Whether it says what its person may not be told any more."""
        text, memories = self._written(chat)
        return bool(text) and not self._holds(self._company.viewpoint_of_person(chat), memories)

    def upto(self, character: str, person: str) -> int:
        """The last change of its memory that the bulletin knows of."""
        sql = "SELECT upto FROM desk_bulletin WHERE character = ? AND person = ?"
        rows = self._store.query(sql, (character, person))
        return int(rows[0][0]) if rows else 0

    def _written(self, chat: DeskChat) -> tuple[str, list[str]]:
        sql = "SELECT text, memories FROM desk_bulletin WHERE character = ? AND person = ?"
        rows = self._store.query(sql, (chat.character, chat.person))
        return (str(rows[0][0]), json.loads(rows[0][1])) if rows else ("", [])

    def _holds(self, view: Viewpoint, memories: list[str]) -> bool:
        # One that does not say what it was made of cannot be checked, and is written anew.
        return bool(memories) and len(self._memory.disclosable(view, memories)) == len(set(memories))
