"""The memory browser: list, timeline, search with scores, and the graph of memories and people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Annotated, Any
from urllib.parse import urlencode

import numpy as np
from fastapi import APIRouter, Query, Request, Response

from coterie.base.values import Count
from coterie.characters import Characters
from coterie.memory import DISCLOSURES, TYPES, Memory, MemoryRecord
from coterie.surfaces.web.memory import routes
from coterie.surfaces.web.memory.routes import MemoryResponse
from coterie.surfaces.web.shared.dependencies import CharactersDep, MemoryDep
from coterie.surfaces.web.shared.labels import DisplayNamesDep
from coterie.surfaces.web.shared.templates import fragment_response, page_response

# The graph is laid out by springs and repulsion from fixed start positions, so that the same memories always give the
# same picture. It is drawn as SVG on the server: the browser needs no library, and every dot is a link.


MAX_MEMORIES = 80
WIDTH, HEIGHT = 1000.0, 640.0
_ROUNDS = 220
_MARGIN = 60.0


@dataclass(frozen=True)
class PersonNode:
    name: str
    x: float
    y: float
    count: int


@dataclass(frozen=True)
class MemoryNode:
    record: MemoryRecord
    x: float
    y: float
    r: float


@dataclass(frozen=True)
class GraphEdge:
    x1: float
    y1: float
    x2: float
    y2: float
    relation: str
    """Empty between a memory and a person."""


@dataclass(frozen=True)
class Graph:
    people: list[PersonNode]
    dots: list[MemoryNode]
    lines: list[GraphEdge]


def graph(records: Sequence[MemoryRecord], links: Sequence[tuple[str, str, str]], name: Callable[[str], str]) -> Graph:
    """At most `MAX_MEMORIES`: pinned ones first, then by significance, then the newest."""
    unique = {record.id: record for record in records}
    kept = sorted(unique.values(), key=lambda r: (not r.pinned, -r.significance, -r.when.timestamp(), r.id))[
        :MAX_MEMORIES
    ]
    who = {record.id: _people(record, name) for record in kept}
    people = sorted({person for in_it in who.values() for person in in_it})
    at = {key: place for place, key in enumerate([*people, *who])}
    ties = [(at[person], at[memory], "") for memory, in_it in who.items() for person in in_it]
    ties += [(at[source], at[target], relation) for source, relation, target in links if source in at and target in at]
    place = _layout(len(at), len(people), [(a, b) for a, b, _ in ties])
    count = {person: sum(person in in_it for in_it in who.values()) for person in people}
    return Graph(
        [PersonNode(person, *place[at[person]], count[person]) for person in people],
        [MemoryNode(record, *place[at[record.id]], 4.0 + 2.0 * record.significance) for record in kept],
        [GraphEdge(*place[a], *place[b], relation) for a, b, relation in ties],
    )


def _people(record: MemoryRecord, name: Callable[[str], str]) -> set[str]:
    """The names of people in a memory, without its owner; some are stored as ids, some as names."""
    named = {name(who) for who in (*record.witnesses, *record.about, record.speaker, record.told_by) if who}
    return named - {"", name(record.owner)}


def _layout(count: int, people: int, ties: list[tuple[int, int]]) -> list[tuple[float, float]]:
    if not count:
        return []
    turn = np.arange(count) * 2.399963  # the golden angle: no two begin in one place
    reach = np.sqrt((np.arange(count) + 0.5) / count)
    at = np.stack([np.cos(turn), np.sin(turn)], 1) * reach[:, None]
    ends = np.array(ties, dtype=np.int64).reshape(-1, 2)
    weight = np.ones(count)
    weight[:people] = 4.0
    for round_ in range(_ROUNDS):
        away = at[:, None] - at[None]
        near = (away**2).sum(2) + 1e-3
        push = (away / near[..., None] * weight[None, :, None]).sum(1) * 0.011
        pull = np.zeros_like(at)
        if len(ends):
            along = at[ends[:, 1]] - at[ends[:, 0]]
            np.add.at(pull, ends[:, 0], along * 0.05)
            np.add.at(pull, ends[:, 1], -along * 0.05)
        step = push + pull - at * 0.02
        size = np.maximum(np.sqrt((step**2).sum(1, keepdims=True)), 1e-9)
        at = at + step / size * np.minimum(size, 0.12 * (1 - round_ / _ROUNDS) + 0.002)
    low, high = at.min(0), at.max(0)
    span = np.maximum(high - low, 1e-6)
    room = np.array([WIDTH - 2 * _MARGIN, HEIGHT - 2 * _MARGIN])
    fitted = (at - low) / span * room + _MARGIN if count > 1 else np.array([[WIDTH / 2, HEIGHT / 2]])
    return [(round(float(x), 1), round(float(y), 1)) for x, y in fitted]


router = APIRouter(prefix="/memory", include_in_schema=False)
_PAGE = 40
_BARS = 60


@dataclass(frozen=True)
class MemoryFilter:
    """The filters of the memory browser."""

    q: str = ""
    owner: str = ""
    type: str = ""
    room: str = ""
    since: date | None = None
    until: date | None = None

    def address(self, **more: object) -> str:
        params = {**vars(self), **more}
        return "/memory?" + urlencode({name: str(value) for name, value in params.items() if value})

    @property
    def empty(self) -> bool:
        return self == MemoryFilter()

    def moments(self) -> tuple[datetime | None, datetime | None]:
        since = datetime.combine(self.since, time(), UTC) if self.since else None
        until = datetime.combine(self.until, time.max, UTC) if self.until else None
        return since, until


@router.get("")
async def browse(
    characters: CharactersDep,
    memory: MemoryDep,
    display_names: DisplayNamesDep,
    request: Request,
    q: Annotated[str, Query(max_length=1_000)] = "",
    owner: Annotated[str, Query(max_length=200)] = "",
    type: Annotated[str, Query(max_length=40)] = "",  # noqa: A002 - as the form calls it
    room: Annotated[str, Query(max_length=200)] = "",
    since: str = "",
    until: str = "",
    view: str = "list",
    offset: Count = 0,
) -> Response:
    asked = MemoryFilter(q.strip(), owner, type if type in TYPES else "", room, _day(since), _day(until))
    people = display_names
    if offset:
        memories = (
            _chronological(memory, asked)[offset:][:_PAGE]
            if view == "timeline"
            else await _search(characters, memory, asked, offset)
        )
        return fragment_response("memory/rows.html", people=people, **_list_context(asked, memories, offset, view))
    by_story_time = view == "timeline" and not asked.q
    common: dict[str, Any] = {
        "asked": asked,
        "people": people,
        "view": view if not asked.q else "list",
        "types": TYPES,
        "total": memory.count(asked.owner or None),
        "embedding": memory.embedding_worker.status(),
    }
    if view == "graph" and not asked.q:
        chosen = asked.owner or max(people.characters, key=memory.count, default="")
        since_at, until_at = asked.moments()
        records = memory.page(owner=chosen, room=asked.room or None, kind=asked.type or None, since=since_at,
                                    until=until_at, limit=500)  # fmt: skip
        drawn = graph(records, memory.links(chosen), people.name)
        return page_response(
            request, "memory/memories.html", **common, graph=drawn, chosen=chosen, width=WIDTH, height=HEIGHT
        )
    memories = _chronological(memory, asked) if by_story_time else await _search(characters, memory, asked)
    bars = _counts_by_day(memories, asked) if by_story_time else []
    rows = _list_context(asked, memories[:_PAGE], 0, view)
    return page_response(request, "memory/memories.html", **common, bars=bars, **rows)


@router.get("/{memory_id}/edit")
async def edit(memory: MemoryDep, memory_id: str, room: str | None = None) -> Response:
    record = memory.get(memory_id, room)
    return fragment_response("memory/edit.html", memory=MemoryResponse.of(record), types=TYPES, disclosures=DISCLOSURES)


@router.get("/{memory_id}/row")
async def row(memory: MemoryDep, display_names: DisplayNamesDep, memory_id: str, room: str | None = None) -> Response:
    shape = MemoryResponse.of(memory.get(memory_id, room))
    return fragment_response("memory/row.html", memory=shape, people=display_names)


async def _search(characters: Characters, memory: Memory, asked: MemoryFilter, offset: int = 0) -> list[MemoryResponse]:
    since, until = asked.moments()
    memories = await routes.memories(
        characters,
        memory,
        owner=asked.owner or None,
        q=asked.q,
        kind=asked.type or None,  # type: ignore[arg-type]  # one of TYPES, or nothing
        room=asked.room or None,
        since=since,
        until=until,
        limit=_PAGE,
        offset=offset,
    )
    inside = [one for one in memories if _within(one, since, until)] if asked.q else memories
    return [] if asked.q and offset else inside


def _within(shape: MemoryResponse, since: datetime | None, until: datetime | None) -> bool:
    when = shape.happened or shape.made
    return (since is None or when >= since) and (until is None or when < until)


def _list_context(asked: MemoryFilter, memories: list[MemoryResponse], offset: int, view: str) -> dict[str, Any]:
    """Grouped by the day it was stored, or on the timeline by the day it happened."""
    more = asked.address(offset=offset + _PAGE, view=view) if len(memories) == _PAGE and not asked.q else ""
    days: list[tuple[date | None, list[MemoryResponse]]] = []
    for memory in memories:
        when = (memory.happened or memory.made) if view == "timeline" else memory.made
        day = None if asked.q else when.date()
        if not days or days[-1][0] != day:
            days.append((day, []))
        days[-1][1].append(memory)
    parts = [part for memory in memories for part in memory.parts.items()]
    most = max((abs(value) for name, value in parts if name != "start"), default=1.0)
    return {"days": days, "more": more, "most": max(most, 1e-6)}


@dataclass(frozen=True)
class DayCount:
    day: date
    count: int
    href: str


def _chronological(memory: Memory, asked: MemoryFilter) -> list[MemoryResponse]:
    """Latest first by the time it happened."""
    since, until = asked.moments()
    records = memory.browse(
        owner=asked.owner or None, room=asked.room or None, kind=asked.type or None, since=since, until=until
    )
    return [MemoryResponse.of(record) for record in sorted(records, key=lambda one: one.when, reverse=True)]


def _counts_by_day(memories: list[MemoryResponse], asked: MemoryFilter) -> list[DayCount]:
    """The number of memories of each of the last days that have any."""
    counted = Counter((one.happened or one.made).date() for one in memories)
    return [
        DayCount(day, counted[day], asked.address(view="timeline", since=day, until=day))
        for day in sorted(counted)[-_BARS:]
    ]


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
