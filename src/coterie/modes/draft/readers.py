"""Before whom a character speaks in a thread, and what it remembers before them. M2

A document lies open to everybody who can open the page: what is said beside it is read by them sooner or later, whoever
asked for it. So they are all present, with whoever wrote in the thread and the other characters in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from coterie.cast.people import PeopleQueries
from coterie.cast.roster import OWNER
from coterie.kernel import Store
from coterie.memory import Memory
from coterie.memory.gates import Viewpoint
from coterie.modes.draft.threads import Thread

ListReaders = Callable[[], Collection[str]]
"""Who beside the owner can open documents."""
_MEMORIES = 6


class ThreadMemory:
    def __init__(self, store: Store, memory: Memory, may_open: ListReaders) -> None:
        self._people = PeopleQueries(store)
        self._memory = memory
        self._may_open = may_open

    def viewpoint(self, thread: Thread, owner: str, wrote: Collection[str]) -> Viewpoint:
        reading = {OWNER, *self._may_open(), *wrote}
        members = [member.bot for member in thread.members]
        return Viewpoint.of(owner, thread.room, [*reading, *members], [*self._people.ids(), *reading])

    def recall(self, thread: Thread, owner: str, wrote: Collection[str], question: str) -> list[str]:
        """What comes to a character's mind of other times and places."""
        if not question.strip():
            return []
        found = self._memory.recall_as(self.viewpoint(thread, owner, wrote), question, k=_MEMORIES)
        return [one.text_with_speaker for one in found]
