"""What lifts a memory beyond how well it fits: freshness, weight, pins, people and time named in the question."""

from __future__ import annotations

import functools
import json

import numpy as np
from numpy.typing import NDArray

from coterie.base.clock import to_micros
from coterie.memory.decay import DAY
from coterie.memory.question import RecallQuery
from coterie.memory.shelf import OwnerIndex
from coterie.memory.words import NameMatcher

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
