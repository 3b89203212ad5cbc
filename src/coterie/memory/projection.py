"""The projection of memories, and the update of their search index in the same transaction.

The index tables are derived from the projection's tables: `update_derived` follows every change of these, so that
memories removed by a rewind, a regenerate, a fork or a reset leave the index in the same transaction.
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
"""Cached, because the events of a batch have the same time."""


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
        payload = event.payload
        rows.run(
            "INSERT OR REPLACE INTO memory VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                event.stream,
                payload.id,
                payload.owner,
                event.id,
                payload.text,
                payload.type,
                payload.scene,
                payload.speaker,
                payload.told_by,
                _json_list(tuple(sorted(set(payload.witnesses)))),
                _json_list(payload.about),
                _json_list(payload.sources),
                None if payload.happened is None else to_micros(payload.happened),
                _micros(event.ts),
                payload.significance,
                payload.confidence,
                payload.reliability,
                HAND_PINNED if payload.pinned else 0,
                payload.private,
                payload.disclosure,
                digest(payload.text),
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
        payload = event.payload
        pin = (AUTO_PINNED if payload.auto else HAND_PINNED) if payload.pinned else 0
        rows.run("UPDATE memory SET pin = ? WHERE stream = ? AND id = ?", (pin, event.stream, payload.id))

    @on(MemoryConfirmed)
    def confirmed(self, rows: Rows, event: Event[MemoryConfirmed]) -> None:
        for source in event.payload.sources:
            rows.run("INSERT OR IGNORE INTO memory_evidence VALUES (?,?,?)", (event.stream, event.payload.id, source))

    @on(MemorySuperseded)
    def superseded(self, rows: Rows, event: Event[MemorySuperseded]) -> None:
        payload = event.payload
        rows.run(
            "INSERT OR REPLACE INTO memory_validity VALUES (?,?,?,?,0)",
            (event.stream, payload.id, payload.owner, payload.by),
        )

    @on(MemoryMerged)
    def merged(self, rows: Rows, event: Event[MemoryMerged]) -> None:
        payload = event.payload
        rows.run(
            "INSERT OR REPLACE INTO memory_validity VALUES (?,?,?,?,1)",
            (event.stream, payload.id, payload.owner, payload.into),
        )

    @on(MemoryLinked)
    def linked(self, rows: Rows, event: Event[MemoryLinked]) -> None:
        payload = event.payload
        rows.run(
            "INSERT OR IGNORE INTO memory_link VALUES (?,?,?,?,?)",
            (event.stream, payload.source, payload.relation, payload.target, payload.owner),
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
        payload = event.payload
        rows.run(
            "INSERT OR REPLACE INTO memory_tombstone VALUES (?,?,?,?,?)",
            (event.stream, payload.id, payload.owner, bytes.fromhex(payload.digest), json.dumps(payload.sources)),
        )

    def update_derived(self, rows: Rows, changed: ChangedKeys | None) -> None:
        if changed is None:
            rebuild_index(rows)
        else:
            update_index(rows, changed)
