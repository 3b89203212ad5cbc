"""A question, taken apart once: its words for full text, its pieces and vector for meaning, whom it names, and when."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from coterie.memory.static import Ids, StaticEmbedder, static_embedder
from coterie.memory.times import Interval, find_interval
from coterie.memory.words import NameMatcher, fts_match_any, keywords

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
            bare=bare,
            match=fts_match_any(_rarest_keywords(text, offline, counts)),
            tokens=_rarest_pieces(tokens, offline),
            vector=offline.embed_tokens([tokens])[0],
            named=frozenset(names.find_in(text)),
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
