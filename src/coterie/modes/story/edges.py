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
from coterie.kernel import AnyEvent, Event, Rows, Store, View, on
from coterie.modes.story.events import (
    Edge,
    EdgesCleared,
    EdgesSet,
    EdgeSummaryRewritten,
    EdgeUpdate,
    ManualEdit,
)

KINDS = (EdgeUpdate.kind, EdgeSummaryRewritten.kind, EdgesSet.kind, EdgesCleared.kind, ManualEdit.kind)
_COLUMNS = "of, toward, affinity, trust, summary, knowledge, chat, at"


class Edges(View):
    name = "story_edges"
    schema = """
        CREATE TABLE edge(world TEXT, of TEXT, toward TEXT, affinity INTEGER NOT NULL, trust INTEGER NOT NULL,
            summary TEXT NOT NULL, knowledge TEXT NOT NULL, chat TEXT NOT NULL, at INTEGER,
            PRIMARY KEY(world, of, toward)) WITHOUT ROWID;
    """

    @on(EdgeUpdate)
    def updated(self, rows: Rows, event: Event[EdgeUpdate]) -> None:
        it = event.payload
        _write(rows, it.world, updated(_read(rows, it.world, it.of, it.toward), it))

    @on(EdgeSummaryRewritten)
    def rewritten(self, rows: Rows, event: Event[EdgeSummaryRewritten]) -> None:
        it = event.payload
        _write(rows, it.world, rewritten(_read(rows, it.world, it.of, it.toward), it))

    @on(EdgesSet)
    def edges_set(self, rows: Rows, event: Event[EdgesSet]) -> None:
        rows.run("DELETE FROM edge WHERE world = ?", (event.payload.world,))
        for edge in event.payload.edges:
            _write(rows, event.payload.world, edge)

    @on(EdgesCleared)
    def cleared(self, rows: Rows, event: Event[EdgesCleared]) -> None:
        # Written, not deleted: a row that is not there leaves no trace in the undo journal.
        for world, of, toward in event.payload.pairs:
            _write(rows, world, Edge(of=of, toward=toward))

    @on(ManualEdit)
    def edited(self, rows: Rows, event: Event[ManualEdit]) -> None:
        if (named := edited_edge(event.payload)) is not None:
            world, of, toward = named
            _write(rows, world, corrected(_read(rows, world, of, toward), event.payload))


def updated(edge: Edge, update: EdgeUpdate) -> Edge:
    """An edge after an update: deltas clamp, facts are not repeated."""
    known = {" ".join(fact.lower().split()): fact for fact in reversed((*edge.knowledge, *update.knowledge))}
    told = dict.fromkeys(known[" ".join(fact.lower().split())] for fact in (*edge.knowledge, *update.knowledge))
    return Edge(
        of=edge.of,
        toward=edge.toward,
        affinity=max(0, min(100, edge.affinity + update.affinity_delta)),
        trust=max(0, min(100, edge.trust + update.trust_delta)),
        summary=edge.summary if update.summary is None else update.summary,
        knowledge=tuple(told),
        chat=update.chat or edge.chat,
        when=update.when or edge.when,
    )


def rewritten(edge: Edge, rewrite: EdgeSummaryRewritten) -> Edge:
    """An edge with a new sentence. One that was made from a sentence which another chat has taken back since, or has
    rewritten meanwhile, does not count: something of that would stay in it."""
    if rewrite.rewrites and rewrite.rewrites != fingerprint(edge.summary):
        return edge
    return edge.model_copy(update={"summary": rewrite.summary})


def fingerprint(sentence: str) -> str:
    return hashlib.sha256(sentence.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def edited_edge(edit: ManualEdit) -> tuple[str, str, str] | None:
    """The edge that a correction by hand is about: world, who, toward whom. A world's own name may hold a full stop."""
    match edit.what.split("."):
        case ["edge", *world, of, toward, "affinity" | "trust" | "summary" | "knowledge"]:
            return ".".join(world), of, toward
    return None


def corrected(edge: Edge, edit: ManualEdit) -> Edge:
    column = edit.what.rpartition(".")[2]
    value: int | str | tuple[str, ...]
    if column in ("affinity", "trust"):
        value = max(0, min(100, int(edit.value)))
    elif column == "knowledge":
        value = tuple(dict.fromkeys(edit.value))
    else:
        value = str(edit.value)
    return edge.model_copy(update={column: value})


class EdgeBook:
    def __init__(self, store: Store) -> None:
        self._store = store

    def edge(self, world: str, of: str, toward: str) -> Edge:
        for edge in self.edges(world):
            if (edge.of, edge.toward) == (of, toward):
                return edge
        return Edge(of=of, toward=toward)

    def edges(self, world: str) -> list[Edge]:
        rows = self._store.query(f"SELECT {_COLUMNS} FROM edge WHERE world = ? ORDER BY of, toward", (world,))  # noqa: S608
        return [_edge(row) for row in rows]

    def at(self, world: str, events: Iterable[AnyEvent]) -> list[Edge]:
        """What the edges of a world were after these events."""
        edges: dict[tuple[str, str], Edge] = {}
        for event in events:
            it = event.payload
            if isinstance(it, ManualEdit):
                named = edited_edge(it)
                if named is not None and named[0] == world:
                    edge = edges.get(named[1:], Edge(of=named[1], toward=named[2]))
                    edges[named[1:]] = corrected(edge, it)
            elif isinstance(it, EdgesSet) and it.world == world:
                edges = {(edge.of, edge.toward): edge for edge in it.edges}
            elif isinstance(it, EdgesCleared):
                edges |= {(of, toward): Edge(of=of, toward=toward) for where, of, toward in it.pairs if where == world}
            elif isinstance(it, EdgeUpdate | EdgeSummaryRewritten) and it.world == world:
                pair = (it.of, it.toward)
                edge = edges.get(pair, Edge(of=it.of, toward=it.toward))
                edges[pair] = updated(edge, it) if isinstance(it, EdgeUpdate) else rewritten(edge, it)
        return [edges[pair] for pair in sorted(edges)]


def _read(rows: Rows, world: str, of: str, toward: str) -> Edge:
    row = rows.one(
        f"SELECT {_COLUMNS} FROM edge WHERE world = ? AND of = ? AND toward = ?",  # noqa: S608
        (world, of, toward),
    )
    return _edge(row) if row is not None else Edge(of=of, toward=toward)


def _write(rows: Rows, world: str, edge: Edge) -> None:
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


def _edge(row: tuple[Any, ...]) -> Edge:
    of, toward, affinity, trust, summary, knowledge, chat, at = row
    when: datetime | None = from_micros(at) if at is not None else None
    return Edge(
        of=of,
        toward=toward,
        affinity=affinity,
        trust=trust,
        summary=summary,
        knowledge=tuple(json.loads(knowledge)),
        chat=chat,
        when=when,
    )
