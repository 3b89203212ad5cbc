"""Recall: which memories come to mind, for whom, where and before whom; and why each of them does.

Gates first, then ranking, then boosts. What has been superseded hands its score to what superseded it, so
that an update always comes before what it updates; links carry a share of a score to what is linked.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coterie.base.clock import to_micros
from coterie.eventstore import Store
from coterie.memory.access import Viewpoint, allowed_mask
from coterie.memory.index.owner_index import OwnerIndex
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
from coterie.memory.signals import RecallQuery, compute_signals

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Mode = Literal["hybrid", "recent", "important", "typed"]

_FULL_TEXT_LIMIT = 200
_CACHE_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    memory: MemoryRecord
    score: float
    parts: dict[str, float]
    """What the score is made of, by source; they sum to it."""
    neighbours: tuple[MemoryRecord, ...] = ()
    """The turns next to it, when they were asked for."""

    @property
    def id(self) -> str:
        return self.memory.id

    @property
    def text(self) -> str:
        return self.memory.text

    @property
    def text_with_speaker(self) -> str:
        """The text with who said it: in another room nobody knows otherwise whose words they are."""
        speaker = self.memory.speaker
        return f"{speaker}: {self.text}" if speaker and not self.text.startswith(speaker) else self.text

    @property
    def sources(self) -> tuple[str, ...]:
        return self.memory.sources


@dataclass(frozen=True)
class RecallRequest:
    """One recall, with everything that can be chosen about it."""

    text: str
    view: Viewpoint
    k: int = 10
    mode: Mode = "hybrid"
    types: Collection[str] = ()
    fuse: FusionMode = "learned"
    window: int = 0
    history: bool = False
    """Also return what has been superseded, always after what superseded it."""
    archived: bool = False
    """Also search what has faded: for the person, not for prompts."""
    pinned: bool = False
    """Only what is pinned."""


class RecallService:
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
            shelf = self._index_of(request.view.owner)
            if shelf is None:
                return []
            question = RecallQuery.parse(request.text, shelf.names, now, shelf.piece_counts)
        # Another embedder may be far away: nothing is locked while it is asked.
        wanted = (
            self.vectors.embed_question(question.text_without_names) if request.mode in ("hybrid", "typed") else None
        )
        with self._lock:
            if wanted is not None:
                shelf.refresh(self._store.query)
            return self._recall(shelf, request, question, wanted, to_micros(now))

    def index_of(self, owner: str) -> OwnerIndex | None:
        with self._lock:
            return self._index_of(owner)

    def disclosable(self, view: Viewpoint, ids: Iterable[str]) -> frozenset[str]:
        """Of these, those that are still there and may be told from this viewpoint."""
        with self._lock:
            shelf = self._index_of(view.owner)
            if shelf is None:
                return frozenset()
            places, open_to = shelf.positions(), allowed_mask(shelf, view, self.forks())
            return frozenset(one for one in ids if any(open_to[at] for at in places.get(one, ())))

    def forks(self) -> StreamForks:
        return StreamForks(self._store.reader.roots())

    def _recall(
        self, shelf: OwnerIndex, ask: RecallRequest, question: RecallQuery, wanted: NDArray[np.float32] | None, now: int
    ) -> list[RecalledMemory]:
        if ask.pinned and not shelf.columns["pin"].any():
            return []
        lines = self.forks()
        weight = self._importance(shelf, now)
        open_to = allowed_mask(shelf, ask.view, lines)
        if not ask.archived:
            columns = shelf.columns
            open_to &= ~is_archived(weight, columns["made"], now, columns["pin"] > 0)
            open_to &= columns["significance"] > 0
        if ask.pinned:
            open_to &= shelf.columns["pin"] > 0
        if ask.types:
            open_to &= np.isin(shelf.columns["type"], [shelf.types.lookup(kind) for kind in ask.types])
        if ask.mode in ("hybrid", "typed") and question.fts_match is not None:
            ranked = self._hybrid(shelf, ask, question, wanted, open_to)
        else:
            ranked = _rank_by_column(shelf, ask.mode, weight, open_to)
        for name, values in compute_boosts(shelf, question, ranked.positions, weight[ranked.positions], now).items():
            ranked.parts[name] = values
            ranked.score = ranked.score + values
        visible = {
            stream for stream in shelf.streams.values if stream and not lines.is_other_branch(stream, ask.view.room)
        } | {stream for stream in [ask.view.room] if stream}
        spread_over_links(shelf, ranked, open_to, visible)
        over = apply_supersessions(shelf, ranked, open_to, visible)
        return self._result(shelf, ask, ranked, over, open_to, lines)

    def _hybrid(
        self,
        shelf: OwnerIndex,
        ask: RecallRequest,
        question: RecallQuery,
        wanted: NDArray[np.float32] | None,
        open_to: Bools,
    ) -> Ranked:
        words = self._full_text_scores(shelf, question, open_to)
        extra = None if wanted is None else self.vectors.similarities(shelf, wanted)
        return self._ranking.rank(compute_signals(shelf, open_to, question, words, extra), ask.fuse)

    def _full_text_scores(self, shelf: OwnerIndex, question: RecallQuery, open_to: Bools) -> Floats:
        scores = np.zeros(len(shelf))
        table = full_text_table(shelf.number)
        limit = _FULL_TEXT_LIMIT
        while True:
            found = self._store.query(
                f"SELECT rowid, -rank FROM {table} WHERE {table} MATCH ? ORDER BY rank LIMIT ?",
                (question.fts_match, limit),
            )
            if not found:
                return scores
            doc = np.array([row[0] for row in found], np.int64)
            at = np.minimum(np.searchsorted(shelf.doc, doc), len(shelf) - 1)
            known = (shelf.doc[at] == doc) & open_to[at]
            # Gates come before ranking: if too many were not allowed, read on.
            if known.sum() >= min(100, _FULL_TEXT_LIMIT) or len(found) < limit:
                scores[at[known]] = np.round(np.array([row[1] for row in found])[known], 6)
                return scores
            limit *= 8

    def _importance(self, shelf: OwnerIndex, now: int) -> Floats:
        made = shelf.columns["made"]
        used = made.copy()
        recent = self._store.query(
            "SELECT id, max(last) FROM memory_use WHERE owner = ? AND last > ? GROUP BY id",
            (shelf.owner, now - 30 * DAY),
        )
        if recent:
            at = shelf.positions()
            for memory_id, last in recent:
                for index in at.get(memory_id, ()):
                    used[index] = max(used[index], last)
        identity = shelf.columns["type"] == shelf.types.lookup("identity")
        return importance(shelf.weight, made, used, now, identity)

    def _result(
        self,
        shelf: OwnerIndex,
        ask: RecallRequest,
        ranked: Ranked,
        over: dict[int, int],
        open_to: Bools,
        lines: StreamForks,
    ) -> list[RecalledMemory]:
        order = np.lexsort((shelf.doc[ranked.positions], -np.round(ranked.score, 6)))
        if not ask.history:
            order = order[[int(ranked.positions[index]) not in over for index in order]]
        chosen: list[int] = []
        said: set[bytes] = set()
        known: set[str] = set()
        for index in order.tolist():
            at = int(ranked.positions[index])
            # Lines of a family share what came before the fork, and rooms may repeat each other.
            if shelf.digests[at] in said or shelf.ids[at] in known:
                continue
            said.add(shelf.digests[at])
            known.add(shelf.ids[at])
            chosen.append(index)
            if len(chosen) == ask.k:
                break
        keys = [_key(shelf, int(ranked.positions[index])) for index in chosen]
        sides = [_neighbour_keys(shelf, int(ranked.positions[index]), ask.window, open_to) for index in chosen]
        records = read_records(self._store, {*keys, *(key for side in sides for key in side)}, lines, ask.view.room)
        results = []
        reasons = _reasons(ranked, chosen)
        for place, (index, key, side) in enumerate(zip(chosen, keys, sides, strict=True)):
            if key not in records:  # taken back since the index was read
                continue
            parts = {name: round(float(values[place]), 6) for name, values in reasons.items()}
            around = tuple(records[near] for near in side if near in records)
            results.append(RecalledMemory(records[key], round(float(ranked.score[index]), 6), parts, around))
        return results

    def _index_of(self, owner: str) -> OwnerIndex | None:
        shelf = self._indexes.get(owner)
        if shelf is None:
            found = self._store.query("SELECT number FROM memory_owner WHERE owner = ?", (owner,))
            if not found:
                return None
            shelf = OwnerIndex(owner, found[0][0])
        self._indexes[owner] = shelf
        self._indexes.move_to_end(owner)
        shelf.refresh(self._store.query)
        total = sum(each.nbytes for each in self._indexes.values()) if len(self._indexes) > 1 else 0
        while total > self._cache_bytes and len(self._indexes) > 1:
            _, dropped = self._indexes.popitem(last=False)
            total -= dropped.nbytes
        return shelf


def _rank_by_column(shelf: OwnerIndex, mode: str, weight: Floats, open_to: Bools) -> Ranked:
    """The modes that ask no question: newest first, or weightiest first."""
    at = np.flatnonzero(open_to)
    value = weight[at] if mode == "important" else shelf.columns["when"][at].astype(np.float64)
    place = np.empty(len(at), np.int64)
    place[np.lexsort((-shelf.doc[at], -np.round(value, 6)))] = np.arange(len(at))
    kept = np.sort(np.argsort(place)[:400])
    # A full step between places, so that no boost can change an order that was asked for.
    score = (len(at) - place[kept]).astype(np.float64) * 2
    return single_score_ranking(at[kept], score, "order")


def _reasons(ranked: Ranked, chosen: list[int]) -> dict[str, Floats]:
    """By source, what each of the chosen got. What joined the candidates late had no fit of its own."""
    positions = np.array(chosen, np.int64)
    fitted = positions < ranked.ranked_count
    reasons = {}
    for name, values in ranked.explain(positions[fitted]).items():
        reasons[name] = np.zeros(len(chosen))
        reasons[name][fitted] = values
    return reasons | {name: values[positions] for name, values in ranked.parts.items()}


def _key(shelf: OwnerIndex, at: int) -> tuple[str, str]:
    return (shelf.streams.values[int(shelf.columns["stream"][at])] or "", shelf.ids[at])


def _neighbour_keys(shelf: OwnerIndex, at: int, window: int, open_to: Bools) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for step in (shelf.previous, shelf.following):
        here = at
        for _ in range(window):
            here = int(step[here])
            if here < 0 or not open_to[here]:
                break
            found.append(_key(shelf, here))
    return found


def list_owners(store: Store) -> Iterable[str]:
    return [owner for (owner,) in store.query("SELECT owner FROM memory_owner WHERE docs > 0 ORDER BY owner")]
