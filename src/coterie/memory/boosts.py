"""What lifts a memory beyond how well it fits: freshness, weight, pins, people and time named in the question."""

from __future__ import annotations

import functools
import json

import numpy as np
from numpy.typing import NDArray

from coterie.base.clock import to_micros
from coterie.memory.decay import DAY
from coterie.memory.question import Question
from coterie.memory.shelf import Shelf
from coterie.memory.words import Names

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RECENCY = 0.05
_HALF_LIFE_DAYS = 30
SIGNIFICANCE = 0.08
PIN = 0.15
IMPORTANCE = 0.05
PEOPLE = 0.15
BOTS = -0.1
TIME = 0.25


def boosts(shelf: Shelf, question: Question, at: Ints, weight: Floats, now: int) -> dict[str, Floats]:
    """Per source, what is added to the score of each candidate."""
    when = shelf.columns["when"][at]
    age = np.maximum(now - when, 0) / DAY
    found = {
        "recency": RECENCY * 2.0 ** (-age / _HALF_LIFE_DAYS),
        "significance": SIGNIFICANCE * (shelf.columns["significance"][at] - 1.0) + IMPORTANCE * weight,
        "pins": PIN * (shelf.columns["pin"][at] > 0),
        "people": _people(shelf, question, at),
        "time": np.zeros(len(at)),
    }
    if question.interval is not None:
        start, end = to_micros(question.interval.start), to_micros(question.interval.end)
        found["time"] = TIME * ((when >= start) & (when < end))
    return {name: np.round(values, 6) for name, values in found.items()}


def _people(shelf: Shelf, question: Question, at: Ints) -> Floats:
    """Up for whom the question mentions, down for what another bot said."""
    about = shelf.columns["about"][at]
    mentioned = np.zeros(len(shelf.people.values))
    for code in np.unique(about).tolist():
        if _names(shelf.people.values[code] or "[]").found_in(question.text):
            mentioned[code] = PEOPLE
    bots = np.array([BOTS if (speaker or "").startswith("bot:") else 0.0 for speaker in shelf.speakers.values])
    bots[[code for code, speaker in enumerate(shelf.speakers.values) if speaker == shelf.owner]] = 0.0
    total: Floats = mentioned[about] + bots[shelf.columns["speaker"][at]]
    return total


@functools.lru_cache(maxsize=4_096)
def _names(people: str) -> Names:
    return Names(json.loads(people))
