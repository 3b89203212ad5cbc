"""The candidates for a query and their signals, the input of ranking.

Candidates are the best matches by full text and by vectors, with their neighbours. Every signal is scaled within the
candidates or is a share of a maximum, so that weights learned on one set of conversations hold on another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from coterie.memory.index.embedders import GRID, Ids, StaticEmbedder, static_embedder
from coterie.memory.index.owner_index import SIGN_SEARCH_ABOVE, Bools, Ints, OwnerIndex
from coterie.memory.text import Interval, NameMatcher, find_interval, fts_match_any, keywords

_MAX_WORDS = 16
_MAX_MATCHES = 400
_MIN_WORDS = 3
_MAX_PIECES = 16
"""Of a long text only the rarest words and pieces are used: the others match too many memories to be worth the time."""

_ENDINGS = ("", "s", "es", "ed", "ing", "e", "er", "ly")
_ENDING = re.compile(r"(?<=\w{3})(?:ing|ed|es|er|ly|s|e)$")


@dataclass(frozen=True)
class RecallQuery:
    """A parsed query: full-text expression, tokens and vector, the speakers it names, and its time interval."""

    text: str
    text_without_names: str
    """The text without names of speakers, which is compared by meaning."""
    fts_match: str | None
    tokens: Ids
    vector: NDArray[np.float32]
    named_speakers: frozenset[str]
    interval: Interval | None

    @classmethod
    def parse(cls, text: str, names: NameMatcher, now: datetime, counts: Ints) -> RecallQuery:
        """`counts` is how often each piece occurs in the searched memories."""
        embedder = static_embedder()
        text_without_names = names.remove_from(text)
        tokens = embedder.tokens(text_without_names)
        return cls(
            text=text,
            text_without_names=text_without_names,
            fts_match=fts_match_any(_rarest_keywords(text, embedder, counts)),
            tokens=_rarest_pieces(tokens, embedder),
            vector=embedder.embed_tokens([tokens])[0],
            named_speakers=frozenset(names.find_in(text)),
            interval=find_interval(text, now),
        )


def _rarest_pieces(tokens: Ids, embedder: StaticEmbedder) -> Ids:
    weighted = [token for token in dict.fromkeys(tokens.tolist()) if embedder.rarity[token] > 0]
    if len(weighted) > _MAX_PIECES:
        rarest = set(sorted(weighted, key=lambda token: (-embedder.rarity[token], token))[:_MAX_PIECES])
        weighted = [token for token in weighted if token in rarest]
    return np.array(weighted, np.uint16)


def _rarest_keywords(text: str, embedder: StaticEmbedder, counts: Ints) -> str:
    """The rarest keywords, as many as can be searched quickly; the whole text if that is quick enough."""
    matches = {word: _estimate_matches(word, embedder, counts) for word in keywords(text)}
    if len(matches) <= _MAX_WORDS and sum(matches.values()) <= _MAX_MATCHES:
        return text
    chosen: list[str] = []
    total = 0
    for word in sorted(matches, key=lambda word: (matches[word], word))[:_MAX_WORDS]:
        total += matches[word]
        if total > _MAX_MATCHES and len(chosen) >= _MIN_WORDS:
            break
        chosen.append(word)
    return " ".join(chosen)


def _estimate_matches(word: str, embedder: StaticEmbedder, counts: Ints) -> int:
    """In how many memories full text will find a word, which includes its inflected and capitalised forms."""
    exact = min(counts[embedder.tokens(word)].tolist(), default=0)
    stem = _ENDING.sub("", word)
    forms = [f"{stem}{ending}" for ending in _ENDINGS]
    spellings = {*forms, *(form.capitalize() for form in forms), *(form.upper() for form in forms)}
    pieces = {embedder.wordpieces.vocabulary.get(f"▁{spelling}") for spelling in spellings}
    return max(exact, sum(int(counts[piece]) for piece in pieces if piece is not None))


Floats = NDArray[np.float64]
Vector = NDArray[np.float32]

POOL_SIZE = 100
_EXACT_MATCH = 0.85
_SIGN_POOL = 1_000
_DIGITS = 5
_MIN_RANGE = 0.2

PREVIOUS_WEIGHT, NEXT_WEIGHT, SESSION_WEIGHT, QUESTION_PENALTY, SPEAKER_WEIGHT = 0.25, 0.12, 0.4, 0.4, 0.4
"""Weights of the graph score: the neighbours' scores, the session's best score, questions and named speakers."""


@dataclass
class Signals:
    """The candidates and, for each, its signals by name and its graph score."""

    positions: Ints
    """The candidates' positions in the owner's index."""
    table: dict[str, Floats] = field(default_factory=dict)
    """Unrounded values; the last digits may differ between machines."""
    graph: Floats = field(default_factory=lambda: np.zeros(0))
    parts: dict[str, Floats] = field(default_factory=dict)
    """The parts of the graph score by source."""

    def matrix(self, names: tuple[str, ...], chosen: Ints) -> Floats:
        """A row per chosen candidate, a column per signal."""
        table: Floats = np.stack([self.table[name][chosen] for name in names], axis=1)
        return table.round(_DIGITS)


def compute_signals(
    index: OwnerIndex, allowed: Bools, query: RecallQuery, full_text: Floats, embedder_cosines: Floats | None
) -> Signals:
    """`full_text` is BM25 per memory (0 without a match); `embedder_cosines` are those of the chosen embedder."""
    cosine, has_cosine = cosines(index, query.vector, allowed)
    pools = [_best(full_text, (full_text > 0) & allowed), _best(cosine, has_cosine)]
    if embedder_cosines is not None:
        pools.append(_best(embedder_cosines, allowed))
    pool = np.unique(np.concatenate(pools))
    positions = _with_neighbours(index, allowed, pool)
    if not len(positions):
        return Signals(positions)
    if index.signs.size:
        cosine[positions] = _exact_cosines(index, query.vector, positions)
    signals = Signals(positions)
    similarity = _piece_similarity(index, query, positions)
    extra = None if embedder_cosines is None else embedder_cosines[positions]
    _fill_table(signals, index, query, full_text[positions], cosine[positions], similarity, extra)
    return signals


def cosines(index: OwnerIndex, vector: Vector, allowed: Bools) -> tuple[Floats, Bools]:
    """The cosine of each memory with a vector, and for which it is known.

    In a large index the signs of the vectors are compared first, and only the nearest get an exact cosine.
    """
    if len(index) <= SIGN_SEARCH_ABOVE:
        return (index.vectors @ vector).astype(np.float64) / GRID**2, allowed
    signs = np.packbits(vector > 0).view(np.uint64)
    distance = np.bitwise_count(index.signs ^ signs).sum(1, dtype=np.int64)
    distance[~allowed] = 1 << 20
    close = np.argpartition(distance, min(_SIGN_POOL, len(distance) - 1))[:_SIGN_POOL]
    # Ties at the edge of the pool are cut by position, so that the pool does not depend on the partition.
    edge = int(distance[close].max())
    close = np.flatnonzero(distance <= edge)[: 2 * _SIGN_POOL]
    close = close[allowed[close]]
    cosine = np.zeros(len(index))
    cosine[close] = _exact_cosines(index, vector, close)
    has_cosine = np.zeros(len(index), bool)
    has_cosine[close] = True
    return cosine, has_cosine


def _exact_cosines(index: OwnerIndex, vector: Vector, positions: Ints) -> Floats:
    return (index.vectors[positions].astype(np.float32) @ vector).astype(np.float64) / GRID**2


def _best(scores: Floats, among: Bools) -> Ints:
    positions = np.flatnonzero(among)
    if len(positions) > POOL_SIZE:
        edge = np.partition(scores[positions], len(positions) - POOL_SIZE)[len(positions) - POOL_SIZE]
        positions = positions[scores[positions] >= edge][: 2 * POOL_SIZE]
    return positions


def _with_neighbours(index: OwnerIndex, allowed: Bools, pool: Ints) -> Ints:
    neighbours = np.concatenate([index.previous[pool], index.following[pool]])
    neighbours = neighbours[neighbours >= 0]
    return np.unique(np.concatenate([pool, neighbours[allowed[neighbours]]]))


def _piece_similarity(index: OwnerIndex, query: RecallQuery, positions: Ints) -> Floats:
    """For each piece of the query and each candidate, the cosine of the candidate's nearest piece."""
    starts, lengths = index.starts[positions], index.starts[positions + 1] - index.starts[positions]
    similarity = np.zeros((len(query.tokens), len(positions)))
    filled = lengths > 0
    if not len(query.tokens) or not filled.any():
        return similarity
    starts, lengths = starts[filled], lengths[filled]
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    tokens = index.tokens[np.repeat(starts - offsets, lengths) + np.arange(lengths.sum())]
    present = np.zeros(1 << 16, bool)
    present[tokens] = True
    distinct = np.flatnonzero(present)
    row_of = np.zeros(1 << 16, np.int64)
    row_of[distinct] = np.arange(len(distinct))
    embedder = static_embedder()
    # One row per distinct piece of the candidates, so that the lookup copies whole rows.
    cosine = embedder.unit_rows(distinct) @ embedder.unit_rows(query.tokens).T / np.float32(GRID**2)
    similarity[:, filled] = np.maximum.reduceat(cosine.take(row_of.take(tokens), axis=0), offsets, axis=0).T
    return similarity


