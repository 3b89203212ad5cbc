"""Memories as records, read from their tables, with the evidence and validity that a room knows of."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from coterie.base.clock import from_micros
from coterie.kernel import Store
from coterie.memory.gates import Lines
from coterie.memory.record import MemoryRecord
from coterie.memory.view import AUTO_PINNED

Key = tuple[str, str]

_COLUMNS = (
    "stream, id, owner, text, type, scene, speaker, told_by, witnesses, about, sources, happened, made,"
    " significance, confidence, reliability, pin, private, disclosure"
)


def read_records(store: Store, keys: Collection[Key], lines: Lines, room: str | None) -> dict[Key, MemoryRecord]:
    """The records of (stream, id) pairs that still exist and are not forgotten."""
    found: dict[Key, MemoryRecord] = {}
    for stream, memory_id in keys:
        rows = store.query(
            f"SELECT {_COLUMNS} FROM memory WHERE stream = ? AND id = ?"  # noqa: S608
            " AND id NOT IN (SELECT id FROM memory_tombstone WHERE id = memory.id)",
            (stream, memory_id),
        )
        if rows:
            found[stream, memory_id] = _record(store, rows[0], lines, room)
    return found


def all_records(store: Store, where: str = "", params: tuple[Any, ...] = ()) -> Iterator[MemoryRecord]:
    """Every memory that is not forgotten, oldest first; `where` narrows it by columns of the table."""
    lines = Lines(dict(store.query("SELECT stream, root FROM line")))
    last = (0, "", "")
    narrowed = f"AND {where}" if where else ""
    while True:
        rows = store.query(
            f"SELECT {_COLUMNS}, event FROM memory WHERE (event, stream, id) > (?, ?, ?)"  # noqa: S608
            f" AND id NOT IN (SELECT id FROM memory_tombstone) {narrowed} ORDER BY event, stream, id LIMIT 1000",
            (*last, *params),
        )
        for row in rows:
            yield _record(store, row[:-1], lines, None)
        if len(rows) < 1_000:
            return
        last = (rows[-1][-1], rows[-1][0], rows[-1][1])


def _record(store: Store, row: tuple[Any, ...], lines: Lines, room: str | None) -> MemoryRecord:
    (stream, memory_id, owner, text, kind, scene, speaker, told_by, witnesses, about, sources) = row[:11]
    happened, made, significance, confidence, reliability, pin, private, disclosure = row[11:]
    here = room or stream
    evidence = [
        source
        for line, source in store.query(
            "SELECT stream, source FROM memory_evidence WHERE id = ? ORDER BY stream, source", (memory_id,)
        )
        if not lines.hidden(line, here)
    ]
    later = [
        by
        for line, by in store.query(
            "SELECT stream, by_id FROM memory_validity WHERE id = ? ORDER BY stream", (memory_id,)
        )
        if not lines.hidden(line, here)
    ]
    return MemoryRecord(
        id=memory_id,
        owner=owner,
        room=stream,
        text=text,
        type=kind,
        scene=scene,
        speaker=speaker,
        told_by=told_by,
        witnesses=tuple(json.loads(witnesses)),
        about=tuple(json.loads(about)),
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
        superseded_by=later[-1] if later else None,
    )
