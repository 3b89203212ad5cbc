"""Feelings on a forked line: as they were at the fork, in a world of their own. S22, S24

The view of feelings is shared by all streams, so a line does not inherit them event by event: it begins with how
everybody felt before its last reply, and what that reply changed is told again with the reply's id. So a regenerate on
the line takes it back, and a swipe brings it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from coterie.base.ids import new_id
from coterie.cast.roster import YOU
from coterie.kernel import AnyEvent, Draft, Payload
from coterie.kernel.control import CONTROL
from coterie.kernel.ranges import Ranges
from coterie.modes.story.chats import Chat
from coterie.modes.story.edges import KINDS, edited_edge
from coterie.modes.story.events import MAIN, Edge, EdgesSet, EdgeSummaryRewritten, EdgeUpdate, ManualEdit
from coterie.modes.story.lives import Lives

TOLD_AGAIN = "line:"
"""How the keys of events begin that tell on one line what happened on another."""


class Worlds(Lives):
    async def _felt_anew(self, chat: Chat, at: int, late: Sequence[AnyEvent], last: str, line: str) -> list[Draft]:
        """The feelings with which `line` goes on from a moment of a chat, of which `last` is the last turn."""
        edges = await self._edges_at(chat, at, late, last)
        changed = [*await self._changes(chat.room, last), *(e for e in late if e.turn != last and world_of(e) == line)]
        return [Draft(line, EdgesSet(world=line, edges=tuple(edges)), YOU), *self._told_again(changed, line)]

    def _told_again(self, changed: Sequence[AnyEvent], line: str) -> list[Draft]:
        ended = self._roster.resets()
        return [
            Draft(line, _in_world(event.payload, line), "story", key=f"{TOLD_AGAIN}{new_id()}", turn=event.turn)
            for event in changed
            if not _outlived(event, ended)
        ]

    async def _changes(self, room: str, turn: str) -> list[AnyEvent]:
        """What a turn changed in feelings, as it is told on this line, or else on the nearest it comes from."""
        told: dict[str, list[AnyEvent]] = {}
        for event in self._store.reader.numbered(room, Ranges((seq, seq) for seq in await self._led_to(room, turn))):
            if (world := world_of(event)) is not None:
                told.setdefault(world, []).append(event)
        line: str | None = room
        while line is not None:
            origin = self._store.reader.origin(line)
            world = MAIN if origin is None else line
            if world in told:
                return told[world]
            line = origin[0] if origin is not None else None
        return []

    async def _led_to(self, room: str, turn: str) -> list[int]:
        """The numbers of a turn and of all that it led to, as it last counted."""
        seqs = self._store.reader.turn_seqs(room, turn)
        if not seqs:
            return []
        counted = self._store.reader.counted(room, await self._last_counted(room, seqs[0]))
        return [seq for seq in seqs if seq in counted]

    async def _last_counted(self, room: str, seq: int, upto: int | None = None) -> int:
        """The last moment at which an event of a line counted on it."""
        upto = self._store.reader.head(room) if upto is None else upto
        if seq in self._store.reader.counted(room, upto):
            return upto
        for control in await self._store.read(room, kinds=CONTROL, newest_first=True):
            if control.seq <= upto and seq in self._store.reader.counted(room, control.seq - 1):
                return control.seq - 1
        origin = self._store.reader.origin(room)
        return await self._last_counted(origin[0], seq, origin[1]) if origin is not None else upto

    async def _edges_at(self, chat: Chat, at: int, late: Sequence[AnyEvent], without: str) -> list[Edge]:
        """What everybody in a chat's world felt at a moment of it; `late` also counts, what a turn led to does not."""
        origin = self._store.reader.origin(chat.room)
        if origin is not None and at <= origin[1]:
            return await self._edges_at(self.chats.chat(origin[0]), at, late, without)
        moment = await self._store.read(chat.room, after=at - 1, limit=1)
        last_id = moment[0].id if moment else self._store.reader.last_id()
        also = {event.id for event in late}
        ended, family = self._roster.resets(), self._line_of(chat.room)
        counted: dict[str, Ranges] = {chat.room: self._store.reader.counted(chat.room, at)}
        told: list[AnyEvent] = []
        after = 0
        while page := await self._store.read(after=after, kinds=KINDS):
            after = page[-1].id
            for event in page:
                if event.stream not in counted:
                    counted[event.stream] = self._store.reader.counted(event.stream)
                then = event.id <= last_id and event.seq in counted[event.stream]
                if (then or event.id in also) and event.turn != without and not _outlived(event, ended):
                    known = event if event.stream in family or event.stream.startswith("cast:") else _felt_only(event)
                    told.append(_of_the_living(known, ended))
        return self.edges.at(chat.world, told)

    def _line_of(self, room: str) -> set[str]:
        """A room and those it was forked from."""
        line = {room}
        while (origin := self._store.reader.origin(room)) is not None:
            room = origin[0]
            line.add(room)
        return line

    def _first_line(self, room: str) -> str:
        """The room that a line goes back to, itself if it is no fork."""
        while (origin := self._store.reader.origin(room)) is not None:
            room = origin[0]
        return room


def _pair(event: AnyEvent) -> tuple[str, str, str] | None:
    """The edge that an event changed: world, who, toward whom."""
    match event.payload:
        case EdgeUpdate() | EdgeSummaryRewritten() as it:
            return it.world, it.of, it.toward
        case ManualEdit() as it:
            return edited_edge(it)
    return None


def world_of(event: AnyEvent) -> str | None:
    pair = _pair(event)
    return None if pair is None else pair[0]


def _outlived(event: AnyEvent, ended: Mapping[str, datetime]) -> bool:
    """Whether it is about somebody who has started over since."""
    pair = _pair(event)
    return pair is not None and any(event.ts <= ended[bot] for bot in pair[1:] if bot in ended)


def _of_the_living(event: AnyEvent, ended: Mapping[str, datetime]) -> AnyEvent:
    """Feelings that a line began with, without those of lives that have ended since."""
    if not isinstance(event.payload, EdgesSet):
        return event
    gone = {bot for bot, when in ended.items() if event.ts <= when}
    kept = tuple(edge for edge in event.payload.edges if not {edge.of, edge.toward} & gone)
    return event._replace(payload=EdgesSet(world=event.payload.world, edges=kept))


def _felt_only(event: AnyEvent) -> AnyEvent:
    """Of another chat, how it was felt, not what was learned: if that chat is rewound, nobody takes it back here."""
    match event.payload:
        case EdgeUpdate() as it:
            return event._replace(payload=it.model_copy(update={"knowledge": (), "summary": None}))
        case EdgeSummaryRewritten() as it:
            return event._replace(payload=EdgeUpdate(world=it.world, of=it.of, toward=it.toward))
        case ManualEdit() as it if it.what.endswith((".summary", ".knowledge")):
            return event._replace(payload=it.model_copy(update={"what": "nothing"}))
    return event


def _in_world(payload: Payload, world: str) -> Payload:
    if isinstance(payload, ManualEdit):
        of, toward, column = payload.what.split(".")[-3:]
        return payload.model_copy(update={"what": f"edge.{world}.{of}.{toward}.{column}"})
    return payload.model_copy(update={"world": world})
