"""Resets a character: clears what it experienced in all chats. The last reset can be undone.

A reset appends events to many streams: the chats the character hosts, those it visits, its memories and relationships.
Their keys share one id, so that the reset can be undone as a whole. Nothing else brings back what a character
remembered before its reset: neither a rewind, nor choosing another reply, nor a fork of a chat it visited.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coterie.base.errors import BadPoint
from coterie.base.ids import new_id
from coterie.characters import OWNER, CharacterReset, require_confirmation, reset_event
from coterie.eventstore import AnyEvent, NewEvent, Ranges, Reset, Rewound, Superseded
from coterie.memory import MemoryForgotten
from coterie.modes.story.chat_context import ChatContext, supersede
from coterie.modes.story.events import GuestLeft, RelationshipsCleared, RelationshipUpdated, SceneSummarised


class CharacterResets:
    def __init__(self, context: ChatContext) -> None:
        self._context = context
        self._store = context.store
        self._characters = context.characters

    async def reset(self, character_id: str, confirm: str) -> None:
        """Clear what a character experienced, in every chat; its identity stays. `confirm` repeats its name."""
        character = self._characters.get(character_id)
        require_confirmation(character, confirm, "reset")
        await self._context.snapshot()
        new_events = [reset_event(character.id)]
        hosted = {chat.room for chat in self._context.chats.chats(host=character.id)}
        for room in sorted(hosted):
            await self._context.replies.stop(room)
            new_events.append(NewEvent(room, Reset(), OWNER))
        others = [chat for chat in self._context.chats.chats() if chat.room not in hosted]
        new_events += [
            NewEvent(chat.room, GuestLeft(guest=character.id), OWNER) for chat in others if character.id in chat.guests
        ]
        rooms = {chat.room for chat in others} | {
            room for (room,) in self._store.query("SELECT DISTINCT stream FROM memory WHERE owner = ?", (character.id,))
        }
        for room in sorted(rooms - hosted):
            if remembered := _memory_events(await self._store.history(room), {character.id}):
                new_events.append(NewEvent(room, supersede([event.seq for event in remembered]), OWNER))
        if pairs := self._relationship_pairs(character.id):
            new_events.append(NewEvent(f"cast:{character.id}", RelationshipsCleared(pairs=tuple(pairs)), OWNER))
        reset_id = new_id()
        await self._store.append(
            [new_event._replace(key=f"reset:{reset_id}:{number}") for number, new_event in enumerate(new_events)]
        )

    async def undoable(self, character_id: str) -> AnyEvent | None:
        """The last reset of a character, unless it was undone, or one of its chats began again since."""
        resets = await self._resets_after(f"cast:{character_id}", 0)
        if not resets:
            return None
        prefix = (resets[-1].key or "").rpartition(":")[0]
        emptied = [one for one in self._store.reader.by_key_prefix(f"{prefix}:") if isinstance(one.payload, Reset)]
        restarted = any(self._context.chats.exists(one.stream) for one in emptied)
        return None if restarted else resets[-1]

    async def undo(self, character_id: str) -> None:
        """Undo the last reset of a character as a whole."""
        name = self._characters.get(character_id).name
        reset = await self.undoable(character_id)
        if reset is None:
            raise BadPoint(
                f"There is no reset of {name} that can be undone.", "What came before a reset stays in the log."
            )
        await self._store.append(await self.undo_events(reset))

    async def emptied(self, room: str) -> str:
        """The character whose reset emptied a chat that has not begun again since; empty if that is not so."""
        if self._context.chats.exists(room):
            return ""
        last = await self._store.read(room, kinds=[Reset.kind, Rewound.kind], newest_first=True, limit=1)
        key = (last[0].key or "") if last else ""
        if not last or not isinstance(last[0].payload, Reset) or not key.startswith("reset:"):
            return ""
        events = self._store.reader.by_key_prefix(f"{key.rpartition(':')[0]}:")
        return next((event.payload.bot for event in events if isinstance(event.payload, CharacterReset)), "")

    async def undo_events(self, reset: AnyEvent) -> list[NewEvent]:
        """The events that undo a whole reset, given one of its events."""
        prefix = (reset.key or "").rpartition(":")[0]
        events = self._store.reader.by_key_prefix(f"{prefix}:")
        character = next(event.payload.bot for event in events if isinstance(event.payload, CharacterReset))
        new_events: list[NewEvent] = []
        for event in events:
            match event.payload:
                case CharacterReset():
                    if any(later.key != event.key for later in await self._resets_since(event)):
                        name = self._characters.get(character).name
                        raise BadPoint(f"{name} was reset again since.", "Only the last reset can be undone.")
                    new_events.append(NewEvent(event.stream, supersede([event.seq]), OWNER))
                case Reset():
                    self._require_not_restarted(event)
                    new_events.append(NewEvent(event.stream, Rewound(to=event.seq - 1, redo=True), OWNER))
                    if hidden := await self.before_reset(event.stream, event.seq - 1, except_character=character):
                        new_events.append(NewEvent(event.stream, supersede(hidden), OWNER))
                case Superseded(drop=drop):
                    if kept := await self._still_counting(event, Ranges(drop)):
                        new_events.append(NewEvent(event.stream, supersede((), kept), OWNER))
                case _:
                    new_events.append(NewEvent(event.stream, supersede([event.seq]), OWNER))
        return new_events

    async def before_reset(self, room: str, seq: int, except_character: str = "") -> list[int]:
        """Seqs that counted in a room at `seq` and are memories of characters that were reset since."""
        resets = {who: when for who, when in self._characters.reset_times().items() if who != except_character}
        if not resets:
            return []
        restored = (await self._store.preview_rewind(room, seq)).restored
        return [event.seq for event in _memory_events(restored, resets) if event.ts <= resets[_owner(event)]]

    def without_reset(self, room: str, seqs: Sequence[int]) -> list[int]:
        """These seqs without the memories of characters that were reset since."""
        resets = self._characters.reset_times()
        if not seqs or not resets:
            return list(seqs)
        events = self._store.reader.events_at(room, Ranges((seq, seq) for seq in seqs))
        gone = {event.seq for event in _memory_events(events, resets) if event.ts <= resets[_owner(event)]}
        return [seq for seq in seqs if seq not in gone]

    def _relationship_pairs(self, character_id: str) -> list[tuple[str, str, str]]:
        """World, who, toward whom. Includes relationships that are rewound now: an undo must not bring them back."""
        recorded = self._store.reader.distinct_payload_fields(RelationshipUpdated.kind, ("world", "of", "toward"))
        pairs = (*self._context.relationships.pairs(), *recorded)
        return sorted({(world, of, toward) for world, of, toward in pairs if character_id in (of, toward)})

    async def _resets_since(self, event: AnyEvent) -> list[AnyEvent]:
        """The resets of one character that count, from this one on."""
        return await self._resets_after(event.stream, event.seq - 1)

    async def _resets_after(self, stream: str, seq: int) -> list[AnyEvent]:
        later = await self._store.history(stream, after=seq)
        return [event for event in later if isinstance(event.payload, CharacterReset)]

    def _require_not_restarted(self, reset: AnyEvent) -> None:
        if self._context.chats.exists(reset.stream):
            raise BadPoint(
                "This chat has new messages since the reset.", "What came before the reset stays in the log."
            )

    async def _still_counting(self, superseded: AnyEvent, removed: Ranges) -> list[int]:
        """Of the memories that a reset removed from a chat that the character visited, those not rewound since."""
        room = superseded.stream
        turns = self._context.timeline.ids_after(room, 0)
        rewound = await self._store.read(room, after=superseded.seq, kinds=[Rewound.kind, Reset.kind], limit=1)
        events = (await self._store.preview_rewind(room, superseded.seq - 1)).restored
        return [
            event.seq
            for event in events
            if event.seq in removed and (event.turn in turns if event.turn is not None else not rewound)
        ]


def _memory_events(events: Iterable[AnyEvent], owners: Iterable[str]) -> Sequence[AnyEvent]:
    """What these characters remember: memories and scene summaries. A request to forget stays in force."""
    owner_set = set(owners)
    return [
        event
        for event in events
        if (event.kind.startswith("memory_") or isinstance(event.payload, SceneSummarised))
        and event.kind != MemoryForgotten.kind
        and _owner(event) in owner_set
    ]


def _owner(event: AnyEvent) -> str:
    return str(getattr(event.payload, "owner", ""))
