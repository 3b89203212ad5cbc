"""What the commands of a story share: queries, the running replies, one lock per chat, and optimistic appends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from weakref import WeakValueDictionary

from coterie.base.errors import Conflict
from coterie.characters import Characters, NoSuchCharacter
from coterie.conversation import Busy, Replies, TurnQueries
from coterie.eventstore import AnyEvent, NewEvent, NewJob, Ranges, Store, Superseded
from coterie.modes.story.queries import Chat, ChatQueries, Participants, RelationshipQueries

Decision = tuple[Sequence[NewEvent], Sequence[NewJob]]
"""New events and jobs that follow from the current state."""
IMPORT_ACTOR = "import"
"""The actor of events with which an import supersedes the replies that were not chosen."""
_MAX_ATTEMPTS = 50
_MAX_CONTROLS = 100_000


class ChatContext:
    def __init__(
        self, store: Store, characters: Characters, before_rewind: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """`before_rewind` is awaited before a rewind or a reset; it writes a snapshot file."""
        self.store = store
        self.characters = characters
        self.chats = ChatQueries(store)
        self.timeline = TurnQueries(store)
        self.relationships = RelationshipQueries(store)
        self.participants = Participants(store, characters)
        self.replies = Replies(store)
        self.before_rewind = before_rewind
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def lock(self, room: str) -> asyncio.Lock:
        """Held while a turn begins or history changes, so that two windows cannot both do so."""
        return self._locks.setdefault(room, asyncio.Lock())

    async def snapshot(self) -> None:
        if self.before_rewind is not None:
            await self.before_rewind()

    async def decide_and_append(self, room: str, decide: Callable[[], Awaitable[Decision]]) -> list[AnyEvent]:
        """Append what `decide` returns; if a job appended to the room meanwhile, decide again."""
        for _ in range(_MAX_ATTEMPTS):
            head = self.store.reader.head(room)
            new_events, jobs = await decide()
            if not new_events:
                return []
            try:
                return await self.store.append(new_events, expect={room: head}, jobs=jobs)
            except Conflict:
                continue
        raise Busy("Other changes to this chat keep coming first.", "Try again in a moment.")

    def require_no_open_reply(self, room: str) -> None:
        if self.timeline.open_replies(room):
            raise Busy("A reply is still in progress.", "Wait for the reply, or press Stop.")

    def find_character(self, chat: Chat, name_or_id: str) -> str:
        """The id of a character in the chat."""
        if name_or_id in chat.characters:
            return name_or_id
        names = self.participants.names(chat)
        for entity, name in names.items():
            if entity not in chat.people and name.lower() == name_or_id.lower():
                return entity
        present = ", ".join(names[entity] for entity in chat.characters)
        raise NoSuchCharacter(f"{name_or_id} is not in this chat.", f"In this chat are: {present}.")

    def end_of_turn(self, room: str, turn: str) -> int:
        """The seq of the last event before the next turn begins."""
        following = self.timeline.next_seq(room, self.timeline.turn(room, turn))
        return following - 1 if following is not None else self.store.reader.head(room)

    async def late_events(self, room: str, seq: int) -> list[AnyEvent]:
        """Events after `seq` that were caused by turns up to it, such as the results of slow jobs.

        They belong to their turn: a rewind keeps them, a fork copies them.
        """
        later = self.timeline.ids_after(room, seq)
        seqs = self.store.reader.seqs_of_other_turns(room, later, after=seq)
        events = self.store.reader.events_at(room, Ranges((number, number) for number in seqs))
        return [event._replace(stream=room) for event in events]

    def imported_alternatives(self, room: str, seq: int) -> list[int]:
        """The events up to `seq` of imported replies that were not chosen.

        They were superseded all at once at the end of the import, which a rewind or a fork at `seq` does not include.
        """
        seqs: set[int] = set()
        at: str | None = room
        while at is not None:
            for event in self.store.reader.read(at, after=seq, kinds=[Superseded.kind], limit=_MAX_CONTROLS):
                if isinstance(event.payload, Superseded) and event.actor == IMPORT_ACTOR:
                    pairs = (range(low, min(high, seq) + 1) for low, high in event.payload.drop)
                    seqs.update(number for pair in pairs for number in pair)
            origin = self.store.reader.fork_origin(at)
            at = origin[0] if origin is not None and seq < origin[1] else None
        return sorted(seqs)

    def root_room(self, room: str) -> str:
        """The room that a fork goes back to; the room itself if it is no fork."""
        while (origin := self.store.reader.fork_origin(room)) is not None:
            room = origin[0]
        return room


def supersede(drop: Sequence[int], restore: Sequence[int] = ()) -> Superseded:
    pairs = [Ranges((seq, seq) for seq in seqs).pairs for seqs in (drop, restore)]
    return Superseded(drop=pairs[0], restore=pairs[1])
