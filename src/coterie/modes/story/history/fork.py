"""Forking a chat: a new chat that shares the past up to a turn, with relationships in a world of its own.

The projection of relationships is shared by all streams, so a fork does not inherit them event by event. It begins with
the relationships as they were before its last reply; what that reply changed is copied with the reply's id, so that a
regenerate on the fork takes it back and choosing the reply brings it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from coterie.base.ids import new_id
from coterie.characters import OWNER
from coterie.conversation import AssistantTurnStarted, Busy, UserTurn
from coterie.eventstore import CONTROL_KINDS, AnyEvent, Forked, NewEvent, NewJob, Payload, Ranges
from coterie.modes.story.chat_context import IMPORT_ACTOR, ChatContext, Decision, supersede
from coterie.modes.story.events import (
    MAIN_WORLD,
    ChatForkOpened,
    ManualEdit,
    Relationship,
    RelationshipsSet,
    RelationshipSummaryRewritten,
    RelationshipUpdated,
)
from coterie.modes.story.history.reset import CharacterResets
from coterie.modes.story.history.turn_changes import TurnChanges
from coterie.modes.story.projections import RELATIONSHIP_KINDS, edited_relationship, replay_relationships
from coterie.modes.story.queries import Chat

COPIED_KEY_PREFIX = "line:"
"""Begins the keys of relationship events that were copied from another chat."""


class ForkRelationships:
    """The relationships that a fork starts with, and what single turns changed in them."""

    def __init__(self, context: ChatContext) -> None:
        self._context = context
        self._store = context.store

    async def starting_events(
        self,
        chat: Chat,
        seq: int,
        late: Sequence[AnyEvent],
        last_turn: str,
        fork: str,
        counting: Ranges,
    ) -> list[NewEvent]:
        """The events with which `fork` continues from a point of a chat whose last turn there is `last_turn`.

        `counting` are the seqs of the chat that count there.
        """
        relationships = await self._relationships_at(chat, seq, late, last_turn, counting)
        changed = [
            *await self.changes(chat.room, last_turn),
            *(event for event in late if event.turn != last_turn and world_of(event) == fork),
        ]
        start = NewEvent(fork, RelationshipsSet(world=fork, edges=tuple(relationships)), OWNER)
        return [start, *self.copies(changed, fork)]

    def copies(self, changed: Sequence[AnyEvent], fork: str) -> list[NewEvent]:
        """The same changes in the fork's world, except those about characters that were reset since."""
        resets = self._context.characters.reset_times()
        return [
            NewEvent(fork, _move_to_world(event.payload, fork), "story", key=_copy_key(), turn=event.turn)
            for event in changed
            if not _predates_reset(event, resets)
        ]

    async def changes(self, room: str, turn: str) -> list[AnyEvent]:
        """What a turn changed in relationships, as recorded in this chat or else in its nearest ancestor."""
        by_world: dict[str, list[AnyEvent]] = {}
        seqs = await self.consequences(room, turn)
        for event in self._store.reader.events_at(room, Ranges((seq, seq) for seq in seqs)):
            if (world := world_of(event)) is not None:
                by_world.setdefault(world, []).append(event)
        current: str | None = room
        while current is not None:
            origin = self._store.reader.fork_origin(current)
            world = MAIN_WORLD if origin is None else current
            if world in by_world:
                return by_world[world]
            current = origin[0] if origin is not None else None
        return []

    async def consequences(self, room: str, turn: str) -> list[int]:
        """The seqs of a turn and of everything it caused, as of when it last counted."""
        seqs = self._store.reader.turn_seqs(room, turn)
        if not seqs:
            return []
        counted = self._store.reader.active(room, await self.last_counted(room, seqs[0]))
        return [seq for seq in seqs if seq in counted]

    async def last_counted(self, room: str, seq: int, upto: int | None = None) -> int:
        """The last seq of a room at which the event `seq` still counted."""
        upto = self._store.reader.head(room) if upto is None else upto
        if seq in self._store.reader.active(room, upto):
            return upto
        for control in await self._store.read(room, kinds=CONTROL_KINDS, newest_first=True):
            if control.seq <= upto and seq in self._store.reader.active(room, control.seq - 1):
                return control.seq - 1
        origin = self._store.reader.fork_origin(room)
        return await self.last_counted(origin[0], seq, origin[1]) if origin is not None else upto

    async def _relationships_at(
        self, chat: Chat, seq: int, late: Sequence[AnyEvent], without_turn: str, counting: Ranges
    ) -> list[Relationship]:
        """The relationships of a chat's world at a point of it, with `late` and without what a turn caused."""
        origin = self._store.reader.fork_origin(chat.room)
        if origin is not None and seq <= origin[1]:
            parent = self._context.chats.chat(origin[0])
            return await self._relationships_at(parent, seq, late, without_turn, counting)
        at = await self._store.read(chat.room, after=seq - 1, limit=1)
        last_id = at[0].id if at else self._store.reader.last_id()
        late_ids = {event.id for event in late}
        resets, family = self._context.characters.reset_times(), self._ancestors(chat.room)
        counted: dict[str, Ranges] = {chat.room: counting}
        replayed: list[AnyEvent] = []
        after = 0
        while page := await self._store.read(after=after, kinds=RELATIONSHIP_KINDS):
            after = page[-1].id
            for event in page:
                if event.stream not in counted:
                    counted[event.stream] = self._store.reader.active(event.stream)
                counts = event.id <= last_id and event.seq in counted[event.stream]
                if not (counts or event.id in late_ids):
                    continue
                if event.turn == without_turn or _predates_reset(event, resets):
                    continue
                own = event.stream in family or event.stream.startswith("cast:")
                replayed.append(_without_reset_characters(event if own else _without_knowledge(event), resets))
        return replay_relationships(chat.world, replayed)

    def _ancestors(self, room: str) -> set[str]:
        """A room and those it was forked from."""
        rooms = {room}
        while (origin := self._store.reader.fork_origin(room)) is not None:
            room = origin[0]
            rooms.add(room)
        return rooms


