"""Memories as tables, folded from the log, with their search index kept in the same transaction.

The first tables are the truth as the log tells it. The `memory_doc` rows and the full-text tables, one
per owner, are derived: `settle` brings them in line with whatever changed, so that what a rewind, a
regenerate, a fork or a reset takes back is out of every index at the moment it is taken back.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from coterie.base.clock import to_micros
from coterie.eventstore import ChangedKeys, Event, Projection, Rows, on
from coterie.memory.events import (
    MemoryAdded,
    MemoryConfirmed,
    MemoryEdited,
    MemoryForgotten,
    MemoryLinked,
    MemoryMerged,
    MemoryPinChanged,
    MemorySuperseded,
    MemoryUsed,
)
from coterie.memory.index.search_index import INDEX_SCHEMA, rebuild_index, update_index
from coterie.memory.records import AUTO_PINNED, HAND_PINNED
from coterie.memory.text import digest


@functools.lru_cache(maxsize=4_096)
def _json_list(values: tuple[str, ...]) -> str:
    return json.dumps(values)


_micros = functools.lru_cache(maxsize=64)(to_micros)
"""A batch shares its moment."""


class MemoryProjection(Projection):
    name = "memories"
    stream_column = "stream"
    version = 1
    schema = """
        CREATE TABLE memory(
            stream TEXT, id TEXT, owner TEXT NOT NULL, event INTEGER NOT NULL, text TEXT NOT NULL, type TEXT NOT NULL,
            scene TEXT, speaker TEXT, told_by TEXT, witnesses TEXT NOT NULL, about TEXT NOT NULL, sources TEXT NOT NULL,
            happened INTEGER, made INTEGER NOT NULL, significance INTEGER NOT NULL, confidence REAL NOT NULL,
            reliability REAL NOT NULL, pin INTEGER NOT NULL, private INTEGER NOT NULL, disclosure TEXT NOT NULL,
            digest BLOB NOT NULL, PRIMARY KEY(stream, id)) WITHOUT ROWID;
        CREATE INDEX memory_by_id ON memory(id, stream);
        CREATE INDEX memory_by_digest ON memory(owner, digest);
        CREATE TABLE memory_validity(
            stream TEXT, id TEXT, owner TEXT NOT NULL, by_id TEXT NOT NULL, merged INTEGER NOT NULL,
            PRIMARY KEY(stream, id)) WITHOUT ROWID;
        CREATE INDEX memory_validity_owner ON memory_validity(owner);
        CREATE TABLE memory_link(
            stream TEXT, source TEXT, relation TEXT, target TEXT, owner TEXT NOT NULL,
            PRIMARY KEY(stream, source, relation, target)) WITHOUT ROWID;
        CREATE INDEX memory_validity_id ON memory_validity(id);
        CREATE INDEX memory_link_owner ON memory_link(owner);
        CREATE TABLE memory_evidence(
            stream TEXT, id TEXT, source TEXT, PRIMARY KEY(stream, id, source)) WITHOUT ROWID;
        CREATE INDEX memory_evidence_id ON memory_evidence(id);
        CREATE TABLE memory_use(
            stream TEXT, id TEXT, owner TEXT NOT NULL, last INTEGER NOT NULL, times INTEGER NOT NULL,
            PRIMARY KEY(stream, id)) WITHOUT ROWID;
        CREATE INDEX memory_use_last ON memory_use(owner, last);
        CREATE TABLE memory_tombstone(
            stream TEXT, id TEXT, owner TEXT NOT NULL, digest BLOB NOT NULL, sources TEXT NOT NULL,
            PRIMARY KEY(stream, id)) WITHOUT ROWID;
        CREATE INDEX memory_tombstone_id ON memory_tombstone(id);
        CREATE INDEX memory_tombstone_digest ON memory_tombstone(owner, digest);
    """
    derived = INDEX_SCHEMA

    @on(MemoryAdded)
    def added(self, rows: Rows, event: Event[MemoryAdded]) -> None:
        it = event.payload
        rows.run(
            "INSERT OR REPLACE INTO memory VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                event.stream,
                it.id,
                it.owner,
                event.id,
                it.text,
                it.type,
                it.scene,
                it.speaker,
                it.told_by,
                _json_list(tuple(sorted(set(it.witnesses)))),
                _json_list(it.about),
                _json_list(it.sources),
                None if it.happened is None else to_micros(it.happened),
                _micros(event.ts),
                it.significance,
                it.confidence,
                it.reliability,
                HAND_PINNED if it.pinned else 0,
                it.private,
                it.disclosure,
                digest(it.text),
            ),
        )

    @on(MemoryEdited)
    def edited(self, rows: Rows, event: Event[MemoryEdited]) -> None:
        changes: dict[str, Any] = event.payload.model_dump(exclude={"id"}, exclude_none=True)
        if "text" in changes:
            changes["digest"] = digest(changes["text"])
        for column, value in changes.items():
            rows.run(
                f"UPDATE memory SET {column} = ? WHERE stream = ? AND id = ?",
                (value, event.stream, event.payload.id),
            )

    @on(MemoryPinChanged)
    def pin_changed(self, rows: Rows, event: Event[MemoryPinChanged]) -> None:
        it = event.payload
        pin = (AUTO_PINNED if it.auto else HAND_PINNED) if it.pinned else 0
        rows.run("UPDATE memory SET pin = ? WHERE stream = ? AND id = ?", (pin, event.stream, it.id))

    @on(MemoryConfirmed)
    def confirmed(self, rows: Rows, event: Event[MemoryConfirmed]) -> None:
        for source in event.payload.sources:
            rows.run("INSERT OR IGNORE INTO memory_evidence VALUES (?,?,?)", (event.stream, event.payload.id, source))

    @on(MemorySuperseded)
    def superseded(self, rows: Rows, event: Event[MemorySuperseded]) -> None:
        it = event.payload
        rows.run("INSERT OR REPLACE INTO memory_validity VALUES (?,?,?,?,0)", (event.stream, it.id, it.owner, it.by))

    @on(MemoryMerged)
    def merged(self, rows: Rows, event: Event[MemoryMerged]) -> None:
        it = event.payload
        rows.run("INSERT OR REPLACE INTO memory_validity VALUES (?,?,?,?,1)", (event.stream, it.id, it.owner, it.into))

    @on(MemoryLinked)
    def linked(self, rows: Rows, event: Event[MemoryLinked]) -> None:
        it = event.payload
        rows.run(
            "INSERT OR IGNORE INTO memory_link VALUES (?,?,?,?,?)",
            (event.stream, it.source, it.relation, it.target, it.owner),
        )

    @on(MemoryUsed)
    def used(self, rows: Rows, event: Event[MemoryUsed]) -> None:
        for memory_id in event.payload.ids:
            rows.run(
                "INSERT INTO memory_use VALUES (?,?,?,?,1)"
                " ON CONFLICT DO UPDATE SET last = max(last, excluded.last), times = times + 1",
                (event.stream, memory_id, event.payload.owner, to_micros(event.ts)),
            )

    @on(MemoryForgotten)
    def forgotten(self, rows: Rows, event: Event[MemoryForgotten]) -> None:
        it = event.payload
        rows.run(
            "INSERT OR REPLACE INTO memory_tombstone VALUES (?,?,?,?,?)",
            (event.stream, it.id, it.owner, bytes.fromhex(it.digest), json.dumps(it.sources)),
        )

    def update_derived(self, rows: Rows, changed: ChangedKeys | None) -> None:
        if changed is None:
            rebuild_index(rows)
        else:
            update_index(rows, changed)
