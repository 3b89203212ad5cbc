"""What every command of a story needs: the books, who is speaking, and one decision at a time in a chat."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from weakref import WeakValueDictionary

from coterie.base.clock import Clock
from coterie.base.errors import Conflict
from coterie.characters.errors import NoSuchCharacter
from coterie.characters.service import Characters
from coterie.characters.workspace import Workspaces
from coterie.conversation.errors import Busy
from coterie.conversation.replies import Replies
from coterie.conversation.turns import TurnQueries
from coterie.eventstore import AnyEvent, NewEvent, NewJob, Store, Superseded
from coterie.eventstore.ranges import Ranges
from coterie.llm.router import Models
from coterie.memory import Memory
from coterie.modes.story.prompts import PromptBuilder
from coterie.modes.story.queries import Chat, ChatQueries
from coterie.modes.story.relationships import RelationshipQueries
from coterie.modes.story.settings import StorySettings

Decision = tuple[Sequence[NewEvent], Sequence[NewJob]]
_TRIES = 50


class ChatContext:
    def __init__(
        self,
        store: Store,
        roster: Characters,
        memory: Memory,
        models: Models,
        settings: StorySettings,
        clock: Clock,
        before_rewind: Callable[[], Awaitable[object]] | None = None,
        workspaces: Workspaces | None = None,
    ) -> None:
        """`before_rewind` is called before anything is taken back: S23 wants a snapshot file then."""
        self.chats = ChatQueries(store)
        self.timeline = TurnQueries(store)
        self.relationships = RelationshipQueries(store)
        self.participants = PromptBuilder(store, roster, memory, models, settings, clock, workspaces)
        self.replies = Replies(store)
        self._store = store
        self._roster = roster
        self._memory = memory
        self._models = models
        self._settings = settings
        self._clock = clock
        self._before_rewind = before_rewind
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def ooc_marker(self) -> str:
        """What begins a note that no character sees."""
        return self._settings.ooc_marker

    def lock(self, room: str) -> asyncio.Lock:
        """Two windows may not both begin a turn: the second waits, and then finds somebody speaking."""
        return self._locks.setdefault(room, asyncio.Lock())

    async def decide_and_append(self, room: str, decide: Callable[[], Awaitable[Decision]]) -> list[AnyEvent]:
        """Record what follows from how things stand; if a job recorded something meanwhile, decide again."""
        for _ in range(_TRIES):
            head = self._store.reader.head(room)
            drafts, jobs = await decide()
            if not drafts:
                return []
            try:
                return await self._store.append(drafts, expect={room: head}, jobs=jobs)
            except Conflict:
                continue
        raise Busy("This chat changes too quickly to be changed by hand.", "Try again in a moment.")

    def require_no_open_reply(self, room: str) -> None:
        if self.timeline.open_replies(room):
            raise Busy("Somebody is still speaking.", "Wait for the reply, or press Stop.")

    def find_character(self, chat: Chat, name_or_id: str) -> str:
        if name_or_id in chat.characters:
            return name_or_id
        names = self.participants.names(chat)
        for entity, name in names.items():
            if entity not in chat.people and name.lower() == name_or_id.lower():
                return entity
        here = ", ".join(names[entity] for entity in chat.characters)
        raise NoSuchCharacter(f"{name_or_id} is not here.", f"Here are: {here}.")


def supersede(drop: Sequence[int], restore: Sequence[int] = ()) -> Superseded:
    pairs = [Ranges((seq, seq) for seq in seqs).pairs for seqs in (drop, restore)]
    return Superseded(drop=pairs[0], restore=pairs[1])
