"""A question, taken apart once: its words for full text, its pieces and vector for meaning, whom it names, and when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from coterie.memory.static import Floats, StaticVectors, static_vectors
from coterie.memory.times import Interval, interval_in
from coterie.memory.words import Names, match_any, telling

_MOST_WORDS = 16
"""Of a long text only the rarest words are looked up: the others are in half of all memories, and cost the most."""


@dataclass(frozen=True)
class Question:
    text: str
    bare: str
    """Without the names of speakers: what is compared by meaning."""
    match: str | None
    tokens: NDArray[np.uint16]
    vector: Floats
    named: frozenset[str]
    interval: Interval | None

    @classmethod
    def read(cls, text: str, names: Names, now: datetime) -> Question:
        offline = static_vectors()
        bare = names.without(text)
        tokens = offline.tokens(bare)
        telling = np.array(
            [token for token in dict.fromkeys(tokens.tolist()) if offline.rarity[token] > 0][:64], np.uint16
        )
        return cls(
            text=text,
            bare=bare,
            match=match_any(_most_telling(text, offline)),
            tokens=telling,
            vector=offline.embed_tokens([tokens])[0],
            named=frozenset(names.found_in(text)),
            interval=interval_in(text, now),
        )


def _most_telling(text: str, offline: StaticVectors) -> str:
    said = list(dict.fromkeys(telling(text)))
    if len(said) <= _MOST_WORDS:
        return text
    rarity = {word: float(offline.rarity[offline.tokens(word)].max(initial=0.0)) for word in said}
    return " ".join(sorted(said, key=lambda word: -rarity[word])[:_MOST_WORDS])
