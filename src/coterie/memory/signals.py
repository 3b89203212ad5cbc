"""What speaks for each memory, as numbers that mean the same in any collection.

Candidates are the best by words and by vectors, with the turns next to them. Every signal is scaled within
the candidates or is a share of what was possible, so that weights learned on one set of talks hold on another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from coterie.memory.index.embedders import GRID, Ids, StaticEmbedder, static_embedder
from coterie.memory.index.owner_index import SIGN_SEARCH_ABOVE, OwnerIndex
from coterie.memory.text import Interval, NameMatcher, find_interval, fts_match_any, keywords

# A question, taken apart once: its words for full text, its pieces and vector for meaning, whom it names, and when.


_MAX_WORDS = 16
_MAX_MATCHES = 400
_MIN_WORDS = 3
_MAX_PIECES = 16
"""Of a long text only the rarest words count: the others are in half of all memories, say little, and cost the most."""

_ENDINGS = ("", "s", "es", "ed", "ing", "e", "er", "ly")
_ENDING = re.compile(r"(?<=\w{3})(?:ing|ed|es|er|ly|s|e)$")

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class RecallQuery:
    text: str
    text_without_names: str
    """Without the names of speakers: what is compared by meaning."""
    fts_match: str | None
    tokens: Ids
    vector: NDArray[np.float32]
    named_speakers: frozenset[str]
    interval: Interval | None

    @classmethod
    def parse(cls, text: str, names: NameMatcher, now: datetime, counts: Counts) -> RecallQuery:
        """`counts` tells how often each piece is in the memories that are asked."""
        offline = static_embedder()
        bare = names.remove_from(text)
        tokens = offline.tokens(bare)
        return cls(
            text=text,
            text_without_names=bare,
            fts_match=fts_match_any(_rarest_keywords(text, offline, counts)),
            tokens=_rarest_pieces(tokens, offline),
            vector=offline.embed_tokens([tokens])[0],
            named_speakers=frozenset(names.find_in(text)),
            interval=find_interval(text, now),
        )


def _rarest_pieces(tokens: Ids, offline: StaticEmbedder) -> Ids:
    telling = [token for token in dict.fromkeys(tokens.tolist()) if offline.rarity[token] > 0]
    if len(telling) > _MAX_PIECES:
        kept = set(sorted(telling, key=lambda token: (-offline.rarity[token], token))[:_MAX_PIECES])
        telling = [token for token in telling if token in kept]
    return np.array(telling, np.uint16)


def _rarest_keywords(text: str, offline: StaticEmbedder, counts: Counts) -> str:
    """The rarest words, as many as can be looked up quickly in these memories."""
    found = {word: _estimate_matches(word, offline, counts) for word in keywords(text)}
    if len(found) <= _MAX_WORDS and sum(found.values()) <= _MAX_MATCHES:
        return text
    chosen: list[str] = []
    total = 0
    for word in sorted(found, key=lambda word: (found[word], word))[:_MAX_WORDS]:
        total += found[word]
        if total > _MAX_MATCHES and len(chosen) >= _MIN_WORDS:
            break
        chosen.append(word)
    return " ".join(chosen)


def _estimate_matches(word: str, offline: StaticEmbedder, counts: Counts) -> int:
    """In how many memories a word will be found; full text also finds its other forms, and in capitals."""
    exact = min(counts[offline.tokens(word)].tolist(), default=0)
    stem = _ENDING.sub("", word)
    forms = [f"{stem}{ending}" for ending in _ENDINGS]
    written = {*forms, *(form.capitalize() for form in forms), *(form.upper() for form in forms)}
    pieces = {offline.wordpieces.vocabulary.get(f"▁{form}") for form in written}
    return max(exact, sum(int(counts[piece]) for piece in pieces if piece is not None))


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Vector = NDArray[np.float32]

POOL_SIZE = 100
_EXACT_MATCH = 0.85
_SIGN_POOL = 1_000
_DIGITS = 5
_SPREAD = 0.2

PREVIOUS_WEIGHT, NEXT_WEIGHT, SESSION_WEIGHT, QUESTION_PENALTY, SPEAKER_WEIGHT = 0.25, 0.12, 0.4, 0.4, 0.4
"""The weights of the graph: how much of a neighbour's, the session's best and the speaker's match counts."""


