"""How people and characters feel about each other: directed, one edge per ordered pair, in each world.

All chats that are not forks share one world, so a character's feelings are the same wherever it is met. A fork
begins with feelings as they were at that moment, in a world of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from coterie.base.clock import from_micros, to_micros
from coterie.eventstore import AnyEvent, Event, Projection, Rows, Store, on
from coterie.modes.story.events import (
    ManualEdit,
    Relationship,
    RelationshipsCleared,
    RelationshipsSet,
    RelationshipSummaryRewritten,
    RelationshipUpdated,
)

RELATIONSHIP_KINDS = (
    RelationshipUpdated.kind,
    RelationshipSummaryRewritten.kind,
    RelationshipsSet.kind,
    RelationshipsCleared.kind,
    ManualEdit.kind,
)
_COLUMNS = "of, toward, affinity, trust, summary, knowledge, chat, at"


class RelationshipProjection(Projection):
    name = "story_edges"
    schema = """
        CREATE TABLE edge(world TEXT, of TEXT, toward TEXT, affinity INTEGER NOT NULL, trust INTEGER NOT NULL,
            summary TEXT NOT NULL, knowledge TEXT NOT NULL, chat TEXT NOT NULL, at INTEGER,
            PRIMARY KEY(world, of, toward)) WITHOUT ROWID;
    """

    @on(RelationshipUpdated)
    def updated(self, rows: Rows, event: Event[RelationshipUpdated]) -> None:
        it = event.payload
        _write(rows, it.world, apply_update(_read(rows, it.world, it.of, it.toward), it))

    @on(RelationshipSummaryRewritten)
    def rewritten(self, rows: Rows, event: Event[RelationshipSummaryRewritten]) -> None:
        it = event.payload
        _write(rows, it.world, apply_rewrite(_read(rows, it.world, it.of, it.toward), it))

    @on(RelationshipsSet)
    def relationships_set(self, rows: Rows, event: Event[RelationshipsSet]) -> None:
        rows.run("DELETE FROM edge WHERE world = ?", (event.payload.world,))
        for edge in event.payload.edges:
            _write(rows, event.payload.world, edge)

    @on(RelationshipsCleared)
    def cleared(self, rows: Rows, event: Event[RelationshipsCleared]) -> None:
        # Written, not deleted: a row that is not there leaves no trace in the undo journal.
        for world, of, toward in event.payload.pairs:
            _write(rows, world, Relationship(of=of, toward=toward))

    @on(ManualEdit)
    def edited(self, rows: Rows, event: Event[ManualEdit]) -> None:
        if (named := edited_relationship(event.payload)) is not None:
            world, of, toward = named
            _write(rows, world, apply_edit(_read(rows, world, of, toward), event.payload))


def apply_update(edge: Relationship, update: RelationshipUpdated) -> Relationship:
    """An edge after an update: deltas clamp, facts are not repeated."""
    known = {" ".join(fact.lower().split()): fact for fact in reversed((*edge.knowledge, *update.knowledge))}
    told = dict.fromkeys(known[" ".join(fact.lower().split())] for fact in (*edge.knowledge, *update.knowledge))
    return Relationship(
        of=edge.of,
        toward=edge.toward,
        affinity=max(0, min(100, edge.affinity + update.affinity_delta)),
        trust=max(0, min(100, edge.trust + update.trust_delta)),
        summary=edge.summary if update.summary is None else update.summary,
        knowledge=tuple(told),
        chat=update.chat or edge.chat,
        when=update.when or edge.when,
    )


def apply_rewrite(edge: Relationship, rewrite: RelationshipSummaryRewritten) -> Relationship:
    """An edge with a new sentence. One that was made from a sentence which another chat has taken back since, or has
    rewritten meanwhile, does not count: something of that would stay in it."""
    if rewrite.rewrites and rewrite.rewrites != summary_hash(edge.summary):
        return edge
    return edge.model_copy(update={"summary": rewrite.summary})


def summary_hash(sentence: str) -> str:
    return hashlib.sha256(sentence.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def edited_relationship(edit: ManualEdit) -> tuple[str, str, str] | None:
    """The edge that a correction by hand is about: world, who, toward whom. A world's own name may hold a full stop."""
    match edit.what.split("."):
        case ["edge", *world, of, toward, "affinity" | "trust" | "summary" | "knowledge"]:
            return ".".join(world), of, toward
    return None


def apply_edit(edge: Relationship, edit: ManualEdit) -> Relationship:
    column = edit.what.rpartition(".")[2]
    value: int | str | tuple[str, ...]
    if column in ("affinity", "trust"):
        value = max(0, min(100, int(edit.value)))
    elif column == "knowledge":
        value = tuple(dict.fromkeys(edit.value))
    else:
        value = str(edit.value)
    return edge.model_copy(update={column: value})


class RelationshipQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, world: str, of: str, toward: str) -> Relationship:
        for edge in self.in_world(world):
            if (edge.of, edge.toward) == (of, toward):
                return edge
        return Relationship(of=of, toward=toward)

    def in_world(self, world: str) -> list[Relationship]:
        rows = self._store.query(f"SELECT {_COLUMNS} FROM edge WHERE world = ? ORDER BY of, toward", (world,))  # noqa: S608
        return [_relationship(row) for row in rows]

    def replay(self, world: str, events: Iterable[AnyEvent]) -> list[Relationship]:
        """What the edges of a world were after these events."""
        edges: dict[tuple[str, str], Relationship] = {}
        for event in events:
            it = event.payload
            if isinstance(it, ManualEdit):
                named = edited_relationship(it)
                if named is not None and named[0] == world:
                    edge = edges.get(named[1:], Relationship(of=named[1], toward=named[2]))
                    edges[named[1:]] = apply_edit(edge, it)
            elif isinstance(it, RelationshipsSet) and it.world == world:
                edges = {(edge.of, edge.toward): edge for edge in it.edges}
            elif isinstance(it, RelationshipsCleared):
                edges |= {
                    (of, toward): Relationship(of=of, toward=toward) for where, of, toward in it.pairs if where == world
                }
            elif isinstance(it, RelationshipUpdated | RelationshipSummaryRewritten) and it.world == world:
                pair = (it.of, it.toward)
                edge = edges.get(pair, Relationship(of=it.of, toward=it.toward))
                edges[pair] = apply_update(edge, it) if isinstance(it, RelationshipUpdated) else apply_rewrite(edge, it)
        return [edges[pair] for pair in sorted(edges)]


def _read(rows: Rows, world: str, of: str, toward: str) -> Relationship:
    row = rows.one(
        f"SELECT {_COLUMNS} FROM edge WHERE world = ? AND of = ? AND toward = ?",  # noqa: S608
        (world, of, toward),
    )
    return _relationship(row) if row is not None else Relationship(of=of, toward=toward)


def _write(rows: Rows, world: str, edge: Relationship) -> None:
    rows.run(
        "INSERT OR REPLACE INTO edge VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            world,
            edge.of,
            edge.toward,
            edge.affinity,
            edge.trust,
            edge.summary,
            json.dumps(edge.knowledge, ensure_ascii=False),
            edge.chat,
            to_micros(edge.when) if edge.when is not None else None,
        ),
    )


def _relationship(row: tuple[Any, ...]) -> Relationship:
    of, toward, affinity, trust, summary, knowledge, chat, at = row
    when: datetime | None = from_micros(at) if at is not None else None
    return Relationship(
        of=of,
        toward=toward,
        affinity=affinity,
        trust=trust,
        summary=summary,
        knowledge=tuple(json.loads(knowledge)),
        chat=chat,
        when=when,
    )
