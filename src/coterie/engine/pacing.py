"""When a growing message may be edited again: soon enough to feel alive, seldom enough for the platform. P5, D14

Edits wait at least `least_s`; they go when the text has rested for `rest_s`, or when `most_s` have passed. Each makes
the next wait a little longer, so that even an endless reply has a bounded number of edits.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EditPace:
    min_interval_s: float = 0.2
    max_interval_s: float = 1.5
    idle_s: float = 0.5
    max_edits: int = 30
    """How often one message may be edited while it grows."""
    growth: float = 1.1
    """How much longer each wait is than the one before."""


class EditPacer:
    """One message's edits. Times are monotonic seconds; the first showing counts as the edit at `now`."""

    def __init__(self, pace: EditPace, now: float) -> None:
        self._pace = pace
        self._last = now
        self._grew = now
        self._edits = 0
        self._not_before = now

    def text_changed(self, now: float) -> None:
        self._grew = now

    def edited(self, now: float) -> None:
        self._last = now
        self._edits += 1

    def pause_until(self, until: float) -> None:
        """The platform asked for patience."""
        self._not_before = max(self._not_before, until)

    def next_edit_at(self) -> float | None:
        """When the next edit may go; None when there have been enough."""
        if self._edits >= self._pace.max_edits:
            return None
        slower = self._pace.growth**self._edits
        soonest = self._last + self._pace.min_interval_s * slower
        latest = self._last + self._pace.max_interval_s * slower
        return max(self._not_before, soonest, min(latest, self._grew + self._pace.idle_s))
