"""A learned ranking: small boosted trees, stored as plain arrays and walked with numpy.

The model file holds thresholds and values, nothing of the data it was trained on. Each step down a tree moves
the score by a known amount because of one feature, so a score can be taken apart exactly into what each
feature gave.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RankingTrees:
    features: tuple[str, ...]
    roots: Ints
    feature: Ints
    threshold: Floats
    """Infinite at a leaf, so that a walk that has arrived stays."""
    left: Ints
    """Where a walk goes on when the feature is at most the threshold; otherwise one further. A leaf leads to itself."""
    value: Floats
    """Of every node, inner ones too: what the score would be if the walk ended here."""
    depth: int

    @classmethod
    def load(cls, path: Path) -> RankingTrees:
        with np.load(path, allow_pickle=False) as file:
            return cls(
                features=tuple(str(name) for name in file["features"]),
                roots=file["roots"].astype(np.int64),
                feature=file["feature"].astype(np.int64),
                threshold=file["threshold"].astype(np.float64),
                left=file["left"].astype(np.int64),
                value=file["value"].astype(np.float64),
                depth=int(file["depth"]),
            )

    def save(self, path: Path) -> None:
        np.savez_compressed(
            path,
            features=np.array(self.features),
            roots=self.roots.astype(np.int32),
            feature=self.feature.astype(np.int16),
            threshold=self.threshold.astype(np.float32),
            left=self.left.astype(np.int32),
            value=self.value.astype(np.float32),
            depth=np.array(self.depth),
        )

    def scores(self, table: Floats) -> Floats:
        leaves = deque(self._walk(table), maxlen=1)[0]
        total: Floats = self.value.take(leaves).sum(1)
        return total

    def _start(self, table: Floats) -> tuple[Ints, Ints]:
        first = np.broadcast_to(self.roots, (len(table), len(self.roots)))
        return first, np.arange(len(table))[:, None] * len(self.features)

    def _walk(self, table: Floats) -> Iterator[Ints]:
        """Step by step, where every row stands in every tree."""
        node, offset = self._start(table)
        flat = np.ascontiguousarray(table).ravel()
        for _ in range(self.depth):
            asked = flat.take(self.feature.take(node) + offset)
            node = self.left.take(node) + (asked > self.threshold.take(node))
            yield node

    def contributions(self, table: Floats) -> Floats:
        """Per row and feature, what it added; a row sums to its score less what every row starts with."""
        node, offset = self._start(table)
        given = np.zeros(len(table) * len(self.features))
        for reached in self._walk(table):
            np.add.at(given, self.feature.take(node) + offset, self.value.take(reached) - self.value.take(node))
            node = reached
        return given.reshape(len(table), len(self.features))
