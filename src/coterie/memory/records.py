"""The memory record, its types and relations, and queries that read records from the projection."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from coterie.base.clock import from_micros, to_micros
from coterie.eventstore import Row, Store

MemoryType = Literal[
    "identity",
    "goal",
    "decision",
    "todo",
    "preference",
    "fact",
    "event",
    "observation",
    "relationship",
    "running_joke",
    "persona_note",
]
Disclosure = Literal["people", "room", "open"]
Relation = Literal["updates", "caused_by", "result_of", "related_to", "part_of", "contradicts"]

TYPES: tuple[str, ...] = get_args(MemoryType)
DISCLOSURES: tuple[str, ...] = get_args(Disclosure)
RELATIONS: tuple[str, ...] = get_args(Relation)

HAND_PINNED, AUTO_PINNED = 2, 1

TYPE_IMPORTANCE: dict[str, float] = {
    "identity": 1.0,
    "goal": 0.9,
    "decision": 0.8,
    "todo": 0.8,
    "relationship": 0.8,
    "preference": 0.7,
    "persona_note": 0.7,
    "fact": 0.6,
    "running_joke": 0.6,
    "event": 0.4,
    "observation": 0.3,
}
LINK_WEIGHT: dict[str, float] = {
    "updates": 1.5,
    "caused_by": 1.3,
    "result_of": 1.3,
    "related_to": 1.0,
    "part_of": 0.8,
    "contradicts": 0.5,
}


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A memory as stored in one room."""

    id: str
    owner: str
    room: str
    text: str
    type: str
    scene: str | None
    speaker: str | None
    told_by: str | None
    witnesses: tuple[str, ...]
    about: tuple[str, ...]
    sources: tuple[str, ...]
    """The turns it came from."""
    happened: datetime | None
    """When it happened in the fiction."""
    made: datetime
    """When it was stored, in real time."""
    significance: int
    confidence: float
    reliability: float
    pinned: bool
    auto_pinned: bool
    private: bool
    disclosure: str
    superseded_by: str | None = None

    @property
    def when(self) -> datetime:
        return self.happened or self.made


class StreamForks:
    """Which streams are forks of one another."""

    def __init__(self, roots: Mapping[str, str]) -> None:
        self._roots = roots

    def is_other_branch(self, stream: str, room: str | None) -> bool:
        """Whether a stream is another fork of the room's chat."""
        return room is not None and stream != room and self.root(stream) == self.root(room)

    def root(self, stream: str) -> str:
        return self._roots.get(stream, stream)


Key = tuple[str, str]

_COLUMNS = (
    "stream, id, owner, text, type, scene, speaker, told_by, witnesses, about, sources, happened, made,"
    " significance, confidence, reliability, pin, private, disclosure"
)


def read_records(store: Store, keys: Collection[Key], forks: StreamForks, room: str | None) -> dict[Key, MemoryRecord]:
    """The records of those (stream, id) pairs that exist and are not forgotten, as seen from `room`."""
    sorted_keys = sorted(keys)
    if not sorted_keys:
        return {}
    rows = store.query(
        f"SELECT {_COLUMNS} FROM memory WHERE (stream, id) IN (VALUES {', '.join(['(?,?)'] * len(sorted_keys))})"
        " AND NOT EXISTS (SELECT 1 FROM memory_tombstone t WHERE t.id = memory.id)",
        [part for key in sorted_keys for part in key],
    )
    return {(record.room, record.id): record for record in _records_from_rows(store, rows, forks, room)}


