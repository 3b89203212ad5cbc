"""Forgetting, computed and never stored: how much a memory weighs follows from its times alone.

Run once or a thousand times, the result is the same, and turning the clock back turns it back.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

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