@dataclass
class Signals:
    positions: Ints
    """Which memories of the shelf are candidates."""
    table: dict[str, Floats] = field(default_factory=dict)
    """By name, before rounding: the last digits may differ between machines."""
    graph: Floats = field(default_factory=lambda: np.zeros(0))
    parts: dict[str, Floats] = field(default_factory=dict)
    """The graph score taken apart by source."""

    def matrix(self, names: tuple[str, ...], chosen: Ints) -> Floats:
        """A row per chosen candidate, a column per signal."""
        table: Floats = np.stack([self.table[name][chosen] for name in names], axis=1)
        return table.round(_DIGITS)


def compute_signals(
    index: OwnerIndex, allowed: Bools, question: RecallQuery, words: Floats, embedder_cosines: Floats | None
) -> Signals:
    """`words` is BM25 per memory of the shelf (0 where no word is found); `extra`, another embedder's cosine."""
    cosine, known = cosines(index, question.vector, allowed)
    pools = [_best(words, (words > 0) & allowed), _best(cosine, known)]
    if embedder_cosines is not None:
        pools.append(_best(embedder_cosines, allowed))
    pool = np.unique(np.concatenate(pools))
    at = _with_neighbours(index, allowed, pool)
    if not len(at):
        return Signals(at)
    if index.signs.size:
        cosine[at] = _exact_cosines(index, question.vector, at)
    found = Signals(at)
    near = _piece_similarity(index, question, at)
    _fill_table(
        found, index, question, words[at], cosine[at], near, None if embedder_cosines is None else embedder_cosines[at]
    )
    return found


def cosines(index: OwnerIndex, vector: Vector, allowed: Bools) -> tuple[Floats, Bools]:
    """The cosine of each memory with a vector, and for which it is known: of very many, only for the nearest."""
    if len(index) <= SIGN_SEARCH_ABOVE:
        return (index.vectors @ vector).astype(np.float64) / GRID**2, allowed
    asked = np.packbits(vector > 0).view(np.uint64)
    apart = np.bitwise_count(index.signs ^ asked).sum(1, dtype=np.int64)
    apart[~allowed] = 1 << 20
    close = np.argpartition(apart, min(_SIGN_POOL, len(apart) - 1))[:_SIGN_POOL]
    # Ties at the edge of the pool are cut by position, so that the pool does not depend on the partition.
    edge = int(apart[close].max())
    close = np.flatnonzero(apart <= edge)[: 2 * _SIGN_POOL]
    close = close[allowed[close]]
    cosine = np.zeros(len(index))
    cosine[close] = _exact_cosines(index, vector, close)
    known = np.zeros(len(index), bool)
    known[close] = True
    return cosine, known


def _exact_cosines(shelf: OwnerIndex, vector: Vector, at: Ints) -> Floats:
    return (shelf.vectors[at].astype(np.float32) @ vector).astype(np.float64) / GRID**2


def _best(scores: Floats, among: Bools) -> Ints:
    at = np.flatnonzero(among)
    if len(at) > POOL_SIZE:
        edge = np.partition(scores[at], len(at) - POOL_SIZE)[len(at) - POOL_SIZE]
        at = at[scores[at] >= edge][: 2 * POOL_SIZE]
    return at


def _with_neighbours(shelf: OwnerIndex, allowed: Bools, pool: Ints) -> Ints:
    sides = np.concatenate([shelf.previous[pool], shelf.following[pool]])
    sides = sides[sides >= 0]
    return np.unique(np.concatenate([pool, sides[allowed[sides]]]))