def _fill_table(
    signals: Signals,
    index: OwnerIndex,
    query: RecallQuery,
    full_text: Floats,
    cosine: Floats,
    similarity: Floats,
    extra: Floats | None,
) -> None:
    positions, table = signals.positions, signals.table
    weight = _piece_weights(index, query)
    total_weight = max(float(weight.sum()), 1e-9)
    maxsim = weight @ similarity
    scaled = {
        "words": full_text / max(float(full_text.max()), 1e-9),
        "vectors": _min_max(cosine, _MIN_RANGE),
        "maxsim": _min_max(maxsim, _MIN_RANGE * total_weight),
    }
    if extra is not None:
        scaled["embedder"] = _min_max(extra, _MIN_RANGE)
    factor = 3 / len(scaled)  # keeps the size of the sum if there is a fourth source
    base = sum(scaled.values(), np.zeros(len(positions))) * factor

    before, after = _neighbour_positions(index, positions)
    previous, following = _take_neighbour(base, before), _take_neighbour(base, after)
    near_score = base + PREVIOUS_WEIGHT * previous + NEXT_WEIGHT * following
    session = index.session[positions]
    best, mean3 = _session_best(near_score, session)
    named = np.array([index.speakers.lookup(name) for name in query.named_speakers], np.int64)
    by_named = np.isin(index.columns["speaker"][positions], named).astype(np.float64)
    is_question = index.columns["question"][positions].astype(np.float64)
    graph = near_score + SESSION_WEIGHT * best - QUESTION_PENALTY * is_question + SPEAKER_WEIGHT * by_named
    signals.graph = np.round(graph, _DIGITS)
    signals.parts = {name: value * factor for name, value in scaled.items()} | {
        "neighbours": PREVIOUS_WEIGHT * previous + NEXT_WEIGHT * following,
        "session": SESSION_WEIGHT * best - QUESTION_PENALTY * is_question,
        "speaker": SPEAKER_WEIGHT * by_named,
    }

    hits = (similarity > _EXACT_MATCH).astype(np.float64)
    window = np.maximum.reduce([hits, _take_neighbour(hits, before), _take_neighbour(hits, after)])
    rarest = np.zeros(len(positions))
    if len(weight):
        rarest = (weight[:, None] * hits).max(0) / max(float(weight.max()), 1e-9)
    leaders = np.lexsort((positions, -signals.graph))[:3]
    vectors = index.vectors[positions].astype(np.float32)
    like_leaders = (vectors @ vectors[leaders].T) / GRID**2
    like_leaders[leaders, np.arange(len(leaders))] = 0
    peak = max(float(near_score.max()), 1e-9)
    table["words"] = scaled["words"]
    table["words_rank"] = _rank(full_text)
    table["vectors"] = scaled["vectors"]
    table["vectors_rank"] = _rank(cosine)
    table["cosine"] = cosine
    table["maxsim"] = scaled["maxsim"]
    table["maxsim_rank"] = _rank(maxsim)
    table["maxsim_share"] = maxsim / total_weight
    table["covered"] = weight @ hits / total_weight
    table["rarest_covered"] = rarest
    table["window_covered"] = weight @ window / total_weight
    table["session_covered"] = weight @ _session_max(hits, session) / total_weight
    table["base"] = base
    table["previous"], table["previous2"] = previous, _take_neighbour(previous, before)
    table["next"], table["next2"] = following, _take_neighbour(following, after)
    table["near"] = near_score
    table["session_best"], table["session_mean3"] = best / peak, mean3 / peak
    table["of_session_best"] = near_score / np.maximum(best, 1e-9)
    table["speaker"] = by_named
    table["asks"] = is_question
    table["answers"] = _take_neighbour(is_question, before)
    table["length"] = np.log1p(index.starts[positions + 1] - index.starts[positions])
    table["kin"] = like_leaders.max(1).astype(np.float64)
    table["graph"] = _min_max(graph, 1.0)
    table["graph_rank"] = _rank(signals.graph)
    if extra is not None:
        table["embedder"] = scaled["embedder"]
        table["embedder_rank"] = _rank(extra)