class Fork:
    def __init__(
        self, context: ChatContext, relationships: ForkRelationships, resets: CharacterResets, changes: TurnChanges
    ) -> None:
        self._context = context
        self._store = context.store
        self._relationships = relationships
        self._resets = resets
        self._changes = changes

    async def fork(self, room: str, turn: str, title: str | None = None) -> Chat:
        """A new chat that shares the past up to a turn, and nothing that comes after."""
        context, fork = self._context, f"room:{new_id()}"

        async def decide() -> Decision:
            chat = context.chats.chat(room)
            seq, late, later_turns = await self._split_at(room, turn)
            if any(reply.seq <= seq for reply in context.timeline.open_replies(room)):
                raise Busy("A reply is still in progress.", "Wait for the reply, or press Stop, and fork then.")
            opened = ChatForkOpened(title=title or f"{chat.title} (fork)", world=fork, forked_from=room)
            gone, kept = await self._changes.kept_at(room, seq)
            imported = context.imported_alternatives(room, seq)
            counting = (self._store.reader.active(room, seq) - _ranges([*gone, *imported])) | _ranges(kept)
            dropped = sorted({*await self._resets.before_reset(room, seq), *gone})
            new_events = [
                NewEvent(fork, Forked(parent=room, at=seq), OWNER),
                NewEvent(fork, opened, OWNER),
                *await self._relationships.starting_events(chat, seq, late, turn, fork, counting),
                *([NewEvent(fork, supersede(imported), IMPORT_ACTOR)] if imported else ()),
                *([NewEvent(fork, supersede(dropped, kept), OWNER)] if dropped or kept else ()),
                *(NewEvent(fork, e.payload, e.actor, turn=e.turn) for e in late if e.kind not in RELATIONSHIP_KINDS),
            ]
            return new_events, self._unfinished_jobs(room, fork, later_turns)

        await context.decide_and_append(room, decide)
        return context.chats.chat(fork)

    async def _split_at(self, room: str, turn: str) -> tuple[int, list[AnyEvent], set[str]]:
        """The seq of a turn's end, the late events of turns up to there, and the turns that followed.

        A turn that was rewound is looked up in the history as it was when the turn last counted: what can no longer be
        undone can be forked.
        """
        turn_seqs = self._store.reader.turn_seqs(room, turn)
        if not turn_seqs or turn_seqs[0] in self._store.reader.active(room):
            seq = self._context.end_of_turn(room, turn)
            return seq, await self._context.late_events(room, seq), self._context.timeline.ids_after(room, seq)
        moment = await self._relationships.last_counted(room, turn_seqs[0])
        events = self._store.reader.events_at(room, self._store.reader.active(room, moment).after(turn_seqs[0]))
        turns = [event for event in events if isinstance(event.payload, UserTurn | AssistantTurnStarted)]
        seq, later_turns = (turns[0].seq - 1 if turns else moment), {str(event.turn) for event in turns}
        late = [
            event for event in events if event.seq > seq and event.turn is not None and event.turn not in later_turns
        ]
        return seq, late, later_turns

    def _unfinished_jobs(self, room: str, fork: str, later_turns: set[str]) -> list[NewJob]:
        """Copies of the pending jobs of shared turns: their results are needed in both chats."""
        return [
            NewJob(job.kind, f"{job.key}@{fork}", {**job.payload, "room": fork})
            for job in self._store.reader.jobs.pending(payload={"room": room})
            if job.payload.get("reply") is not None and job.payload["reply"] not in later_turns
        ]