def _piece_similarity(shelf: OwnerIndex, question: RecallQuery, at: Ints) -> Floats:
    """For each piece of the question and each candidate, the cosine of its nearest piece."""
    starts, lengths = shelf.starts[at], shelf.starts[at + 1] - shelf.starts[at]
    asked = question.tokens
    near = np.zeros((len(asked), len(at)))
    filled = lengths > 0
    if not len(asked) or not filled.any():
        return near
    starts, lengths = starts[filled], lengths[filled]
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    tokens = shelf.tokens[np.repeat(starts - offsets, lengths) + np.arange(lengths.sum())]
    seen = np.zeros(1 << 16, bool)
    seen[tokens] = True
    distinct = np.flatnonzero(seen)
    place = np.zeros(1 << 16, np.int64)
    place[distinct] = np.arange(len(distinct))
    offline = static_embedder()
    # One row per piece that a candidate has, so that looking them up moves whole rows.
    alike = offline.unit_rows(distinct) @ offline.unit_rows(asked).T / np.float32(GRID**2)
    near[:, filled] = np.maximum.reduceat(alike.take(place.take(tokens), axis=0), offsets, axis=0).T
    return near


def _fill_table(
    found: Signals,
    shelf: OwnerIndex,
    question: RecallQuery,
    words: Floats,
    cosine: Floats,
    near: Floats,
    extra: Floats | None,
) -> None:
    at, table = found.positions, found.table
    weight = _weights(shelf, question)
    whole = max(float(weight.sum()), 1e-9)
    maxsim = weight @ near
    scaled = {
        "words": words / max(float(words.max()), 1e-9),
        "vectors": _min_max(cosine, _SPREAD),
        "maxsim": _min_max(maxsim, _SPREAD * whole),
    }
    if extra is not None:
        scaled["embedder"] = _min_max(extra, _SPREAD)
    each = 3 / len(scaled)  # with a fourth source the sum keeps its size
    base = sum(scaled.values(), np.zeros(len(at))) * each

    before, after = _neighbour_positions(shelf, at)
    p1, n1 = _take_neighbour(base, before), _take_neighbour(base, after)
    p2, n2 = _take_neighbour(p1, before), _take_neighbour(n1, after)
    near_score = base + PREVIOUS_WEIGHT * p1 + NEXT_WEIGHT * n1
    session = shelf.session[at]
    best, mean3 = _session_best(near_score, session)
    named = np.array([shelf.speakers.lookup(name) for name in question.named_speakers], np.int64)
    spoke = np.isin(shelf.columns["speaker"][at], named).astype(np.float64)
    asks = shelf.columns["question"][at].astype(np.float64)
    graph = near_score + SESSION_WEIGHT * best - QUESTION_PENALTY * asks + SPEAKER_WEIGHT * spoke
    found.graph = np.round(graph, _DIGITS)
    found.parts = {name: value * each for name, value in scaled.items()} | {
        "neighbours": PREVIOUS_WEIGHT * p1 + NEXT_WEIGHT * n1,
        "session": SESSION_WEIGHT * best - QUESTION_PENALTY * asks,
        "speaker": SPEAKER_WEIGHT * spoke,
    }

    hits = (near > _EXACT_MATCH).astype(np.float64)
    window = np.maximum.reduce([hits, _take_neighbour(hits, before), _take_neighbour(hits, after)])
    top = float(weight.max()) if len(weight) else 1.0
    leaders = np.lexsort((at, -found.graph))[:3]
    kin = (shelf.vectors[at].astype(np.float32) @ shelf.vectors[at[leaders]].astype(np.float32).T) / GRID**2
    kin[leaders, np.arange(len(leaders))] = 0
    peak = max(float(near_score.max()), 1e-9)
    table["words"] = scaled["words"]
    table["words_rank"] = _rank(words)
    table["vectors"] = scaled["vectors"]
    table["vectors_rank"] = _rank(cosine)
    table["cosine"] = cosine
    table["maxsim"] = scaled["maxsim"]
    table["maxsim_rank"] = _rank(maxsim)
    table["maxsim_share"] = maxsim / whole
    table["covered"] = weight @ hits / whole
    table["rarest_covered"] = (weight[:, None] * hits).max(0) / max(top, 1e-9) if len(weight) else np.zeros(len(at))
    table["window_covered"] = weight @ window / whole
    table["session_covered"] = weight @ _session_max(hits, session) / whole
    table["base"] = base
    table["previous"], table["previous2"], table["next"], table["next2"] = p1, p2, n1, n2
    table["near"] = near_score
    table["session_best"], table["session_mean3"] = best / peak, mean3 / peak
    table["of_session_best"] = near_score / np.maximum(best, 1e-9)
    table["speaker"] = spoke
    table["asks"] = asks
    table["answers"] = _take_neighbour(asks, before)
    table["length"] = np.log1p(shelf.starts[at + 1] - shelf.starts[at])
    table["kin"] = kin.max(1).astype(np.float64)
    table["graph"] = _min_max(graph, 1.0)
    table["graph_rank"] = _rank(found.graph)
    if extra is not None:
        table["embedder"] = scaled["embedder"]
        table["embedder_rank"] = _rank(extra)