def all_records(store: Store, where: str = "", params: tuple[Any, ...] = ()) -> Iterator[MemoryRecord]:
    """All memories that are not forgotten, oldest first; `where` is an SQL condition on the table's columns."""
    forks = StreamForks(store.reader.roots())
    last = (0, "", "")
    narrowed = f"AND {where}" if where else ""
    while True:
        rows = store.query(
            f"SELECT {_COLUMNS}, event FROM memory WHERE (event, stream, id) > (?, ?, ?)"
            f" AND id NOT IN (SELECT id FROM memory_tombstone) {narrowed} ORDER BY event, stream, id LIMIT 1000",
            (*last, *params),
        )
        yield from _records_from_rows(store, [row[:-1] for row in rows], forks, None)
        if len(rows) < 1_000:
            return
        last = (rows[-1][-1], rows[-1][0], rows[-1][1])


def latest_records(
    store: Store,
    filters: Mapping[str, str | None],
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int,
    offset: int = 0,
    room: str | None = None,
) -> list[MemoryRecord]:
    """Newest first. `filters` are columns and values, where None means any; `room` decides which updates apply."""
    chosen = {column: value for column, value in filters.items() if value is not None}
    conditions = [f"{column} = ?" for column in chosen]
    params: list[Any] = [*chosen.values()]
    for moment, compared in ((since, ">="), (until, "<")):
        if moment is not None:
            conditions.append(f"coalesce(happened, made) {compared} ?")
            params.append(to_micros(moment))
    narrowed = "".join(f" AND {condition}" for condition in conditions)
    rows = store.query(
        f"SELECT {_COLUMNS} FROM memory WHERE id NOT IN (SELECT id FROM memory_tombstone){narrowed}"
        " ORDER BY event DESC, id DESC LIMIT ? OFFSET ?",
        (*params, limit, offset),
    )
    return list(_records_from_rows(store, rows, StreamForks(store.reader.roots()), room))


def _records_from_rows(store: Store, rows: list[Row], forks: StreamForks, room: str | None) -> Iterator[MemoryRecord]:
    evidence = _values_by_id(store, "SELECT id, stream, source FROM memory_evidence", "stream, source", rows)
    validity = _values_by_id(store, "SELECT id, stream, by_id FROM memory_validity", "stream", rows)
    for row in rows:
        viewed_from = room or row[0]
        more = [source for stream, source in evidence.get(row[1], ()) if not forks.is_other_branch(stream, viewed_from)]
        later = [by for stream, by in validity.get(row[1], ()) if not forks.is_other_branch(stream, viewed_from)]
        yield _record_from_row(row, more, later[-1] if later else None)


def _values_by_id(store: Store, select: str, order: str, rows: list[Row]) -> dict[str, list[tuple[str, str]]]:
    values: dict[str, list[tuple[str, str]]] = {}
    ids = json.dumps([row[1] for row in rows])
    for memory_id, stream, value in store.query(
        f"{select} WHERE id IN (SELECT value FROM json_each(?)) ORDER BY {order}", (ids,)
    ):
        values.setdefault(memory_id, []).append((stream, value))
    return values


@functools.lru_cache(maxsize=4_096)
def _parse_list(column: str) -> tuple[str, ...]:
    """Cached: most memories have the same few witnesses."""
    return tuple(json.loads(column))


def _record_from_row(row: Row, evidence: list[str], superseded_by: str | None) -> MemoryRecord:
    (stream, memory_id, owner, text, kind, scene, speaker, told_by, witnesses, about, sources) = row[:11]
    happened, made, significance, confidence, reliability, pin, private, disclosure = row[11:]
    return MemoryRecord(
        id=memory_id,
        owner=owner,
        room=stream,
        text=text,
        type=kind,
        scene=scene,
        speaker=speaker,
        told_by=told_by,
        witnesses=_parse_list(witnesses),
        about=_parse_list(about),
        sources=tuple(dict.fromkeys([*json.loads(sources), *evidence])),
        happened=None if happened is None else from_micros(happened),
        made=from_micros(made),
        significance=significance,
        confidence=confidence,
        reliability=reliability,
        pinned=pin > 0,
        auto_pinned=pin == AUTO_PINNED,
        private=bool(private),
        disclosure=disclosure,
        superseded_by=superseded_by,
    )
