"""Which models rest, and for how long. One table for the whole process: a limit that one caller met holds for all."""

from __future__ import annotations

from coterie.base.clock import Clock
from coterie.llm.catalogue import Target


class Cooldowns:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[Target, float] = {}

    def start(self, target: Target, seconds: float) -> None:
        """A longer rest that was asked for before is not cut short."""
        until = self._clock.monotonic() + seconds
        self._until[target] = max(until, self._until.get(target, until))

    def remaining(self, target: Target) -> float:
        """Seconds until the model may be asked again; 0 when it may."""
        until = self._until.get(target)
        if until is None:
            return 0.0
        left = until - self._clock.monotonic()
        if left <= 0:
            del self._until[target]
            return 0.0
        return left