def _ranges(seqs: Iterable[int]) -> Ranges:
    return Ranges((seq, seq) for seq in seqs)


def _copy_key() -> str:
    return f"{COPIED_KEY_PREFIX}{new_id()}"


def _changed_pair(event: AnyEvent) -> tuple[str, str, str] | None:
    """The relationship that an event changed: world, who, toward whom."""
    match event.payload:
        case RelationshipUpdated() | RelationshipSummaryRewritten() as payload:
            return payload.world, payload.of, payload.toward
        case ManualEdit() as payload:
            return edited_relationship(payload)
    return None


def world_of(event: AnyEvent) -> str | None:
    pair = _changed_pair(event)
    return None if pair is None else pair[0]


def _predates_reset(event: AnyEvent, resets: Mapping[str, datetime]) -> bool:
    """Whether the event is about a character that was reset since."""
    pair = _changed_pair(event)
    return pair is not None and any(event.ts <= resets[entity] for entity in pair[1:] if entity in resets)


def _without_reset_characters(event: AnyEvent, resets: Mapping[str, datetime]) -> AnyEvent:
    """A fork's starting relationships without those of characters that were reset since."""
    if not isinstance(event.payload, RelationshipsSet):
        return event
    gone = {character for character, when in resets.items() if event.ts <= when}
    kept = tuple(one for one in event.payload.edges if not {one.of, one.toward} & gone)
    return event._replace(payload=RelationshipsSet(world=event.payload.world, edges=kept))


def _without_knowledge(event: AnyEvent) -> AnyEvent:
    """From another chat, the levels without what was learned there.

    If that chat is rewound, nothing would take the knowledge back from the fork.
    """
    match event.payload:
        case RelationshipUpdated() as payload:
            return event._replace(payload=payload.model_copy(update={"knowledge": (), "summary": None}))
        case RelationshipSummaryRewritten(world=world, of=of, toward=toward):
            return event._replace(payload=RelationshipUpdated(world=world, of=of, toward=toward))
        case ManualEdit() as payload if payload.what.endswith((".summary", ".knowledge")):
            return event._replace(payload=payload.model_copy(update={"what": "nothing"}))
    return event


def _move_to_world(payload: Payload, world: str) -> Payload:
    if isinstance(payload, ManualEdit):
        of, toward, column = payload.what.split(".")[-3:]
        return payload.model_copy(update={"what": f"edge.{world}.{of}.{toward}.{column}"})
    return payload.model_copy(update={"world": world})
