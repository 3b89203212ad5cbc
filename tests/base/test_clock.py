from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.base.clock import ManualClock, SystemClock, from_micros, to_micros


def test_the_system_clock_is_aware_and_in_utc() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() <= clock.monotonic()


def test_a_manual_clock_moves_only_when_advanced() -> None:
    clock = ManualClock(datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == datetime(2026, 3, 1, 10, tzinfo=UTC)
    assert clock.now().tzinfo is UTC
    clock.advance(90)
    assert clock.now() == datetime(2026, 3, 1, 10, 1, 30, tzinfo=UTC)
    assert clock.now_ms() == clock.now().timestamp() * 1_000
    assert clock.monotonic() == 90


def test_a_manual_clock_needs_an_aware_start() -> None:
    with pytest.raises(ValueError, match="tzinfo"):
        ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the mistake


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_are_stored_exactly(moment: datetime) -> None:
    assert from_micros(to_micros(moment)) == moment


def test_stored_times_are_the_same_instant_in_any_zone() -> None:
    here = datetime(2026, 7, 1, 3, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert to_micros(here) == to_micros(here.astimezone(UTC))
