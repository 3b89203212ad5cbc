"""A learned ranking: small boosted trees, stored as plain arrays and walked with numpy.

The model file holds thresholds and values, nothing of the data it was trained on. Each step down a tree moves
the score by a known amount because of one feature, so a score can be taken apart exactly into what each
feature gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Trees:
    features: tuple[str, ...]
    roots: Ints
    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    value: Floats
    """Of every node, inner ones too: what the score would be if the walk ended here."""
    depth: int

    @classmethod
    def load(cls, path: Path) -> Trees:
        with np.load(path, allow_pickle=False) as file:
            return cls(
                features=tuple(str(name) for name in file["features"]),
                roots=file["roots"].astype(np.int64),
                feature=file["feature"].astype(np.int64),
                threshold=file["threshold"].astype(np.float64),
                left=file["left"].astype(np.int64),
                right=file["right"].astype(np.int64),
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
            right=self.right.astype(np.int32),
            value=self.value.astype(np.float32),
            depth=np.array(self.depth),
        )

    def scores(self, table: Floats) -> Floats:
        rows = np.arange(len(table))[:, None]
        node = np.broadcast_to(self.roots, (len(table), len(self.roots)))
        for _ in range(self.depth):
            down = table[rows, self.feature[node]] <= self.threshold[node]
            node = np.where(down, self.left[node], self.right[node])
        total: Floats = self.value[node].sum(1)
        return total

    def contributions(self, table: Floats) -> Floats:
        """Per row and feature, what it added; a row sums to its score less what every row starts with."""
        rows = np.arange(len(table))[:, None]
        node = np.broadcast_to(self.roots, (len(table), len(self.roots)))
        given = np.zeros((len(table), len(self.features)))
        for _ in range(self.depth):
            asked = self.feature[node]
            down = table[rows, asked] <= self.threshold[node]
            reached = np.where(down, self.left[node], self.right[node])
            np.add.at(given, (np.broadcast_to(rows, node.shape), asked), self.value[reached] - self.value[node])
            node = reached
        return given

    def columns(self, names: Sequence[str]) -> list[int]:
        """Where this model's features stand in a table with these columns."""
        return [list(names).index(name) for name in self.features]
