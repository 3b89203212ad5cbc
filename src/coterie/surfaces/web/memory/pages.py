"""The memory browser: what everybody remembers, why it would come to mind, how it hangs together. M7, S16"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from coterie.memory.records import DISCLOSURES, TYPES
from coterie.surfaces.web.memory import routes
from coterie.surfaces.web.memory.graph import HEIGHT, WIDTH, graph
from coterie.surfaces.web.memory.routes import MemoryResponse
from coterie.surfaces.web.shared.dependencies import Here, House
from coterie.surfaces.web.shared.labels import DisplayNames
from coterie.surfaces.web.shared.templates import fragment_response, page_response

router = APIRouter(prefix="/memory", include_in_schema=False)
_PAGE = 40
_BARS = 60


@dataclass(frozen=True)
class MemoryFilter:
    """What somebody looks for."""

    q: str = ""
    owner: str = ""
    type: str = ""
    room: str = ""
    since: date | None = None
    until: date | None = None

    def address(self, **more: object) -> str:
        told = {**vars(self), **more}
        return "/memory?" + urlencode({name: str(value) for name, value in told.items() if value})

    @property
    def empty(self) -> bool:
        return self == MemoryFilter()

    def moments(self) -> tuple[datetime | None, datetime | None]:
        since = datetime.combine(self.since, time(), UTC) if self.since else None
        until = datetime.combine(self.until + timedelta(days=1), time(), UTC) if self.until else None
        return since, until


@router.get("")
async def browse(
    house: Here,
    request: Request,
    q: Annotated[str, Query(max_length=1_000)] = "",
    owner: Annotated[str, Query(max_length=200)] = "",
    type: Annotated[str, Query(max_length=40)] = "",  # noqa: A002 - as the form calls it
    room: Annotated[str, Query(max_length=200)] = "",
    since: str = "",
    until: str = "",
    view: str = "list",
    offset: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    asked = MemoryFilter(q.strip(), owner, type if type in TYPES else "", room, _day(since), _day(until))
    people = DisplayNames(house)
    if offset:
        found = (
            _chronological(house, asked)[offset:][:_PAGE] if view == "timeline" else await _found(house, asked, offset)
        )
        return fragment_response("memory/rows.html", people=people, **_listed(asked, found, offset, view))
    told_by_story = view == "timeline" and not asked.q
    common: dict[str, Any] = {
        "asked": asked,
        "people": people,
        "view": view if not asked.q else "list",
        "types": TYPES,
        "total": house.memory.count(asked.owner or None),
        "embedding": house.memory.embedding_worker.status(),
    }
    if view == "graph" and not asked.q:
        chosen = asked.owner or max(people.bots, key=house.memory.count, default="")
        since_at, until_at = asked.moments()
        records = house.memory.page(owner=chosen, room=asked.room or None, kind=asked.type or None, since=since_at,
                                    until=until_at, limit=500)  # fmt: skip
        drawn = graph(records, house.memory.links(chosen), people.name)
        return page_response(
            request, "memory/memories.html", **common, graph=drawn, chosen=chosen, width=WIDTH, height=HEIGHT
        )
    found = _chronological(house, asked) if told_by_story else await _found(house, asked)
    bars = _counts_by_day(found, asked) if told_by_story else []
    return page_response(request, "memory/memories.html", **common, bars=bars, **_listed(asked, found[:_PAGE], 0, view))


@router.get("/{memory}/edit")
async def edit(house: Here, memory: str, room: str | None = None) -> Response:
    record = house.memory.get(memory, room)
    return fragment_response("memory/edit.html", memory=MemoryResponse.of(record), types=TYPES, disclosures=DISCLOSURES)


@router.get("/{memory}/row")
async def row(house: Here, memory: str, room: str | None = None) -> Response:
    shape = MemoryResponse.of(house.memory.get(memory, room))
    return fragment_response("memory/row.html", memory=shape, people=DisplayNames(house))


async def _found(house: House, asked: MemoryFilter, offset: int = 0) -> list[MemoryResponse]:
    since, until = asked.moments()
    found = await routes.memories(
        house,
        owner=asked.owner or None,
        q=asked.q,
        kind=asked.type or None,  # type: ignore[arg-type]  # one of TYPES, or nothing
        room=asked.room or None,
        since=since,
        until=until,
        limit=_PAGE,
        offset=offset,
    )
    inside = [one for one in found if _within(one, since, until)] if asked.q else found
    return [] if asked.q and offset else inside


def _within(shape: MemoryResponse, since: datetime | None, until: datetime | None) -> bool:
    when = shape.happened or shape.made
    return (since is None or when >= since) and (until is None or when < until)


def _listed(asked: MemoryFilter, found: list[MemoryResponse], offset: int, view: str) -> dict[str, Any]:
    """By the day it was kept, or on the timeline by the day it happened."""
    more = asked.address(offset=offset + _PAGE, view=view) if len(found) == _PAGE and not asked.q else ""
    days: list[tuple[date | None, list[MemoryResponse]]] = []
    for memory in found:
        told = (memory.happened or memory.made) if view == "timeline" else memory.made
        day = None if asked.q else told.date()
        if not days or days[-1][0] != day:
            days.append((day, []))
        days[-1][1].append(memory)
    most = max((abs(value) for memory in found for name, value in memory.parts.items() if name != "start"), default=1.0)
    return {"days": days, "more": more, "most": max(most, 1e-6)}


@dataclass(frozen=True)
class DayCount:
    day: date
    count: int
    href: str


def _chronological(house: House, asked: MemoryFilter) -> list[MemoryResponse]:
    """What happened last comes first, whenever it was written down."""
    since, until = asked.moments()
    records = house.memory.browse(
        owner=asked.owner or None, room=asked.room or None, kind=asked.type or None, since=since, until=until
    )
    return [MemoryResponse.of(record) for record in sorted(records, key=lambda one: one.when, reverse=True)]


def _counts_by_day(found: list[MemoryResponse], asked: MemoryFilter) -> list[DayCount]:
    """How many memories there are of each day, of the last days there are any."""
    counted = Counter((one.happened or one.made).date() for one in found)
    return [
        DayCount(day, counted[day], asked.address(view="timeline", since=day, until=day))
        for day in sorted(counted)[-_BARS:]
    ]


def _day(told: str) -> date | None:
    try:
        return date.fromisoformat(told)
    except ValueError:
        return None
