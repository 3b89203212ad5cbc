"""Ranking of candidates: importance over time, boosts, the learned ranking, links and supersessions.

The best candidates are ordered by a learned ranking if its model file exists, otherwise by the graph score; reciprocal
rank fusion is available too. Each score is the sum of named parts.
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

from coterie.base.clock import to_micros
from coterie.memory.index.owner_index import Bools, Ints, OwnerIndex
from coterie.memory.records import LINK_WEIGHT
from coterie.memory.signals import Floats, RecallQuery, Signals
from coterie.memory.text import NameMatcher

DAY = 86_400 * 1_000_000
ARCHIVED_BELOW = 0.1
ARCHIVED_AFTER_DAYS = 30

RECENCY_BOOST = 0.05
_HALF_LIFE_DAYS = 30
SIGNIFICANCE_BOOST = 0.08
PIN_BOOST = 0.15
IMPORTANCE_BOOST = 0.05
PEOPLE_BOOST = 0.15
OTHER_CHARACTER_BOOST = -0.1
TIME_BOOST = 0.25

_LINK_SHARE = 0.2
_MAX_LINK_SOURCES = 10
_DEEP_RELATIONS = ("related_to", "part_of")
_MIN_STEP = 1e-4


def importance(weight: Floats, made: Ints, used: Ints, now: int, identity: Bools) -> Floats:
    """The importance of each memory now, which decays with age and disuse. It is computed from times, never stored.

    Times are in microseconds; `used` is when a memory was last recalled or made. Identity memories do not decay.
    """
    days = np.maximum(now - made, 0) / DAY
    idle = np.maximum(now - used, 0) / DAY
    factor = 1 - np.minimum(0.05 * days, 0.5)
    factor = factor * np.where(idle <= 7, 1.1, np.where(idle > 30, 0.9, 1.0))
    return np.where(identity, weight, np.minimum(weight * factor, 1.0))


def is_archived(importances: Floats, made: Ints, now: int, pinned: Bools) -> Bools:
    """Which memories characters no longer recall. They are not deleted: people can still search them."""
    old = (now - made) / DAY > ARCHIVED_AFTER_DAYS
    return (np.round(importances, 9) < ARCHIVED_BELOW) & old & ~pinned


def compute_boosts(
    index: OwnerIndex, query: RecallQuery, positions: Ints, importances: Floats, now: int
) -> dict[str, Floats]:
    """By source, what is added to the score of each candidate for recency, importance, pins, people and time."""
    when = index.columns["when"][positions]
    age = np.maximum(now - when, 0) / DAY
    boosts = {
        "recency": RECENCY_BOOST * 2.0 ** (-age / _HALF_LIFE_DAYS),
        "significance": SIGNIFICANCE_BOOST * (index.columns["significance"][positions] - 1.0)
        + IMPORTANCE_BOOST * importances,
        "pins": PIN_BOOST * (index.columns["pin"][positions] > 0),
        "people": _people_boosts(index, query, positions),
        "time": np.zeros(len(positions)),
    }
    if query.interval is not None:
        start, end = to_micros(query.interval.start), to_micros(query.interval.end)
        boosts["time"] = TIME_BOOST * ((when >= start) & (when < end))
    return {name: np.round(values, 6) for name, values in boosts.items()}


def _people_boosts(index: OwnerIndex, query: RecallQuery, positions: Ints) -> Floats:
    """A boost for memories about people named in the query, a penalty for what other characters said."""
    about = index.columns["about"][positions]
    mentioned = np.zeros(len(index.people.values))
    for code in np.unique(about).tolist():
        if _name_matcher(index.people.values[code] or "[]").find_in(query.text):
            mentioned[code] = PEOPLE_BOOST
    by_speaker = np.array(
        [
            OTHER_CHARACTER_BOOST if (speaker or "").startswith("bot:") and speaker != index.owner else 0.0
            for speaker in index.speakers.values
        ]
    )
    total: Floats = mentioned[about] + by_speaker[index.columns["speaker"][positions]]
    return total


@functools.lru_cache(maxsize=4_096)
def _name_matcher(people: str) -> NameMatcher:
    return NameMatcher(json.loads(people))


@dataclass(frozen=True)
class RankingTrees:
    """Gradient-boosted trees, stored as arrays of thresholds and values and evaluated with numpy.

    Each step down a tree changes the score because of one feature, so a score splits exactly by feature.
    """

    features: tuple[str, ...]
    roots: Ints
    feature: Ints
    threshold: Floats
    """Infinite at a leaf."""
    left: Ints
    """The next node if the feature is at most the threshold; otherwise it is the one after. A leaf leads to itself."""
    value: Floats
    """The score at each node, inner nodes included."""
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
        """For each level, the node of every row in every tree."""
        node, offset = self._start(table)
        flat = np.ascontiguousarray(table).ravel()
        for _ in range(self.depth):
            values = flat.take(self.feature.take(node) + offset)
            node = self.left.take(node) + (values > self.threshold.take(node))
            yield node

    def contributions(self, table: Floats) -> Floats:
        """What each feature added to each row's score; a row's sum is its score minus the score at the roots."""
        node, offset = self._start(table)
        contributions = np.zeros(len(table) * len(self.features))
        for reached in self._walk(table):
            np.add.at(contributions, self.feature.take(node) + offset, self.value.take(reached) - self.value.take(node))
            node = reached
        return contributions.reshape(len(table), len(self.features))


FusionMode = Literal["learned", "graph", "rrf"]

MAX_RANKED = 100
_RRF = 60
_MIN_SPREAD = {"learned": 4.0, "graph": 2.0, "rrf": 0.03}
"""The smallest range that scores are scaled to, so that nearly equal candidates are ordered by the boosts."""
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
    """The ranked candidates, with scores from 0 to 1 and their parts."""

    positions: Ints
    score: Floats
    explain: Explain
    """The ranking's parts by source for some candidates; computed only for those that are returned."""
    parts: dict[str, Floats] = field(default_factory=dict)
    """What was added since, for each candidate; together with `explain` the parts sum to the score."""
    ranked_count: int = field(init=False)
    """How many candidates were ranked; those after them were added by a link or a supersession."""

    def __post_init__(self) -> None:
        self.ranked_count = len(self.positions)


