"""Rewinds a chat to a turn, and undoes the rewind.

The result of a slow job may be recorded after later turns. It belongs to its own turn: a rewind that keeps the turn
keeps the result, and so does an undo.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import BaseModel

from coterie.base.errors import BadPoint
from coterie.characters import OWNER
from coterie.conversation import AssistantTurn, AssistantTurnStarted, UserTurn
from coterie.eventstore import AnyEvent, NewEvent, Ranges, Reset, Rewound, Superseded
from coterie.memory import MemoryAdded
from coterie.modes.story.chat_context import IMPORT_ACTOR, ChatContext, Decision, supersede
from coterie.modes.story.events import (
    DELETED_KEY_PREFIX,
    ChatForkOpened,
    GuestJoined,
    GuestLeft,
    ManualEdit,
    RelationshipsSet,
    RelationshipSummaryRewritten,
    RelationshipUpdated,
    SceneClosed,
    SceneOpened,
)
from coterie.modes.story.history.fork import COPIED_KEY_PREFIX, ForkRelationships
from coterie.modes.story.history.reset import CharacterResets
from coterie.modes.story.history.turn_changes import TurnChanges
from coterie.modes.story.projections import RELATIONSHIP_KINDS
from coterie.modes.story.queries import Chat

LostKind = Literal["turns", "scenes", "edges", "memories", "guests", "edits"]
_LOST_TEXT_LENGTH = 120
_REWIND_KINDS = (Superseded.kind, RelationshipsSet.kind, ChatForkOpened.kind)
"""Events that a rewind itself appends."""
_MAX_EVENTS_SINCE = 10_000


class LostItem(BaseModel):
    what: LostKind
    event: int
    text: str


class ChatRewindImpact(BaseModel):
    """What a rewind would take back: counts, and a list to show."""

    turns: int = 0
    scenes: int = 0
    edges: int = 0
    memories: int = 0
    guests: int = 0
    edits: int = 0
    lost: list[LostItem] = []
    """Everything counted above, oldest first."""


class Rewind:
    def __init__(
        self, context: ChatContext, relationships: ForkRelationships, resets: CharacterResets, changes: TurnChanges
    ) -> None:
        self._context = context
        self._store = context.store
        self._relationships = relationships
        self._resets = resets
        self._changes = changes

    async def preview(self, room: str, turn: str) -> ChatRewindImpact:
        """What a rewind to a turn would take back."""
        seq = self._context.end_of_turn(room, turn)
        impact = await self._store.preview_rewind(room, seq)
        late = {event.seq for event in await self._context.late_events(room, seq)}
        dropped = [event for event in impact.dropped if event.seq not in late]
        lost = [item for event in dropped if (item := _lost_item(event)) is not None]
        return ChatRewindImpact.model_validate({**Counter(item.what for item in lost), "lost": lost})

    async def rewind(self, room: str, turn: str) -> AnyEvent:
        """Back to the state right after a turn, including everything that the turn caused."""
        context = self._context
        context.timeline.turn(room, turn)
        await context.replies.stop(room)
        await context.snapshot()
        async with context.lock(room):
            await context.replies.stop(room)  # another reply may have begun during the snapshot

            async def decide() -> Decision:
                chat, seq = context.chats.chat(room), context.end_of_turn(room, turn)
                late = await context.late_events(room, seq)
                gone, restored = await self._changes.kept_at(room, seq)
                hidden = {*await self._resets.before_reset(room, seq), *gone}
                counting = (self._store.reader.active(room, seq) - _ranges(gone)) | _ranges(restored)
                fork_events = await self._reopen_fork(chat, seq, late, turn, counting)
                # The starting relationships of a reopened fork already include the late changes to them.
                kept = [event.seq for event in late if not fork_events or event.kind not in RELATIONSHIP_KINDS]
                new_events = [NewEvent(room, Rewound(to=seq), OWNER)]
                if imported := context.imported_alternatives(room, seq):
                    new_events.append(NewEvent(room, supersede(imported), IMPORT_ACTOR))
                kept += restored
                if kept or hidden:
                    new_events.append(NewEvent(room, supersede(sorted(hidden), sorted(kept)), OWNER))
                return [*new_events, *fork_events], ()

            return (await context.decide_and_append(room, decide))[0]

    async def undo(self, room: str) -> AnyEvent:
        """Undo the last rewind, or the last reset of the host. Not possible once something new was said."""
        context = self._context
        if not await self._store.head(room):
            context.chats.chat(room)  # raises for an unknown room
        async with context.lock(room):

            async def decide() -> Decision:
                rewound, since = await self._undoable_rewind(room)
                if isinstance(rewound.payload, Reset):
                    return await self._resets.undo_events(rewound), ()
                new_events = [NewEvent(room, Rewound(to=rewound.seq - 1, redo=True), OWNER)]
                reset = await self._resets.before_reset(room, rewound.seq - 1)
                if since or reset:
                    new_events.append(NewEvent(room, supersede(reset, since), OWNER))
                return new_events, ()

            return (await context.decide_and_append(room, decide))[0]

    async def turn_before(self, room: str) -> str | None:
        """The last turn before the last rewind: a fork there has what was rewound. None if nothing was."""
        self._context.chats.chat(room)
        latest = await self._store.read(room, kinds=[Rewound.kind], limit=1, newest_first=True)
        if not latest or not isinstance(rewound := latest[0].payload, Rewound) or rewound.redo:
            return None
        lost = self._store.reader.active(room, latest[0].seq - 1).after(rewound.to)
        events = self._store.reader.events_at(room, lost)
        begun = [event.turn for event in events if isinstance(event.payload, UserTurn | AssistantTurnStarted)]
        return begun[-1] if begun else None

    async def _undoable_rewind(self, room: str) -> tuple[AnyEvent, list[int]]:
        """The rewind or reset that can still be undone, and the seqs of job results since, which stay."""
        latest = await self._store.read(room, kinds=[Rewound.kind, Reset.kind], limit=1, newest_first=True)
        if latest and (latest[0].key or "").startswith(DELETED_KEY_PREFIX):
            raise BadPoint("This chat was deleted.", "Restore it in the list of deleted chats.")
        if not latest:
            raise BadPoint("Nothing was rewound in this chat.", "Rewind to a turn first.")
        if isinstance(latest[0].payload, Rewound) and latest[0].payload.redo:
            raise BadPoint("The last rewind was undone already.", "Rewind again if you want to go back.")
        since = await self._store.read(room, after=latest[0].seq, limit=_MAX_EVENTS_SINCE)
        from_jobs = [event for event in since if event.actor == "story" and event.turn is not None]
        others = [event for event in since if event not in from_jobs and event.kind not in _REWIND_KINDS]
        if not others:
            kept = [event for event in from_jobs if not (event.key or "").startswith(COPIED_KEY_PREFIX)]
            return latest[0], [event.seq for event in kept]
        raise BadPoint(
            "The rewind cannot be undone: the chat was changed since.", "Fork at the turn you want back instead."
        )

    async def _reopen_fork(
        self, chat: Chat, seq: int, late: Sequence[AnyEvent], turn: str, counting: Ranges
    ) -> list[NewEvent]:
        """For a fork that is rewound into its inherited past: it stays a fork, with the relationships of that point."""
        origin = self._store.reader.fork_origin(chat.room)
        if origin is None or seq > origin[1] + 2:
            return []
        opened = ChatForkOpened(title=chat.title, world=chat.room, forked_from=origin[0])
        start = await self._relationships.starting_events(chat, seq, late, turn, chat.room, counting)
        return [NewEvent(chat.room, opened, OWNER), *start]


def _ranges(seqs: Iterable[int]) -> Ranges:
    return Ranges((seq, seq) for seq in seqs)


def _lost_item(event: AnyEvent) -> LostItem | None:
    match event.payload:
        case UserTurn() | AssistantTurn() as turn:
            return LostItem(what="turns", event=event.id, text=_shorten(turn.text))
        case SceneOpened() | SceneClosed() as scene:
            return LostItem(what="scenes", event=event.id, text=f"{scene.kind.replace('_', ' ')} {scene.scene}")
        case RelationshipUpdated() | RelationshipSummaryRewritten() as change:
            return LostItem(what="edges", event=event.id, text=f"{change.of} toward {change.toward}")
        case RelationshipsSet():
            return LostItem(what="edges", event=event.id, text="all")
        case MemoryAdded() as memory:
            return LostItem(what="memories", event=event.id, text=_shorten(memory.text))
        case GuestJoined() | GuestLeft() as guest:
            return LostItem(what="guests", event=event.id, text=f"{guest.kind.replace('_', ' ')}: {guest.guest}")
        case ManualEdit() as edit:
            return LostItem(what="edits", event=event.id, text=_shorten(f"{edit.what}: {edit.value}"))
        case _:
            return None


def _shorten(text: str) -> str:
    return text if len(text) <= _LOST_TEXT_LENGTH else f"{text[: _LOST_TEXT_LENGTH - 1]}…"
