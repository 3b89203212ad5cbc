"""A character's life starts over, and can be given back. S25

A reset is many events in many streams: the character's own chats, those it visited, its feelings. They carry keys with
one mark, so that it can be taken back whole. What somebody remembered in a life that has ended never comes back by any
other way: not with a rewind, a swipe or a fork of a chat that they visited.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coterie.base.errors import BadPoint
from coterie.base.ids import new_id
from coterie.characters.events import CharacterReset
from coterie.characters.service import OWNER, require_confirmation, reset_event
from coterie.eventstore import AnyEvent, NewEvent, Reset, Rewound, Superseded
from coterie.eventstore.ranges import Ranges
from coterie.memory.events import MemoryForgotten
from coterie.modes.story.chat_context import ChatContext, supersede
from coterie.modes.story.events import GuestLeft, RelationshipsCleared, SceneSummarised


class CharacterResets(ChatContext):
    async def reset(self, character_id: str, confirm: str) -> None:
        """S25: everything a character lived through starts over; who it is stays."""
        bot = self._roster.get(character_id)
        require_confirmation(bot, confirm, "reset")
        if self._before_rewind is not None:
            await self._before_rewind()
        drafts = [reset_event(bot.id)]
        hosted = {chat.room for chat in self.chats.chats(host=bot.id)}
        for room in sorted(hosted):
            await self.replies.stop(room)
            drafts.append(NewEvent(room, Reset(), OWNER))
        visited = [chat for chat in self.chats.chats() if chat.room not in hosted]
        drafts += [NewEvent(chat.room, GuestLeft(guest=bot.id), OWNER) for chat in visited if bot.id in chat.guests]
        lived = {chat.room for chat in visited} | {
            room for (room,) in self._store.query("SELECT DISTINCT stream FROM memory WHERE owner = ?", (bot.id,))
        }
        for room in sorted(lived - hosted):
            if remembered := _memory_events(await self._store.history(room), {bot.id}):
                drafts.append(NewEvent(room, supersede([event.seq for event in remembered]), OWNER))
        # Also feelings that a rewind has taken back for now: an undo must not bring them into the new life.
        felt = self._store.query("SELECT world, of, toward FROM edge")
        recorded = self._store.reader.distinct_payload_fields("edge_update", ("world", "of", "toward"))
        pairs = sorted({(world, of, toward) for world, of, toward in (*felt, *recorded) if bot.id in (of, toward)})
        if pairs:
            cleared = RelationshipsCleared(pairs=tuple(pairs))
            drafts.append(NewEvent(f"cast:{bot.id}", cleared, OWNER))
        mark = new_id()
        await self._store.append([draft._replace(key=f"reset:{mark}:{n}") for n, draft in enumerate(drafts)])

    async def undo_events(self, reset: AnyEvent) -> list[NewEvent]:
        """What takes a whole reset back, given one of its events."""
        mark = (reset.key or "").rpartition(":")[0]
        events = self._store.reader.by_key_prefix(f"{mark}:")
        bot = next(event.payload.bot for event in events if isinstance(event.payload, CharacterReset))
        drafts: list[NewEvent] = []
        for event in events:
            match event.payload:
                case CharacterReset():
                    if any(later.key != event.key for later in await self._resets_since(event)):
                        name = self._roster.get(bot).name
                        raise BadPoint(
                            f"{name} has started over once more since.", "Only the last reset can be undone."
                        )
                    drafts.append(NewEvent(event.stream, supersede([event.seq]), OWNER))
                case Reset():
                    self._require_not_restarted(event)
                    drafts.append(NewEvent(event.stream, Rewound(to=event.seq - 1, redo=True), OWNER))
                    if ended := await self.before_reset(event.stream, event.seq - 1, except_character=bot):
                        drafts.append(NewEvent(event.stream, supersede(ended), OWNER))
                case Superseded(drop=drop):
                    if kept := await self._still_counting(event, Ranges(drop)):
                        drafts.append(NewEvent(event.stream, supersede((), kept), OWNER))
                case _:
                    drafts.append(NewEvent(event.stream, supersede([event.seq]), OWNER))
        return drafts

    async def before_reset(self, room: str, at: int, except_character: str = "") -> list[int]:
        """What counted in a room at a moment, and was remembered by those who have started over since: its numbers."""
        ended = {bot: when for bot, when in self._roster.reset_times().items() if bot != except_character}
        if not ended:
            return []
        restored = (await self._store.preview_rewind(room, at)).restored
        return [event.seq for event in _memory_events(restored, ended) if event.ts <= ended[_owner(event)]]

    def without_reset(self, room: str, seqs: Sequence[int]) -> list[int]:
        """These numbers without what was remembered in lives that have ended."""
        ended = self._roster.reset_times()
        if not seqs or not ended:
            return list(seqs)
        events = self._store.reader.events_at(room, Ranges((seq, seq) for seq in seqs))
        gone = {event.seq for event in _memory_events(events, ended) if event.ts <= ended[_owner(event)]}
        return [seq for seq in seqs if seq not in gone]

    async def _resets_since(self, event: AnyEvent) -> list[AnyEvent]:
        """Of one character, from this one on: those that count."""
        later = await self._store.history(event.stream, after=event.seq - 1)
        return [one for one in later if isinstance(one.payload, CharacterReset)]

    def _require_not_restarted(self, reset: AnyEvent) -> None:
        """A chat that has begun again since is another one now."""
        if self._store.query("SELECT 1 FROM chat WHERE room = ?", (reset.stream,)):
            raise BadPoint("This chat has begun again since the reset.", "What was before it stays in the log.")

    async def _still_counting(self, taken: AnyEvent, wanted: Ranges) -> list[int]:
        """Of what a visitor forgot, what has not been taken back since in that chat for other reasons."""
        room = taken.stream
        turns = self.timeline.ids_after(room, 0)
        moved = await self._store.read(room, after=taken.seq, kinds=[Rewound.kind, Reset.kind], limit=1)
        events = (await self._store.preview_rewind(room, taken.seq - 1)).restored
        return [
            event.seq
            for event in events
            if event.seq in wanted and (event.turn in turns if event.turn is not None else not moved)
        ]


def _memory_events(events: Iterable[AnyEvent], owners: Iterable[str]) -> Sequence[AnyEvent]:
    """What these remember, in their own memories and in what scenes were to them. A wish to forget stands."""
    wanted = set(owners)
    return [
        event
        for event in events
        if (event.kind.startswith("memory_") or isinstance(event.payload, SceneSummarised))
        and event.kind != MemoryForgotten.kind
        and _owner(event) in wanted
    ]


def _owner(event: AnyEvent) -> str:
    return str(getattr(event.payload, "owner", ""))