def single_score_ranking(positions: Ints, score: Floats, name: str) -> Ranked:
    return Ranked(positions, score, lambda chosen: {name: score[chosen]})


class Ranking:
    """Orders candidates with the trees for signals with or without an embedder."""

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
        contributions = trees.contributions(table[chosen])
        parts = {name: np.zeros(len(chosen)) for name in SOURCES if name in signals.parts}
        shared = np.zeros(len(chosen))
        for column, feature in enumerate(trees.features):
            source = _SOURCE_OF.get(feature)
            if source is None:
                shared += contributions[:, column]
            else:
                parts[source] += contributions[:, column]
        # Features that combine several sources are split in proportion to those sources.
        sizes = {name: np.abs(values[best[chosen]]) for name, values in signals.parts.items()}
        total = np.maximum(sum(sizes.values(), np.zeros(len(chosen))), 1e-9)
        for name, size in sizes.items():
            parts[name] += shared * size / total
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


def spread_over_links(index: OwnerIndex, ranked: Ranked, allowed: Bools, visible: set[str]) -> None:
    """Add a share of the best candidates' scores to the memories they are linked to.

    Links in the `visible` streams count; `related_to` and `part_of` are followed to depth two.
    """
    if not index.links or not len(ranked.positions):
        return
    positions = index.positions()
    shares: dict[int, float] = {}
    order = np.lexsort((index.doc[ranked.positions], -np.round(ranked.score, 6)))[:_MAX_LINK_SOURCES]
    for row in order.tolist():
        source, score = index.ids[int(ranked.positions[row])], float(ranked.score[row])
        queue = [(source, 1.0, 1)]
        seen = {source}
        while queue:
            memory_id, share, depth = queue.pop(0)
            for stream, relation, other in index.links.get(memory_id, ()):
                if stream not in visible or other in seen or (depth == 2 and relation not in _DEEP_RELATIONS):
                    continue
                seen.add(other)
                passed = share * LINK_WEIGHT[relation]
                for target in positions.get(other, ()):
                    if allowed[target]:
                        shares[target] = max(shares.get(target, 0.0), _LINK_SHARE * passed * max(score, 0.0) / depth)
                if depth == 1 and relation in _DEEP_RELATIONS:
                    queue.append((other, passed, 2))
    _add_candidates(ranked, sorted(shares))
    part = np.array([shares.get(int(position), 0.0) for position in ranked.positions])
    ranked.parts["links"] = np.round(part, 6)
    ranked.score = ranked.score + ranked.parts["links"]


def apply_supersessions(index: OwnerIndex, ranked: Ranked, allowed: Bools, visible: set[str]) -> set[int]:
    """Raise the score of each superseding memory above what it superseded. Returns the superseded positions."""
    if not index.superseded:
        return set()
    positions = index.positions()
    latest: dict[int, int] = {}
    for position in ranked.positions.tolist():
        if (newest := _latest_version(index, position, positions, allowed, visible)) is not None:
            latest[position] = newest
    _add_candidates(ranked, sorted(set(latest.values())))
    row_of = {int(position): row for row, position in enumerate(ranked.positions)}
    raised = np.zeros(len(ranked.positions))
    for old, newest in latest.items():
        target, source = row_of[newest], row_of[old]
        missing = ranked.score[source] + _MIN_STEP - (ranked.score[target] + raised[target])
        raised[target] += max(missing, 0.0)
    ranked.parts["updates"] = np.round(raised, 6)
    ranked.score = ranked.score + ranked.parts["updates"]
    return set(latest)


def _latest_version(
    index: OwnerIndex, position: int, positions: dict[str, list[int]], allowed: Bools, visible: set[str]
) -> int | None:
    """Follow supersessions in the visible streams to the last allowed memory; None if nothing supersedes it."""
    memory_id, latest, seen = index.ids[position], None, {index.ids[position]}
    while True:
        later = [by for stream, by, _ in index.superseded.get(memory_id, ()) if stream in visible]
        if not later or later[-1] in seen:
            return latest
        memory_id = later[-1]
        seen.add(memory_id)
        usable = [version for version in positions.get(memory_id, ()) if allowed[version]]
        if usable:
            latest = usable[0]


def _add_candidates(ranked: Ranked, positions: list[int]) -> None:
    """Add memories that are not candidates yet, with a score of 0."""
    candidates = set(ranked.positions.tolist())
    added = [position for position in positions if position not in candidates]
    if added:
        ranked.positions = np.concatenate([ranked.positions, np.array(added, np.int64)])
        ranked.score = np.concatenate([ranked.score, np.zeros(len(added))])
        ranked.parts = {name: np.concatenate([part, np.zeros(len(added))]) for name, part in ranked.parts.items()}
