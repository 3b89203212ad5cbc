"""A question, taken apart once: its words for full text, its pieces and vector for meaning, whom it names, and when."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from coterie.memory.static import Ids, StaticVectors, static_vectors
from coterie.memory.times import Interval, interval_in
from coterie.memory.words import Names, match_any, telling

_MOST_WORDS = 16
_MOST_FOUND = 400
_FEWEST_WORDS = 3
_MOST_PIECES = 16
"""Of a long text only the rarest words count: the others are in half of all memories, say little, and cost the most."""

_ENDINGS = ("", "s", "es", "ed", "ing", "e", "er", "ly")
_ENDING = re.compile(r"(?<=\w{3})(?:ing|ed|es|er|ly|s|e)$")

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Question:
    text: str
    bare: str
    """Without the names of speakers: what is compared by meaning."""
    match: str | None
    tokens: Ids
    vector: NDArray[np.float32]
    named: frozenset[str]
    interval: Interval | None

    @classmethod
    def read(cls, text: str, names: Names, now: datetime, counts: Counts) -> Question:
        """`counts` tells how often each piece is in the memories that are asked."""
        offline = static_vectors()
        bare = names.without(text)
        tokens = offline.tokens(bare)
        return cls(
            text=text,
            bare=bare,
            match=match_any(_most_telling(text, offline, counts)),
            tokens=_rarest_pieces(tokens, offline),
            vector=offline.embed_tokens([tokens])[0],
            named=frozenset(names.found_in(text)),
            interval=interval_in(text, now),
        )


def _rarest_pieces(tokens: Ids, offline: StaticVectors) -> Ids:
    telling = [token for token in dict.fromkeys(tokens.tolist()) if offline.rarity[token] > 0]
    if len(telling) > _MOST_PIECES:
        kept = set(sorted(telling, key=lambda token: (-offline.rarity[token], token))[:_MOST_PIECES])
        telling = [token for token in telling if token in kept]
    return np.array(telling, np.uint16)


def _most_telling(text: str, offline: StaticVectors, counts: Counts) -> str:
    """The rarest words, as many as can be looked up quickly in these memories."""
    found = {word: _about_as_often(word, offline, counts) for word in telling(text)}
    if len(found) <= _MOST_WORDS and sum(found.values()) <= _MOST_FOUND:
        return text
    chosen: list[str] = []
    total = 0
    for word in sorted(found, key=lambda word: (found[word], word))[:_MOST_WORDS]:
        total += found[word]
        if total > _MOST_FOUND and len(chosen) >= _FEWEST_WORDS:
            break
        chosen.append(word)
    return " ".join(chosen)


def _about_as_often(word: str, offline: StaticVectors, counts: Counts) -> int:
    """In how many memories a word will be found; full text also finds its other forms, and in capitals."""
    exact = min(counts[offline.tokens(word)].tolist(), default=0)
    stem = _ENDING.sub("", word)
    forms = [f"{stem}{ending}" for ending in _ENDINGS]
    written = {*forms, *(form.capitalize() for form in forms), *(form.upper() for form in forms)}
    pieces = {offline.pieces.vocabulary.get(f"▁{form}") for form in written}
    return max(exact, sum(int(counts[piece]) for piece in pieces if piece is not None))
