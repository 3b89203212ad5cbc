"""Before whom a character speaks in a thread, and what it remembers before them. M2

A document lies open to everybody who can open the page: what is said beside it is read by them sooner or later, whoever
asked for it. So they are all present, with whoever wrote in the thread and the other characters in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from coterie.cast.people import PeopleBook
from coterie.cast.roster import YOU
from coterie.kernel import Store
from coterie.memory import Memory
from coterie.memory.gates import Viewpoint
from coterie.modes.draft.threads import Thread

MayOpen = Callable[[], Collection[str]]
"""Who beside the owner can open documents."""
_MEMORIES = 6


class Readers:
    def __init__(self, store: Store, memory: Memory, may_open: MayOpen) -> None:
        self._people = PeopleBook(store)
        self._memory = memory
        self._may_open = may_open

    def view(self, thread: Thread, owner: str, wrote: Collection[str]) -> Viewpoint:
        reading = {YOU, *self._may_open(), *wrote}
        members = [member.bot for member in thread.members]
        return Viewpoint.of(owner, thread.room, [*reading, *members], [*self._people.ids(), *reading])

    def recall(self, thread: Thread, owner: str, wrote: Collection[str], question: str) -> list[str]:
        """What comes to a character's mind of other times and places."""
        if not question.strip():
            return []
        found = self._memory.recall_as(self.view(thread, owner, wrote), question, k=_MEMORIES)
        return [one.told for one in found]
