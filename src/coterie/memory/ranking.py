"""From signals to an order, and from an order back to reasons.

The order of the best candidates is decided by a learned ranking when its model is there, by the graph score
otherwise; plain reciprocal ranks can be asked for. Whatever decides, each score is the sum of named parts.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coterie.memory.signals import Signals
from coterie.memory.trees import Trees

Floats = NDArray[np.float64]
Fuse = Literal["learned", "graph", "rrf"]

CONSIDERED = 150
_RRF = 60
_USUAL_SPREAD = {"learned": 4.0, "graph": 2.0, "rrf": 0.03}
"""Between best and worst of many. Among a few that are about as good, differences stay small beside the boosts."""
_MODELS = Path(__file__).parent / "models"

SOURCES = ("words", "vectors", "maxsim", "embedder", "neighbours", "session", "speaker")
_SOURCE_OF = {
    "words": "words",
    "words_rank": "words",
    "covered": "words",
    "rarest_covered": "words",
    "vectors": "vectors",
    "vectors_rank": "vectors",
    "cosine": "vectors",
    "kin": "vectors",
    "maxsim": "maxsim",
    "maxsim_rank": "maxsim",
    "maxsim_share": "maxsim",
    "length": "maxsim",
    "embedder": "embedder",
    "embedder_rank": "embedder",
    "previous": "neighbours",
    "previous2": "neighbours",
    "next": "neighbours",
    "next2": "neighbours",
    "window_covered": "neighbours",
    "answers": "neighbours",
    "session_best": "session",
    "session_mean3": "session",
    "of_session_best": "session",
    "session_covered": "session",
    "asks": "session",
    "speaker": "speaker",
}


@dataclass
class Ranked:
    """The candidates worth ordering, with scores from 0 to 1 and what each score is made of."""

    at: NDArray[np.int64]
    score: Floats
    parts: dict[str, Floats]
    """Sums to the score, memory by memory."""


class Ranking:
    def __init__(self, plain: Trees | None = None, with_embedder: Trees | None = None) -> None:
        self._plain = plain
        self._with_embedder = with_embedder

    @classmethod
    @functools.cache
    def shipped(cls) -> Ranking:
        plain, with_embedder = _MODELS / "plain.npz", _MODELS / "embedder.npz"
        return cls(
            Trees.load(plain) if plain.exists() else None,
            Trees.load(with_embedder) if with_embedder.exists() else None,
        )

    def order(self, signals: Signals, fuse: Fuse = "learned") -> Ranked:
        if not len(signals.at):
            return Ranked(signals.at, np.zeros(0), {})
        best = np.sort(np.lexsort((signals.at, -signals.graph))[:CONSIDERED])
        trees = self._with_embedder if "embedder" in signals.table else self._plain
        if fuse == "rrf":
            raw, parts = _reciprocal(signals, best)
        elif fuse == "learned" and trees is not None:
            raw, parts = _learned(trees, signals, best)
        else:
            fuse, raw = "graph", signals.graph[best]
            parts = {name: values[best] for name, values in signals.parts.items()}
        low, high = float(raw.min()), float(raw.max())
        scale = 1 / max(high - low, _USUAL_SPREAD[fuse])
        score = np.round((raw - low) * scale, 6)
        scaled = {name: values * scale for name, values in parts.items()}
        scaled["start"] = score - sum(scaled.values(), np.zeros(len(score)))
        return Ranked(signals.at[best], score, scaled)


def _learned(trees: Trees, signals: Signals, best: NDArray[np.int64]) -> tuple[Floats, dict[str, Floats]]:
    table = signals.matrix(trees.features)[best]
    given = trees.contributions(table)
    parts = {name: np.zeros(len(best)) for name in SOURCES}
    shared = np.zeros(len(best))
    for column, feature in enumerate(trees.features):
        source = _SOURCE_OF.get(feature)
        if source is None:
            shared += given[:, column]
        else:
            parts[source] += given[:, column]
    # What sums and ranks of several sources gave is split as those sources went into the sum.
    sizes = {name: np.abs(values[best]) for name, values in signals.parts.items()}
    whole = np.maximum(sum(sizes.values(), np.zeros(len(best))), 1e-9)
    for name, size in sizes.items():
        parts[name] += shared * size / whole
    return trees.scores(table), parts


def _reciprocal(signals: Signals, best: NDArray[np.int64]) -> tuple[Floats, dict[str, Floats]]:
    parts: dict[str, Floats] = {}
    for name in ("words", "vectors", "maxsim", "embedder"):
        if name in signals.table:
            values = signals.table[name][best]
            better = len(values) - np.searchsorted(np.sort(values), values, side="right")
            parts[name] = np.where(values > 0, 1 / (_RRF + 1 + better), 0.0)
    return np.round(sum(parts.values(), np.zeros(len(best))), 9), parts
