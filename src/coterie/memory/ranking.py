"""From signals to an order, and from an order back to reasons.

The order of the best candidates is decided by a learned ranking when its model is there, by the graph score
otherwise; plain reciprocal ranks can be asked for. Whatever decides, each score is the sum of named parts.
"""

from __future__ import annotations

import functools
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coterie.base.clock import to_micros
from coterie.memory.index.owner_index import OwnerIndex
from coterie.memory.records import LINK_WEIGHT
from coterie.memory.signals import RecallQuery, Signals
from coterie.memory.text import NameMatcher

# Forgetting, computed and never stored: how much a memory weighs follows from its times alone.
#
# Run once or a thousand times, the result is the same, and turning the clock back turns it back.


DAY = 86_400 * 1_000_000
ARCHIVED_BELOW = 0.1
ARCHIVED_AFTER_DAYS = 30


def importance(
    weight: Floats, made: NDArray[np.int64], used: NDArray[np.int64], now: int, identity: NDArray[np.bool_]
) -> Floats:
    """What each memory weighs now. Times in microseconds; `used` is when it was last recalled or made."""
    days = np.maximum(now - made, 0) / DAY
    idle = np.maximum(now - used, 0) / DAY
    factor = 1 - np.minimum(0.05 * days, 0.5)
    factor = factor * np.where(idle <= 7, 1.1, np.where(idle > 30, 0.9, 1.0))
    return np.where(identity, weight, np.minimum(weight * factor, 1.0))


