"""Recall: find and rank an owner's memories for a query, with the reasons for each score.

Access rules are applied first, then ranking, then boosts. A memory that supersedes a candidate always outranks it, and
links pass on a share of a score.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coterie.base.clock import to_micros
from coterie.eventstore import Store
from coterie.memory.access import Viewpoint, allowed_mask
from coterie.memory.index.owner_index import Bools, OwnerIndex
from coterie.memory.index.search_index import full_text_table
from coterie.memory.index.vectors import VectorStore
from coterie.memory.ranking import (
    DAY,
    FusionMode,
    Ranked,
    Ranking,
    apply_supersessions,
    compute_boosts,
    importance,
    is_archived,
    single_score_ranking,
    spread_over_links,
)
from coterie.memory.records import MemoryRecord, StreamForks, read_records
from coterie.memory.signals import Floats, RecallQuery, compute_signals

Mode = Literal["hybrid", "recent", "important", "typed"]
Choose = Callable[[Sequence[MemoryRecord]], Sequence[MemoryRecord]]
"""Leaves out some of the memories that were found."""

_FULL_TEXT_LIMIT = 200
_MAX_BY_COLUMN = 400
_CACHE_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    """A memory with its score and the reasons for it."""

    memory: MemoryRecord
    score: float
    parts: dict[str, float]
    """The parts of the score by source; their sum is the score."""
    neighbours: tuple[MemoryRecord, ...] = ()
    """The memories next to it in its session, as many as `window` asked for."""

    @property
    def id(self) -> str:
        return self.memory.id

    @property
    def text(self) -> str:
        return self.memory.text

    @property
    def text_with_speaker(self) -> str:
        """The text, with the speaker's name in front if it does not start with it."""
        speaker = self.memory.speaker
        return f"{speaker}: {self.text}" if speaker and not self.text.startswith(speaker) else self.text

    @property
    def sources(self) -> tuple[str, ...]:
        return self.memory.sources


@dataclass(frozen=True)
class RecallRequest:
    """The query text, viewpoint and options of a recall."""

    text: str
    view: Viewpoint
    k: int = 10
    mode: Mode = "hybrid"
    types: Collection[str] = ()
    fuse: FusionMode = "learned"
    window: int = 0
    history: bool = False
    """Also return superseded memories, each after the one that superseded it."""
    archived: bool = False
    """Also search archived memories; meant for people, not for prompts."""
    pinned: bool = False
    """Only pinned memories."""
    choose: Choose | None = None
    """Called with the memories found, best first; what it leaves out is not returned."""


