"""Whether two texts say the same thing, decided without a model and on the careful side.

Vectors alone merge "likes tea" with "likes coffee". So besides being near, two texts must leave nothing of either
unmatched: every word that carries weight must have a close counterpart in the other, and numbers,
negation and names must agree.
"""

from __future__ import annotations

import re

import numpy as np

from coterie.memory.static import GRID, static_vectors
from coterie.memory.words import STOP_WORDS, digest, figures, negated

SAME_VECTOR = 0.95
_SAME_MEANING = 0.72
_WORST_WORD = 0.4
_NAME = re.compile(r"(?<![.!?]\s)(?<!^)\b[A-Z][\w'’]*")


def same(one: str, other: str) -> bool:
    """Whether `other` adds nothing to `one`."""
    if digest(one) == digest(other):
        return True
    if figures(one) != figures(other) or negated(one) != negated(other) or not _names_agree(one, other):
        return False
    first, second = static_vectors().embed([one, other])
    cosine = float(first @ second) / GRID**2
    if cosine >= SAME_VECTOR:
        return True
    if cosine < 0.5:
        return False
    mean_there, worst_there = _matched(one, other)
    mean_back, worst_back = _matched(other, one)
    return min(mean_there, mean_back) >= _SAME_MEANING and min(worst_there, worst_back) >= _WORST_WORD


def _matched(text: str, other: str) -> tuple[float, float]:
    """How well each telling word of a text finds its like in the other: on average, and at worst."""
    offline = static_vectors()
    mine, theirs = _telling(text), _telling(other)
    if not mine or not theirs:
        return 0.0, 0.0
    their_pieces = np.unique(np.concatenate([offline.tokens(word) for word in theirs]))
    there = offline.unit_rows(their_pieces)
    scores = []
    for word in mine:
        pieces = offline.tokens(word)
        nearest = (offline.unit_rows(pieces) @ there.T).max(1) / GRID**2
        scores.append(float(nearest.mean()))
    return float(np.mean(scores)), min(scores)


def _telling(text: str) -> list[str]:
    return [word for word in dict.fromkeys(re.findall(r"[^\W_]+", text)) if word.lower() not in STOP_WORDS]


def _names_agree(one: str, other: str) -> bool:
    """A name in the middle of a sentence must stand in the other text too."""
    lowered_one, lowered_other = one.lower(), other.lower()
    return all(name.lower().rstrip("'’s") in lowered_other for name in _NAME.findall(one)) and all(
        name.lower().rstrip("'’s") in lowered_one for name in _NAME.findall(other)
    )
