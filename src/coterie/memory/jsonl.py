"""Export and import of memories as JSON Lines, with their links and supersessions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

from coterie.base.values import clamp_time
from coterie.eventstore import NewEvent, Store
from coterie.memory.access import Viewpoint, may_recall
from coterie.memory.errors import BadImport
from coterie.memory.events import MemoryLinked, MemorySuperseded
from coterie.memory.records import DISCLOSURES, RELATIONS, TYPES, MemoryRecord, StreamForks, all_records
from coterie.memory.writer import MemoryWriter, NewMemory

FORMAT = "coterie-memory"
VERSION = 1
_BATCH = 1_000


def export_lines(store: Store, owner: str | None = None, view: Viewpoint | None = None) -> Iterator[str]:
    """A header line, then one line per memory; with a viewpoint, only memories that it may recall."""
    yield json.dumps({"format": FORMAT, "version": VERSION})
    forks = StreamForks(store.reader.roots())
    where, params = ("owner = ?", (owner,)) if owner else ("", ())
    for record in all_records(store, where, params):
        if view is not None and not _is_visible(record, view, forks):
            continue
        entry: dict[str, Any] = asdict(record)
        for name in ("happened", "made"):
            entry[name] = None if entry[name] is None else entry[name].isoformat()
        entry["links"] = [
            {"relation": relation, "target": target}
            for relation, target in store.query(
                "SELECT relation, target FROM memory_link WHERE stream = ? AND source = ? ORDER BY relation, target",
                (record.room, record.id),
            )
        ]
        yield json.dumps(entry, ensure_ascii=False)


def import_lines(
    store: Store, writer: MemoryWriter, lines: Iterable[str], *, owner: str | None = None, room: str | None = None
) -> int:
    """Store an export's memories and return how many were new. `owner` and `room` replace those of the export.

    Nothing is stored if a line is invalid; known memories are not stored again.
    """
    memories: list[NewMemory] = []
    relations: list[tuple[NewMemory, str | None, list[dict[str, str]]]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        entry = _parse_line(line, number)
        if "format" in entry:
            if entry["format"] != FORMAT or entry.get("version") != VERSION:
                raise BadImport(
                    f"Line {number} has format {entry['format']} {entry.get('version')}, not {FORMAT} {VERSION}.",
                    "Export it again with this version of Coterie.",
                )
            continue
        new = _new_memory(entry, number, owner, room)
        memories.append(new)
        relations.append((new, entry.get("superseded_by"), entry.get("links") or []))
    added: set[str] = set()
    for start in range(0, len(memories), _BATCH):
        planned = writer.plan(memories[start : start + _BATCH], by_meaning=False)
        added.update(plan.id for plan in planned if plan.verdict == "added")
        new_events = [event for plan in planned for event in plan.new_events]
        if new_events:
            store.append_blocking(new_events)
    if new_events := list(_relation_events(relations, added)):
        store.append_blocking(new_events)
    return len(added)


def _relation_events(
    relations: list[tuple[NewMemory, str | None, list[dict[str, str]]]], added: set[str]
) -> Iterator[NewEvent]:
    for new, later, links in relations:
        if new.id not in added:
            continue
        if later:
            yield NewEvent(new.room, MemorySuperseded(id=new.id or "", by=str(later), owner=new.owner))
        for link in links:
            if link.get("relation") in RELATIONS:
                payload = MemoryLinked.model_validate(
                    {"source": new.id, "relation": link["relation"], "target": link["target"], "owner": new.owner}
                )
                yield NewEvent(new.room, payload)


def _is_visible(record: MemoryRecord, view: Viewpoint, forks: StreamForks) -> bool:
    return (
        record.owner == view.owner
        and not forks.is_other_branch(record.room, view.room)
        and may_recall(
            view,
            witnesses=record.witnesses,
            told_by=record.told_by,
            private=record.private,
            disclosure=record.disclosure,
            room=record.room,
        )
    )


def _parse_line(line: str, number: int) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise BadImport(f"Line {number} is not JSON: {error}.", "Export it again, or remove the line.") from None
    if not isinstance(entry, dict):
        raise BadImport(f"Line {number} is not a memory.", "Every line must be a JSON object.")
    return entry


def _new_memory(entry: dict[str, Any], number: int, owner: str | None, room: str | None) -> NewMemory:
    try:
        kind, disclosure = entry.get("type", "observation"), entry.get("disclosure", "people")
        if kind not in TYPES or disclosure not in DISCLOSURES:
            raise ValueError(f"its type {kind} or disclosure {disclosure} is unknown")
        happened = entry.get("happened")
        return NewMemory(
            text=str(entry["text"]),
            owner=owner or str(entry["owner"]),
            room=room or str(entry["room"]),
            type=kind,
            scene=entry.get("scene"),
            speaker=entry.get("speaker"),
            told_by=entry.get("told_by"),
            witnesses=tuple(entry.get("witnesses") or ()),
            about=tuple(entry.get("about") or ()),
            sources=tuple(entry.get("sources") or ()),
            happened=clamp_time(datetime.fromisoformat(happened)) if happened else None,
            significance=int(entry.get("significance", 1)),
            confidence=float(entry.get("confidence", 1.0)),
            reliability=float(entry.get("reliability", 1.0)),
            pinned=bool(entry.get("pinned", False)),
            private=bool(entry.get("private", False)),
            disclosure=disclosure,
            id=str(entry["id"]) if entry.get("id") else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadImport(f"Line {number} is not a memory: {error}.", "Correct or remove the line.") from None