def _weights(shelf: OwnerIndex, question: RecallQuery) -> Floats:
    """How much each piece of the question tells in this collection."""
    counts = shelf.piece_counts[question.tokens]
    share = (len(shelf) + 1) / (np.minimum(counts, len(shelf)) + 0.5)
    told: Floats = np.log(share.astype(np.float64))
    return np.round(told, _DIGITS)


def _min_max(values: Floats, least: float) -> Floats:
    """From 0 to 1 over the candidates; if they are all about the same, they stay about the same."""
    low, high = float(values.min()), float(values.max())
    return (values - low) / max(high - low, least)


def _rank(values: Floats) -> Floats:
    """1 for the best, falling by half at the tenth; equal values share the better place."""
    rounded = np.round(values, _DIGITS)
    better = len(values) - np.searchsorted(np.sort(rounded), rounded, side="right")
    return 1 / (1 + better / 10)


def _neighbour_positions(shelf: OwnerIndex, at: Ints) -> tuple[Ints, Ints]:
    """Where among the candidates each one's neighbours stand; -1 if they are not candidates."""
    position = np.full(len(shelf) + 1, -1)
    position[at] = np.arange(len(at))
    position[len(shelf)] = -1
    return position[shelf.previous[at]], position[shelf.following[at]]


def _take_neighbour(values: Floats, place: Ints) -> Floats:
    moved: Floats = np.where(place >= 0, values[..., place], 0.0)
    return moved


def _session_best(values: Floats, session: Ints) -> tuple[Floats, Floats]:
    order = np.lexsort((-values, session))
    ranked, groups = values[order], session[order]
    first = np.concatenate([[True], groups[1:] != groups[:-1]])
    starts = np.flatnonzero(first)
    within = np.arange(len(groups)) - np.repeat(starts, np.diff(np.append(starts, len(groups))))
    number = np.cumsum(first) - 1
    best = ranked[starts]
    kept = within < 3
    mean3 = np.bincount(number[kept], ranked[kept]) / np.bincount(number[kept])
    back = np.empty(len(values), np.int64)
    back[order] = number
    return best[back], mean3[back]


def _session_max(hits: Floats, session: Ints) -> Floats:
    order = np.argsort(session, kind="stable")
    groups = session[order]
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
    best = np.maximum.reduceat(hits[:, order], starts, axis=1) if len(hits) else np.zeros((0, len(starts)))
    number = np.empty(len(session), np.int64)
    number[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(groups))))
    spread: Floats = best[:, number]
    return spread