def _piece_weights(index: OwnerIndex, query: RecallQuery) -> Floats:
    """The inverse document frequency of each piece of the query."""
    counts = index.piece_counts[query.tokens]
    share = (len(index) + 1) / (np.minimum(counts, len(index)) + 0.5)
    weights: Floats = np.log(share.astype(np.float64))
    return np.round(weights, _DIGITS)


def _min_max(values: Floats, min_range: float) -> Floats:
    """Scaled from 0 to 1 over the candidates; a range smaller than `min_range` is not stretched to it."""
    low, high = float(values.min()), float(values.max())
    return (values - low) / max(high - low, min_range)


def _rank(values: Floats) -> Floats:
    """1 for the best, 1/2 for the eleventh; equal values share the better rank."""
    rounded = np.round(values, _DIGITS)
    better = len(values) - np.searchsorted(np.sort(rounded), rounded, side="right")
    return 1 / (1 + better / 10)


def _neighbour_positions(index: OwnerIndex, positions: Ints) -> tuple[Ints, Ints]:
    """The rows of each candidate's neighbours among the candidates; -1 if they are not candidates."""
    row_of = np.full(len(index) + 1, -1)
    row_of[positions] = np.arange(len(positions))
    row_of[len(index)] = -1
    return row_of[index.previous[positions]], row_of[index.following[positions]]


def _take_neighbour(values: Floats, rows: Ints) -> Floats:
    """Each candidate's value of its neighbour; 0 without one."""
    taken: Floats = np.where(rows >= 0, values[..., rows], 0.0)
    return taken


def _session_best(values: Floats, session: Ints) -> tuple[Floats, Floats]:
    """For each candidate, the best value of its session and the mean of the session's best three."""
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
    """For each piece and candidate, whether any candidate of the session has the piece."""
    order = np.argsort(session, kind="stable")
    groups = session[order]
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
    best = np.maximum.reduceat(hits[:, order], starts, axis=1) if len(hits) else np.zeros((0, len(starts)))
    number = np.empty(len(session), np.int64)
    number[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(groups))))
    spread: Floats = best[:, number]
    return spread
