"""The clock that is passed to everything that needs the time, so that tests can control it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from coterie.base.values import EARLIEST_SHOWN, LATEST_SHOWN


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall-clock time, always aware and in UTC."""
        ...

    def now_ms(self) -> int:
        """The wall-clock time in milliseconds since 1970; cheaper than `now`."""
        ...

    def monotonic(self) -> float:
        """Seconds that never decrease, for measuring durations."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock for tests, which moves only by `advance`."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        if start.tzinfo is None:
            raise ValueError("The start must be an aware time: pass tzinfo.")
        self._now = start.astimezone(UTC)
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._now

    def now_ms(self) -> int:
        return to_micros(self._now) // 1_000

    def monotonic(self) -> float:
        return self._elapsed

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._elapsed += seconds


def to_micros(moment: datetime) -> int:
    """An aware time in microseconds since 1970, which is how times are stored."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime:
    """A stored time. One that cannot be represented is read as the nearest that can, so that reading never fails."""
    return _EPOCH + timedelta(microseconds=min(max(micros, _EARLIEST), _LATEST))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST, _LATEST = to_micros(EARLIEST_SHOWN), to_micros(LATEST_SHOWN)
