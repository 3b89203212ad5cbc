"""From signals to an order, and from an order back to reasons.

The order of the best candidates is decided by a learned ranking when its model is there, by the graph score
otherwise; plain reciprocal ranks can be asked for. Whatever decides, each score is the sum of named parts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coterie.memory.signals import Signals
from coterie.memory.trees import RankingTrees

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FusionMode = Literal["learned", "graph", "rrf"]

MAX_RANKED = 100
_RRF = 60
_MIN_SPREAD = {"learned": 4.0, "graph": 2.0, "rrf": 0.03}
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


Explain = Callable[[Ints], dict[str, Floats]]


@dataclass
class Ranked:
    """The candidates worth ordering, with scores from 0 to 1 and what each score is made of."""

    positions: Ints
    score: Floats
    explain: Explain
    """For some of the candidates, by position: what their fit gave by source. Worked out only for what is shown."""
    parts: dict[str, Floats] = field(default_factory=dict)
    """What was added to the fit since, for every candidate. With what `explain` says it sums to the score."""
    ranked_count: int = field(init=False)
    """How many candidates were ranked by fit; those after them joined because of a link or an update."""

    def __post_init__(self) -> None:
        self.ranked_count = len(self.positions)


def single_score_ranking(at: Ints, score: Floats, name: str) -> Ranked:
    return Ranked(at, score, lambda chosen: {name: score[chosen]})


class Ranking:
    def __init__(self, plain: RankingTrees | None = None, with_embedder: RankingTrees | None = None) -> None:
        self._plain = plain
        self._with_embedder = with_embedder

    @classmethod
    @functools.cache
    def bundled(cls) -> Ranking:
        plain, with_embedder = _MODELS / "plain.npz", _MODELS / "embedder.npz"
        return cls(
            RankingTrees.load(plain) if plain.exists() else None,
            RankingTrees.load(with_embedder) if with_embedder.exists() else None,
        )

    def rank(self, signals: Signals, fuse: FusionMode = "learned") -> Ranked:
        if not len(signals.positions):
            return single_score_ranking(signals.positions, np.zeros(0), "start")
        best = np.sort(np.lexsort((signals.positions, -signals.graph))[:MAX_RANKED])
        trees = self._with_embedder if "embedder" in signals.table else self._plain
        if fuse == "learned" and trees is None:
            fuse = "graph"
        if fuse == "rrf":
            raw, explain = _reciprocal_ranks(signals, best)
        elif fuse == "learned" and trees is not None:
            raw, explain = _learned_scores(trees, signals, best)
        else:
            raw = signals.graph[best]

            def explain(chosen: Ints) -> dict[str, Floats]:
                return {name: values[best[chosen]] for name, values in signals.parts.items()}

        low, high = float(raw.min()), float(raw.max())
        scale = 1 / max(high - low, _MIN_SPREAD[fuse])
        score = np.round((raw - low) * scale, 6)

        def explain_scaled(chosen: Ints) -> dict[str, Floats]:
            parts = {name: values * scale for name, values in explain(chosen).items()}
            parts["start"] = score[chosen] - sum(parts.values(), np.zeros(len(chosen)))
            return parts

        return Ranked(signals.positions[best], score, explain_scaled)


def _learned_scores(trees: RankingTrees, signals: Signals, best: Ints) -> tuple[Floats, Explain]:
    table = signals.matrix(trees.features, best)

    def explain(chosen: Ints) -> dict[str, Floats]:
        given = trees.contributions(table[chosen])
        parts = {name: np.zeros(len(chosen)) for name in SOURCES if name in signals.parts}
        shared = np.zeros(len(chosen))
        for column, feature in enumerate(trees.features):
            source = _SOURCE_OF.get(feature)
            if source is None:
                shared += given[:, column]
            else:
                parts[source] += given[:, column]
        # What sums and ranks of several sources gave is split as those sources went into the sum.
        sizes = {name: np.abs(values[best[chosen]]) for name, values in signals.parts.items()}
        whole = np.maximum(sum(sizes.values(), np.zeros(len(chosen))), 1e-9)
        for name, size in sizes.items():
            parts[name] += shared * size / whole
        return parts

    return trees.scores(table), explain


def _reciprocal_ranks(signals: Signals, best: Ints) -> tuple[Floats, Explain]:
    parts: dict[str, Floats] = {}
    for name in ("words", "vectors", "maxsim", "embedder"):
        if name in signals.table:
            values = signals.matrix((name,), best)[:, 0]
            better = len(values) - np.searchsorted(np.sort(values), values, side="right")
            parts[name] = np.where(values > 0, 1 / (_RRF + 1 + better), 0.0)
    total = np.round(sum(parts.values(), np.zeros(len(best))), 9)
    return total, lambda chosen: {name: values[chosen] for name, values in parts.items()}