class RecallService:
    """Answers recall requests from in-memory indexes, one per owner, which are kept up to date and cached."""

    def __init__(
        self, store: Store, vectors: VectorStore, ranking: Ranking | None = None, cache_bytes: int = _CACHE_BYTES
    ) -> None:
        self._store = store
        self.vectors = vectors
        self._ranking = ranking or Ranking.bundled()
        self._indexes: OrderedDict[str, OwnerIndex] = OrderedDict()
        self._cache_bytes = cache_bytes
        self._lock = threading.Lock()

    def recall(self, request: RecallRequest, now: datetime) -> list[RecalledMemory]:
        with self._lock:
            index = self._index_of(request.view.owner)
            if index is None:
                return []
            query = RecallQuery.parse(request.text, index.names, now, index.piece_counts)
        by_meaning = request.mode in ("hybrid", "typed")
        # The embedder may be a remote service: do not hold the lock while it works.
        query_vector = self.vectors.embed_question(query.text_without_names) if by_meaning else None
        with self._lock:
            if query_vector is not None:
                index.refresh(self._store.query)
            return self._recall(index, request, query, query_vector, to_micros(now))

    def index_of(self, owner: str) -> OwnerIndex | None:
        with self._lock:
            return self._index_of(owner)

    def disclosable(self, view: Viewpoint, ids: Iterable[str]) -> frozenset[str]:
        """Those of these memories that still exist and may be disclosed from this viewpoint."""
        with self._lock:
            index = self._index_of(view.owner)
            if index is None:
                return frozenset()
            positions, allowed = index.positions(), allowed_mask(index, view, self.forks())
            return frozenset(memory_id for memory_id in ids if allowed[positions.get(memory_id, [])].any())

    def forks(self) -> StreamForks:
        return StreamForks(self._store.reader.roots())

    def _recall(
        self,
        index: OwnerIndex,
        request: RecallRequest,
        query: RecallQuery,
        query_vector: NDArray[np.float32] | None,
        now: int,
    ) -> list[RecalledMemory]:
        if request.pinned and not index.columns["pin"].any():
            return []
        forks = self.forks()
        importances = self._importances(index, now)
        allowed = allowed_mask(index, request.view, forks)
        if not request.archived:
            columns = index.columns
            allowed &= ~is_archived(importances, columns["made"], now, columns["pin"] > 0)
            allowed &= columns["significance"] > 0
        if request.pinned:
            allowed &= index.columns["pin"] > 0
        if request.types:
            allowed &= np.isin(index.columns["type"], [index.types.lookup(kind) for kind in request.types])
        if request.mode in ("hybrid", "typed") and query.fts_match is not None:
            ranked = self._hybrid(index, request, query, query_vector, allowed)
        else:
            ranked = _rank_by_column(index, request.mode, importances, allowed)
        positions = ranked.positions
        for name, values in compute_boosts(index, query, positions, importances[positions], now).items():
            ranked.parts[name] = values
            ranked.score = ranked.score + values
        visible = {
            stream for stream in index.streams.values if stream and not forks.is_other_branch(stream, request.view.room)
        } | {stream for stream in [request.view.room] if stream}
        spread_over_links(index, ranked, allowed, visible)
        superseded = apply_supersessions(index, ranked, allowed, visible)
        return self._result(index, request, ranked, superseded, allowed, forks)

    def _hybrid(
        self,
        index: OwnerIndex,
        request: RecallRequest,
        query: RecallQuery,
        query_vector: NDArray[np.float32] | None,
        allowed: Bools,
    ) -> Ranked:
        full_text = self._full_text_scores(index, query, allowed)
        cosines = None if query_vector is None else self.vectors.similarities(index, query_vector)
        return self._ranking.rank(compute_signals(index, allowed, query, full_text, cosines), request.fuse)

    def _full_text_scores(self, index: OwnerIndex, query: RecallQuery, allowed: Bools) -> Floats:
        scores = np.zeros(len(index))
        table = full_text_table(index.number)
        limit = _FULL_TEXT_LIMIT
        while True:
            matches = self._store.query(
                f"SELECT rowid, -rank FROM {table} WHERE {table} MATCH ? ORDER BY rank LIMIT ?",
                (query.fts_match, limit),
            )
            if not matches:
                return scores
            doc = np.array([row[0] for row in matches], np.int64)
            positions = np.minimum(np.searchsorted(index.doc, doc), len(index) - 1)
            usable = (index.doc[positions] == doc) & allowed[positions]
            # If too many of the best matches are not allowed, read further.
            if usable.sum() >= min(100, _FULL_TEXT_LIMIT) or len(matches) < limit:
                scores[positions[usable]] = np.round(np.array([row[1] for row in matches])[usable], 6)
                return scores
            limit *= 8

    def _importances(self, index: OwnerIndex, now: int) -> Floats:
        made = index.columns["made"]
        used = made.copy()
        recent = self._store.query(
            "SELECT id, max(last) FROM memory_use WHERE owner = ? AND last > ? GROUP BY id",
            (index.owner, now - 30 * DAY),
        )
        if recent:
            positions = index.positions()
            for memory_id, last in recent:
                for position in positions.get(memory_id, ()):
                    used[position] = max(used[position], last)
        identity = index.columns["type"] == index.types.lookup("identity")
        return importance(index.weight, made, used, now, identity)

    def _result(
        self,
        index: OwnerIndex,
        request: RecallRequest,
        ranked: Ranked,
        superseded: set[int],
        allowed: Bools,
        forks: StreamForks,
    ) -> list[RecalledMemory]:
        order = np.lexsort((index.doc[ranked.positions], -np.round(ranked.score, 6)))
        if not request.history:
            order = order[[int(ranked.positions[row]) not in superseded for row in order]]
        chosen: list[int] = []
        seen_digests: set[bytes] = set()
        seen_ids: set[str] = set()
        for row in order.tolist():
            position = int(ranked.positions[row])
            # Forks of a chat share the memories from before the fork, and rooms may repeat each other.
            if index.digests[position] in seen_digests or index.ids[position] in seen_ids:
                continue
            seen_digests.add(index.digests[position])
            seen_ids.add(index.ids[position])
            chosen.append(row)
            if len(chosen) == request.k:
                break
        keys = [_key(index, int(ranked.positions[row])) for row in chosen]
        nearby = [_neighbour_keys(index, int(ranked.positions[row]), request.window, allowed) for row in chosen]
        needed = {*keys, *(key for neighbours in nearby for key in neighbours)}
        records = read_records(self._store, needed, forks, request.view.room)
        if request.choose is not None:  # before the reasons are computed, which takes longer than the records
            found = [records[key] for key in keys if key in records]
            kept = {(record.room, record.id) for record in request.choose(found)}
            chosen = [row for row, key in zip(chosen, keys, strict=True) if key in kept]
            nearby = [neighbours for neighbours, key in zip(nearby, keys, strict=True) if key in kept]
            keys = [key for key in keys if key in kept]
        results = []
        reasons = _reasons(ranked, chosen)
        for number, (row, key, neighbour_keys) in enumerate(zip(chosen, keys, nearby, strict=True)):
            if key not in records:  # removed since the index was read
                continue
            parts = {name: round(float(values[number]), 6) for name, values in reasons.items()}
            neighbours = tuple(records[near] for near in neighbour_keys if near in records)
            results.append(RecalledMemory(records[key], round(float(ranked.score[row]), 6), parts, neighbours))
        return results

    def _index_of(self, owner: str) -> OwnerIndex | None:
        index = self._indexes.get(owner)
        if index is None:
            rows = self._store.query("SELECT number FROM memory_owner WHERE owner = ?", (owner,))
            if not rows:
                return None
            index = OwnerIndex(owner, rows[0][0])
        self._indexes[owner] = index
        self._indexes.move_to_end(owner)
        index.refresh(self._store.query)
        total = sum(cached.nbytes for cached in self._indexes.values()) if len(self._indexes) > 1 else 0
        while total > self._cache_bytes and len(self._indexes) > 1:
            _, dropped = self._indexes.popitem(last=False)
            total -= dropped.nbytes
        return index


