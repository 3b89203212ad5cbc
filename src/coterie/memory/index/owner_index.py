"""One owner's memories as arrays, for access rules, signals, ranking and boosts.

An owner index is a cache of the index tables. Before each use it compares counters, reads new documents, and drops
deleted ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.memory.index.embedders import DIM
from coterie.memory.records import TYPE_IMPORTANCE
from coterie.memory.text import NameMatcher

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Query = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]

SIGN_SEARCH_ABOVE = 50_000
"""Above this many memories vectors are stored as float16, and their signs are searched first."""
_SESSION_GAP = 6 * 3_600 * 1_000_000
_NONE = -1

_READ = """
    SELECT d.doc, d.stream, d.id, d.question, d.tokens, d.vector, m.event, m.scene, m.speaker, m.told_by,
           m.witnesses, m.about, m.private, m.disclosure, m.made, m.happened, m.significance, m.pin, m.type,
           m.confidence, m.reliability, m.digest
    FROM memory_doc d JOIN memory m ON m.stream = d.stream AND m.id = d.id
    WHERE d.owner = ? AND d.doc > ? ORDER BY d.doc
"""


class StringTable:
    """Maps strings to small integers, in order of first use."""

    def __init__(self) -> None:
        self.values: list[str | None] = []
        self._codes: dict[str | None, int] = {}

    def code(self, value: str | None) -> int:
        code = self._codes.get(value)
        if code is None:
            code = self._codes[value] = len(self.values)
            self.values.append(value)
        return code

    def lookup(self, value: str | None) -> int:
        return self._codes.get(value, _NONE)


class OwnerIndex:
    """The arrays of one owner's memories; a memory's position is the same in all of them."""

    def __init__(self, owner: str, number: int) -> None:
        self.owner = owner
        self.number = number
        self.streams, self.speakers, self.types = StringTable(), StringTable(), StringTable()
        self.settings = StringTable()
        """The access fields of memories, as JSON."""
        self.people = StringTable()
        self._scenes = StringTable()
        self._positions: dict[str, list[int]] = {}
        self._indexed = 0
        self._seen: tuple[int, int, int] = (0, 0, 0)
        self._keep_only(np.zeros(0, bool), first=True)
        self.superseded: dict[str, list[tuple[str, str, bool]]] = {}
        self.links: dict[str, list[tuple[str, str, str]]] = {}
        self._links_version = -1

    def __len__(self) -> int:
        return len(self.doc)

    @property
    def nbytes(self) -> int:
        return self.vectors.nbytes + self.tokens.nbytes + self.signs.nbytes + len(self) * 400

    def refresh(self, query: Query) -> None:
        """Update the arrays from the tables; the cost depends on what has changed."""
        ((docs, last, removed, ties),) = query(
            "SELECT docs, last, removed, ties FROM memory_owner WHERE number = ?", (self.number,)
        )
        if ties != self._links_version:
            self._read_links(query)
            self._links_version = ties
        if (docs, last, removed) == self._seen:
            return
        if removed != self._seen[2] and len(self):
            stored = {doc for (doc,) in query("SELECT doc FROM memory_doc WHERE owner = ?", (self.number,))}
            self._keep_only(np.array([doc in stored for doc in self.doc.tolist()], bool))
        self._add(query(_READ, (self.number, int(self.doc[-1]) if len(self) else 0)))
        self._seen = (docs, last, removed)

    def positions(self) -> dict[str, list[int]]:
        """The positions of each id, one for each stream that has it."""
        for index in range(self._indexed, len(self.ids)):
            self._positions.setdefault(self.ids[index], []).append(index)
        self._indexed = len(self.ids)
        return self._positions

    def _read_links(self, query: Query) -> None:
        self.superseded, self.links = {}, {}
        for stream, old, by, merged in query(
            "SELECT stream, id, by_id, merged FROM memory_validity WHERE owner = ? ORDER BY stream, id", (self.owner,)
        ):
            self.superseded.setdefault(old, []).append((stream, by, bool(merged)))
        for stream, source, relation, target in query(
            "SELECT stream, source, relation, target FROM memory_link WHERE owner = ?"
            " ORDER BY stream, source, relation, target",
            (self.owner,),
        ):
            self.links.setdefault(source, []).append((stream, relation, target))
            self.links.setdefault(target, []).append((stream, relation, source))

    def _keep_only(self, keep: Bools, *, first: bool = False) -> None:
        """Keep the documents where `keep` is true; `first` creates the empty arrays."""
        if first:
            self.ids: list[str] = []
            self.digests: list[bytes] = []
            self.columns: dict[str, Ints] = {name: np.zeros(0, np.int64) for name in _COLUMNS}
            self.weight = np.zeros(0, np.float64)
            self._matrix: NDArray[Any] = np.zeros((0, DIM), np.float32)
            self._pieces = np.zeros(0, np.uint16)
            self.starts: Ints = np.zeros(1, np.int64)
            self.piece_counts: Ints = np.zeros(1 << 16, np.int64)
            self.signs = np.zeros((0, DIM // 64), np.uint64)
        else:
            kept = np.flatnonzero(keep)
            self.ids = [self.ids[index] for index in kept]
            self.digests = [self.digests[index] for index in kept]
            self.columns = {name: column[keep] for name, column in self.columns.items()}
            self.weight = self.weight[keep]
            self._matrix = self._matrix[: len(keep)][keep]
            lengths = np.diff(self.starts)
            self._pieces = self._pieces[: self.starts[-1]][np.repeat(keep, lengths)]
            self.starts = np.concatenate([[0], np.cumsum(lengths[keep])]).astype(np.int64)
            self.piece_counts = np.bincount(self._pieces, minlength=1 << 16)
            self.signs = np.zeros((0, DIM // 64), np.uint64)
            self._positions, self._indexed = {}, 0
        self._derive_order()

    def _add(self, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            new_columns: dict[str, list[int]] = {name: [] for name in _COLUMNS}
            weights: list[float] = []
            for row in rows:
                self._read(row, new_columns, weights)
            before = len(self.ids) - len(rows)
            vectors = np.frombuffer(b"".join(row[5] for row in rows), np.float16).reshape(-1, DIM)
            self._append_vectors(before, vectors)
            self._append_pieces([row[4] for row in rows])
            for name, values in new_columns.items():
                self.columns[name] = np.concatenate([self.columns[name], np.array(values, np.int64)])
            self.weight = np.concatenate([self.weight, np.array(weights)])
        self._derive_order()

    def _read(self, row: tuple[Any, ...], new_columns: dict[str, list[int]], weights: list[float]) -> None:
        doc, stream, memory_id, question, _pieces, _vector, event, scene, speaker, told_by, witnesses = row[:11]
        about, private, disclosure, made, happened, significance, pin, kind, confidence, reliability, digest = row[11:]
        self.ids.append(memory_id)
        self.digests.append(digest)
        setting = json.dumps([witnesses, told_by, private, disclosure])
        values = (
            doc,
            self.streams.code(stream),
            event,
            self._scenes.code(scene),
            self.speakers.code(speaker),
            self.settings.code(setting),
            self.people.code(about),
            question,
            made,
            made if happened is None else happened,
            significance,
            pin,
            self.types.code(kind),
        )
        for name, value in zip(_COLUMNS, values, strict=True):
            new_columns[name].append(value)
        weights.append(TYPE_IMPORTANCE.get(kind, 0.3) * confidence * reliability)

    def _append_vectors(self, before: int, vectors: NDArray[np.float16]) -> None:
        """The array grows in large steps, so that adding one memory does not copy all of them."""
        total = before + len(vectors)
        kind = np.float16 if total > SIGN_SEARCH_ABOVE else np.float32
        if total > len(self._matrix) or self._matrix.dtype != kind:
            grown = np.zeros((max(total, min(2 * before, before + 20_000)), DIM), kind)
            grown[:before] = self._matrix[:before]
            self._matrix = grown
        self._matrix[before:total] = vectors

    def _append_pieces(self, rows: list[bytes]) -> None:
        """The pieces of all memories are in one array, which grows like the vectors."""
        new_pieces = np.frombuffer(b"".join(rows), np.uint16)
        ends = self.starts[-1] + np.cumsum([len(row) // 2 for row in rows])
        before, total = int(self.starts[-1]), int(ends[-1])
        if total > len(self._pieces):
            grown = np.zeros(max(total, min(2 * before, before + (1 << 20))), np.uint16)
            grown[:before] = self._pieces[:before]
            self._pieces = grown
        self._pieces[before:total] = new_pieces
        self.starts = np.concatenate([self.starts, ends])
        self.piece_counts = self.piece_counts + np.bincount(new_pieces, minlength=1 << 16)

    def _derive_order(self) -> None:
        """Compute neighbours and sessions from the columns."""
        count = len(self.ids)
        self.doc = self.columns["doc"]
        self.vectors = self._matrix[:count]
        self.tokens = self._pieces[: self.starts[-1]]
        if count > SIGN_SEARCH_ABOVE:
            self.signs = np.concatenate([self.signs, _signs(self.vectors[len(self.signs) :])])
        stream, scene, when = self.columns["stream"], self.columns["scene"], self.columns["when"]
        order = np.lexsort((self.doc, self.columns["event"], stream))
        self.previous, self.following = np.full(count, _NONE), np.full(count, _NONE)
        same = stream[order[1:]] == stream[order[:-1]]
        unnamed = scene == self._scenes.lookup(None)
        new_scene = scene[order[1:]] != scene[order[:-1]]
        pause = unnamed[order[1:]] & (np.abs(when[order[1:]] - when[order[:-1]]) > _SESSION_GAP)
        together = same & ~new_scene & ~pause
        self.previous[order[1:][together]] = order[:-1][together]
        self.following[order[:-1][together]] = order[1:][together]
        session = np.zeros(count, np.int64)
        if count:
            session[order] = np.concatenate([[0], np.cumsum(~together)])
        self.session = session
        self.names = NameMatcher(value for value in self.speakers.values if value)


_COLUMNS = (
    "doc",
    "stream",
    "event",
    "scene",
    "speaker",
    "setting",
    "about",
    "question",
    "made",
    "when",
    "significance",
    "pin",
    "type",
)


def _signs(vectors: NDArray[Any]) -> NDArray[np.uint64]:
    packed = np.packbits(vectors > 0, axis=1)
    return np.ascontiguousarray(packed).view(np.uint64)
