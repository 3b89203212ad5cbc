"""Export and import of memories as JSON Lines, with their links and supersessions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from coterie.base.untrusted import describe_problem
from coterie.base.values import clamp_time
from coterie.eventstore import NewEvent, Store
from coterie.memory.access import Viewpoint, may_recall
from coterie.memory.errors import BadImport
from coterie.memory.events import MemoryAdded, MemoryLinked, MemorySuperseded
from coterie.memory.records import DISCLOSURES, RELATIONS, TYPES, MemoryRecord, StreamForks, all_records
from coterie.memory.writer import MemoryWriter, NewMemory

FORMAT = "coterie-memory"
VERSION = 1
IMPORT_BATCH = 1_000


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


@dataclass(frozen=True)
class ImportedMemory:
    """A memory of an export, checked but not stored."""

    new: NewMemory
    superseded_by: str | None = None
    links: tuple[tuple[str, str], ...] = ()
    """Pairs of relation and target."""


def parse_import(
    lines: Iterable[str], *, owner: str | None = None, room: str | None = None
) -> Iterator[ImportedMemory]:
    """The memories of an export. `owner` and `room` replace those of the export. Raises `BadImport`."""
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
        later = entry.get("superseded_by")
        yield ImportedMemory(
            _new_memory(entry, number, owner, room), str(later) if later else None, tuple(_read_links(entry))
        )


def store_import(store: Store, writer: MemoryWriter, batches: Iterable[Sequence[ImportedMemory]]) -> int:
    """Store parsed memories batch by batch, and return how many were new; known ones are not stored again."""
    added = 0
    relations: list[NewEvent] = []
    for batch in batches:
        planned = writer.plan([memory.new for memory in batch], by_meaning=False)
        for memory, plan in zip(batch, planned, strict=True):
            if plan.verdict == "added":
                added += 1
                relations += _relation_events(memory, plan.id)
        if new_events := [event for plan in planned for event in plan.new_events]:
            store.append_blocking(new_events)
    # After all memories: they refer to each other.
    for start in range(0, len(relations), IMPORT_BATCH):
        store.append_blocking(relations[start : start + IMPORT_BATCH])
    return added


def import_lines(
    store: Store, writer: MemoryWriter, lines: Iterable[str], *, owner: str | None = None, room: str | None = None
) -> int:
    """Store an export's memories and return how many were new. `owner` and `room` replace those of the export.

    Nothing is stored if a line is invalid; known memories are not stored again.
    """
    memories = list(parse_import(lines, owner=owner, room=room))
    return store_import(store, writer, in_batches(memories))


def in_batches(memories: Sequence[ImportedMemory]) -> Iterator[Sequence[ImportedMemory]]:
    return (memories[start : start + IMPORT_BATCH] for start in range(0, len(memories), IMPORT_BATCH))


def _relation_events(memory: ImportedMemory, memory_id: str) -> Iterator[NewEvent]:
    new = memory.new
    if new.id is None:
        return
    if memory.superseded_by:
        yield NewEvent(new.room, MemorySuperseded(id=memory_id, by=memory.superseded_by, owner=new.owner))
    for relation, target in memory.links:
        payload = MemoryLinked.model_validate(
            {"source": memory_id, "relation": relation, "target": target, "owner": new.owner}
        )
        yield NewEvent(new.room, payload)


def _read_links(entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    links = entry.get("links")
    for link in links if isinstance(links, list) else ():
        if isinstance(link, dict) and link.get("relation") in RELATIONS and isinstance(link.get("target"), str):
            yield link["relation"], link["target"]


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
    except (ValueError, RecursionError) as error:
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
        new = NewMemory(
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
        # Whatever cannot be stored is refused here, before anything is stored.
        fields = {name: value for name, value in vars(new).items() if name != "room"} | {"id": new.id or ""}
        MemoryAdded.model_validate(fields).model_dump_json()
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else describe_problem(error)
        raise BadImport(f"Line {number} is not a memory: {reason}.", "Correct or remove the line.") from None
    return new