def _rank_by_column(index: OwnerIndex, mode: str, importances: Floats, allowed: Bools) -> Ranked:
    """The modes without a query: most important first, or newest first."""
    positions = np.flatnonzero(allowed)
    value = importances[positions] if mode == "important" else index.columns["when"][positions].astype(np.float64)
    rank = np.empty(len(positions), np.int64)
    rank[np.lexsort((-index.doc[positions], -np.round(value, 6)))] = np.arange(len(positions))
    best = np.sort(np.argsort(rank)[:_MAX_BY_COLUMN])
    # The step between ranks is larger than all boosts together, so that they cannot change the order.
    score = (len(positions) - rank[best]).astype(np.float64) * 2
    return single_score_ranking(positions[best], score, "order")


def _reasons(ranked: Ranked, chosen: list[int]) -> dict[str, Floats]:
    """The parts of the score of each chosen candidate. Candidates added by a link or an update have no ranking part."""
    rows = np.array(chosen, np.int64)
    was_ranked = rows < ranked.ranked_count
    reasons = {}
    for name, values in ranked.explain(rows[was_ranked]).items():
        reasons[name] = np.zeros(len(chosen))
        reasons[name][was_ranked] = values
    return reasons | {name: values[rows] for name, values in ranked.parts.items()}


def _key(index: OwnerIndex, position: int) -> tuple[str, str]:
    return (index.streams.values[int(index.columns["stream"][position])] or "", index.ids[position])


def _neighbour_keys(index: OwnerIndex, position: int, window: int, allowed: Bools) -> list[tuple[str, str]]:
    keys: list[tuple[str, str]] = []
    for step in (index.previous, index.following):
        current = position
        for _ in range(window):
            current = int(step[current])
            if current < 0 or not allowed[current]:
                break
            keys.append(_key(index, current))
    return keys


def list_owners(store: Store) -> Iterable[str]:
    return [owner for (owner,) in store.query("SELECT owner FROM memory_owner WHERE docs > 0 ORDER BY owner")]