def is_archived(importances: Floats, made: NDArray[np.int64], now: int, pinned: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Out of a character's reach, though never deleted: the person can still search it."""
    old = (now - made) / DAY > ARCHIVED_AFTER_DAYS
    return (np.round(importances, 9) < ARCHIVED_BELOW) & old & ~pinned


# What lifts a memory beyond how well it fits: freshness, weight, pins, people and time named in the question.


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RECENCY_BOOST = 0.05
_HALF_LIFE_DAYS = 30
SIGNIFICANCE_BOOST = 0.08
PIN_BOOST = 0.15
IMPORTANCE_BOOST = 0.05
PEOPLE_BOOST = 0.15
OTHER_CHARACTER_BOOST = -0.1
TIME_BOOST = 0.25


def compute_boosts(
    index: OwnerIndex, question: RecallQuery, positions: Ints, weight: Floats, now: int
) -> dict[str, Floats]:
    """Per source, what is added to the score of each candidate."""
    when = index.columns["when"][positions]
    age = np.maximum(now - when, 0) / DAY
    found = {
        "recency": RECENCY_BOOST * 2.0 ** (-age / _HALF_LIFE_DAYS),
        "significance": SIGNIFICANCE_BOOST * (index.columns["significance"][positions] - 1.0)
        + IMPORTANCE_BOOST * weight,
        "pins": PIN_BOOST * (index.columns["pin"][positions] > 0),
        "people": _people_boosts(index, question, positions),
        "time": np.zeros(len(positions)),
    }
    if question.interval is not None:
        start, end = to_micros(question.interval.start), to_micros(question.interval.end)
        found["time"] = TIME_BOOST * ((when >= start) & (when < end))
    return {name: np.round(values, 6) for name, values in found.items()}


def _people_boosts(shelf: OwnerIndex, question: RecallQuery, at: Ints) -> Floats:
    """Up for whom the question mentions, down for what another bot said."""
    about = shelf.columns["about"][at]
    mentioned = np.zeros(len(shelf.people.values))
    for code in np.unique(about).tolist():
        if _name_matcher(shelf.people.values[code] or "[]").find_in(question.text):
            mentioned[code] = PEOPLE_BOOST
    bots = np.array(
        [OTHER_CHARACTER_BOOST if (speaker or "").startswith("bot:") else 0.0 for speaker in shelf.speakers.values]
    )
    bots[[code for code, speaker in enumerate(shelf.speakers.values) if speaker == shelf.owner]] = 0.0
    total: Floats = mentioned[about] + bots[shelf.columns["speaker"][at]]
    return total


@functools.lru_cache(maxsize=4_096)
def _name_matcher(people: str) -> NameMatcher:
    return NameMatcher(json.loads(people))


# A learned ranking: small boosted trees, stored as plain arrays and walked with numpy.
#
# The model file holds thresholds and values, nothing of the data it was trained on. Each step down a tree moves
# the score by a known amount because of one feature, so a score can be taken apart exactly into what each
# feature gave.


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


# How memories hold on to each other while they are ranked: links carry scores, updates take them over.


Bools = NDArray[np.bool_]

_SHARE = 0.2
_SEEDS = 10
_DEEP = ("related_to", "part_of")
_STEP = 1e-4


def spread_over_links(shelf: OwnerIndex, ranked: Ranked, open_to: Bools, visible: set[str]) -> None:
    """Give what the best are linked to a share of their score; related_to and part_of to depth two."""
    if not shelf.links or not len(ranked.positions):
        return
    positions = shelf.positions()
    given: dict[int, float] = {}
    order = np.lexsort((shelf.doc[ranked.positions], -np.round(ranked.score, 6)))[:_SEEDS]
    for index in order.tolist():
        at, score = int(ranked.positions[index]), float(ranked.score[index])
        reached = [(shelf.ids[at], 1.0, 1)]
        seen = {shelf.ids[at]}
        while reached:
            memory_id, share, depth = reached.pop(0)
            for stream, relation, other in shelf.links.get(memory_id, ()):
                if stream not in visible or other in seen or (depth == 2 and relation not in _DEEP):
                    continue
                seen.add(other)
                passed = share * LINK_WEIGHT[relation]
                for target in positions.get(other, ()):
                    if open_to[target]:
                        given[target] = max(given.get(target, 0.0), _SHARE * passed * max(score, 0.0) / depth)
                if depth == 1 and relation in _DEEP:
                    reached.append((other, passed, 2))
    _add_candidates(ranked, sorted(given))
    part = np.array([given.get(int(at), 0.0) for at in ranked.positions])
    ranked.parts["links"] = np.round(part, 6)
    ranked.score = ranked.score + ranked.parts["links"]


def apply_supersessions(shelf: OwnerIndex, ranked: Ranked, open_to: Bools, visible: set[str]) -> dict[int, int]:
    """Let what superseded a candidate outrank it. Returns, per superseded memory, the one that holds now."""
    over: dict[int, int] = {}
    if not shelf.superseded:
        return over
    positions = shelf.positions()
    for at in ranked.positions.tolist():
        if (now := _latest_version(shelf, at, positions, open_to, visible)) is not None:
            over[at] = now
    _add_candidates(ranked, sorted(set(over.values())))
    place = {int(at): index for index, at in enumerate(ranked.positions)}
    lifted = np.zeros(len(ranked.positions))
    for old, now in over.items():
        target, source = place[now], place[old]
        short = ranked.score[source] + _STEP - (ranked.score[target] + lifted[target])
        lifted[target] += max(short, 0.0)
    ranked.parts["updates"] = np.round(lifted, 6)
    ranked.score = ranked.score + ranked.parts["updates"]
    return over


def _latest_version(
    shelf: OwnerIndex, at: int, positions: dict[str, list[int]], open_to: Bools, visible: set[str]
) -> int | None:
    """Follow supersessions that this viewpoint knows of, to the memory that stands at their end."""
    memory_id, found, seen = shelf.ids[at], None, {shelf.ids[at]}
    while True:
        later = [by for stream, by, _ in shelf.superseded.get(memory_id, ()) if stream in visible]
        if not later or later[-1] in seen:
            return found
        memory_id = later[-1]
        seen.add(memory_id)
        here = [index for index in positions.get(memory_id, ()) if open_to[index]]
        if here:
            found = here[0]


def _add_candidates(ranked: Ranked, wanted: list[int]) -> None:
    """Make memories candidates that were none, with a score of nothing."""
    known = set(ranked.positions.tolist())
    fresh = [at for at in wanted if at not in known]
    if fresh:
        ranked.positions = np.concatenate([ranked.positions, np.array(fresh, np.int64)])
        ranked.score = np.concatenate([ranked.score, np.zeros(len(fresh))])
        ranked.parts = {name: np.concatenate([part, np.zeros(len(fresh))]) for name, part in ranked.parts.items()}
