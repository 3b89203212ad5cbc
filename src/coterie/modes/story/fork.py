"""Feelings on a forked line: as they were at the fork, in a world of their own. S22, S24

The view of feelings is shared by all streams, so a line does not inherit them event by event: it begins with how
everybody felt before its last reply, and what that reply changed is told again with the reply's id. So a regenerate on
the line takes it back, and a swipe brings it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from coterie.base.ids import new_id
from coterie.characters.service import OWNER
from coterie.eventstore import AnyEvent, NewEvent, Payload
from coterie.eventstore.events import CONTROL_KINDS
from coterie.eventstore.ranges import Ranges
from coterie.modes.story.events import (
    MAIN_WORLD,
    ManualEdit,
    Relationship,
    RelationshipsSet,
    RelationshipSummaryRewritten,
    RelationshipUpdated,
)
from coterie.modes.story.queries import Chat
from coterie.modes.story.relationships import RELATIONSHIP_KINDS, edited_relationship
from coterie.modes.story.reset import CharacterResets

COPIED_KEY_PREFIX = "line:"
"""How the keys of events begin that tell on one line what happened on another."""


class Fork(CharacterResets):
    async def relationship_events(
        self, chat: Chat, at: int, late: Sequence[AnyEvent], last: str, line: str
    ) -> list[NewEvent]:
        """The feelings with which `line` goes on from a moment of a chat, of which `last` is the last turn."""
        edges = await self._relationships_at(chat, at, late, last)
        changed = [
            *await self.relationship_changes(chat.room, last),
            *(e for e in late if e.turn != last and world_of(e) == line),
        ]
        return [
            NewEvent(line, RelationshipsSet(world=line, edges=tuple(edges)), OWNER),
            *self.copied_changes(changed, line),
        ]

    def copied_changes(self, changed: Sequence[AnyEvent], line: str) -> list[NewEvent]:
        ended = self._roster.reset_times()
        return [
            NewEvent(
                line,
                _moved_to_world(event.payload, line),
                "story",
                key=f"{COPIED_KEY_PREFIX}{new_id()}",
                turn=event.turn,
            )
            for event in changed
            if not _predates_reset(event, ended)
        ]

    async def relationship_changes(self, room: str, turn: str) -> list[AnyEvent]:
        """What a turn changed in feelings, as it is told on this line, or else on the nearest it comes from."""
        told: dict[str, list[AnyEvent]] = {}
        for event in self._store.reader.events_at(
            room, Ranges((seq, seq) for seq in await self.consequences(room, turn))
        ):
            if (world := world_of(event)) is not None:
                told.setdefault(world, []).append(event)
        line: str | None = room
        while line is not None:
            origin = self._store.reader.fork_origin(line)
            world = MAIN_WORLD if origin is None else line
            if world in told:
                return told[world]
            line = origin[0] if origin is not None else None
        return []

    async def consequences(self, room: str, turn: str) -> list[int]:
        """The numbers of a turn and of all that it led to, as it last counted."""
        seqs = self._store.reader.turn_seqs(room, turn)
        if not seqs:
            return []
        counted = self._store.reader.active(room, await self.last_counted(room, seqs[0]))
        return [seq for seq in seqs if seq in counted]

    async def last_counted(self, room: str, seq: int, upto: int | None = None) -> int:
        """The last moment at which an event of a line counted on it."""
        upto = self._store.reader.head(room) if upto is None else upto
        if seq in self._store.reader.active(room, upto):
            return upto
        for control in await self._store.read(room, kinds=CONTROL_KINDS, newest_first=True):
            if control.seq <= upto and seq in self._store.reader.active(room, control.seq - 1):
                return control.seq - 1
        origin = self._store.reader.fork_origin(room)
        return await self.last_counted(origin[0], seq, origin[1]) if origin is not None else upto

    async def _relationships_at(
        self, chat: Chat, at: int, late: Sequence[AnyEvent], without: str
    ) -> list[Relationship]:
        """What everybody in a chat's world felt at a moment of it; `late` also counts, what a turn led to does not."""
        origin = self._store.reader.fork_origin(chat.room)
        if origin is not None and at <= origin[1]:
            return await self._relationships_at(self.chats.chat(origin[0]), at, late, without)
        moment = await self._store.read(chat.room, after=at - 1, limit=1)
        last_id = moment[0].id if moment else self._store.reader.last_id()
        also = {event.id for event in late}
        ended, family = self._roster.reset_times(), self._ancestors(chat.room)
        counted: dict[str, Ranges] = {chat.room: self._store.reader.active(chat.room, at)}
        told: list[AnyEvent] = []
        after = 0
        while page := await self._store.read(after=after, kinds=RELATIONSHIP_KINDS):
            after = page[-1].id
            for event in page:
                if event.stream not in counted:
                    counted[event.stream] = self._store.reader.active(event.stream)
                then = event.id <= last_id and event.seq in counted[event.stream]
                if (then or event.id in also) and event.turn != without and not _predates_reset(event, ended):
                    known = (
                        event
                        if event.stream in family or event.stream.startswith("cast:")
                        else _without_knowledge(event)
                    )
                    told.append(_without_reset_characters(known, ended))
        return self.relationships.replay(chat.world, told)

    def _ancestors(self, room: str) -> set[str]:
        """A room and those it was forked from."""
        line = {room}
        while (origin := self._store.reader.fork_origin(room)) is not None:
            room = origin[0]
            line.add(room)
        return line

    def root_room(self, room: str) -> str:
        """The room that a line goes back to, itself if it is no fork."""
        while (origin := self._store.reader.fork_origin(room)) is not None:
            room = origin[0]
        return room


def _changed_pair(event: AnyEvent) -> tuple[str, str, str] | None:
    """The edge that an event changed: world, who, toward whom."""
    match event.payload:
        case RelationshipUpdated() | RelationshipSummaryRewritten() as it:
            return it.world, it.of, it.toward
        case ManualEdit() as it:
            return edited_relationship(it)
    return None


def world_of(event: AnyEvent) -> str | None:
    pair = _changed_pair(event)
    return None if pair is None else pair[0]


def _predates_reset(event: AnyEvent, ended: Mapping[str, datetime]) -> bool:
    """Whether it is about somebody who has started over since."""
    pair = _changed_pair(event)
    return pair is not None and any(event.ts <= ended[bot] for bot in pair[1:] if bot in ended)


def _without_reset_characters(event: AnyEvent, ended: Mapping[str, datetime]) -> AnyEvent:
    """Feelings that a line began with, without those of lives that have ended since."""
    if not isinstance(event.payload, RelationshipsSet):
        return event
    gone = {bot for bot, when in ended.items() if event.ts <= when}
    kept = tuple(edge for edge in event.payload.edges if not {edge.of, edge.toward} & gone)
    return event._replace(payload=RelationshipsSet(world=event.payload.world, edges=kept))


def _without_knowledge(event: AnyEvent) -> AnyEvent:
    """Of another chat, how it was felt, not what was learned: if that chat is rewound, nobody takes it back here."""
    match event.payload:
        case RelationshipUpdated() as it:
            return event._replace(payload=it.model_copy(update={"knowledge": (), "summary": None}))
        case RelationshipSummaryRewritten() as it:
            return event._replace(payload=RelationshipUpdated(world=it.world, of=it.of, toward=it.toward))
        case ManualEdit() as it if it.what.endswith((".summary", ".knowledge")):
            return event._replace(payload=it.model_copy(update={"what": "nothing"}))
    return event


def _moved_to_world(payload: Payload, world: str) -> Payload:
    if isinstance(payload, ManualEdit):
        of, toward, column = payload.what.split(".")[-3:]
        return payload.model_copy(update={"what": f"edge.{world}.{of}.{toward}.{column}"})
    return payload.model_copy(update={"world": world})
