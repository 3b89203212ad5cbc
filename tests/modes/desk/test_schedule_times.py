"""D15: due times across daylight saving changes, within active hours, and invalid times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from coterie.modes.desk.errors import BadSchedule
from coterie.modes.desk.events import ScheduleTime

BERLIN = "Europe/Berlin"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def runs(when: ScheduleTime, start: datetime, count: int) -> list[str]:
    times, moment = [], start
    for _ in range(count):
        due = when.due_after(moment)
        assert due is not None and due > moment
        times.append(f"{due:%m-%d %H:%M}")
        moment = due
    return times


def test_d15_a_daily_time_follows_daylight_saving() -> None:
    at_eight = ScheduleTime(cron="0 8 * * *", zone=BERLIN)
    assert runs(at_eight, utc("2026-03-27T12:00"), 3) == ["03-28 07:00", "03-29 06:00", "03-30 06:00"]
    assert runs(at_eight, utc("2026-10-23T12:00"), 3) == ["10-24 06:00", "10-25 07:00", "10-26 07:00"]


def test_d15_a_skipped_or_repeated_time_runs_once_that_day() -> None:
    at_night = ScheduleTime(cron="30 2 * * *", zone=BERLIN)
    spring = runs(at_night, utc("2026-03-28T12:00"), 2)
    assert spring[0].startswith("03-29 01:") and spring[1] == "03-30 00:30"
    assert runs(at_night, utc("2026-10-24T12:00"), 2) == ["10-25 00:30", "10-26 01:30"]


def test_d15_an_interval_is_elapsed_time() -> None:
    every = ScheduleTime(every_s=3600, zone=BERLIN)
    assert runs(every, utc("2026-03-29T00:30"), 3) == ["03-29 01:30", "03-29 02:30", "03-29 03:30"]


def test_d15_active_hours_may_wrap_midnight() -> None:
    nights = ScheduleTime(every_s=3600 * 3, zone="UTC", hours="22:00-04:00")
    assert runs(nights, utc("2026-01-01T12:00"), 3) == ["01-02 00:00", "01-02 03:00", "01-03 00:00"]
    days = ScheduleTime(cron="0 * * * *", zone=BERLIN, hours="09:00-11:00")
    assert runs(days, utc("2026-01-01T12:00"), 3) == ["01-02 08:00", "01-02 09:00", "01-03 08:00"]


def test_d15_a_single_time_is_due_once() -> None:
    once = ScheduleTime(at=datetime.fromisoformat("2026-07-01T08:00"), zone=BERLIN)
    assert once.due_after(utc("2026-06-30T00:00")) == utc("2026-07-01T06:00")
    assert once.due_after(utc("2026-07-01T06:00")) is None


@pytest.mark.parametrize(
    "when",
    [
        ScheduleTime(cron="61 * * * *"),
        ScheduleTime(cron="* * *"),
        ScheduleTime(every_s=59),
        ScheduleTime(every_s=3600, zone="Atlantis/Capital"),
        ScheduleTime(every_s=3600, hours="25:00-26:00"),
    ],
)
def test_d15_invalid_times_are_refused_with_a_fix(when: ScheduleTime) -> None:
    with pytest.raises(BadSchedule) as refused:
        when.check()
    assert refused.value.fix


def test_d15_times_that_are_never_due_are_refused() -> None:
    for never in (ScheduleTime(cron="0 0 30 2 *"), ScheduleTime(cron="0 12 * * *", hours="22:00-23:00")):
        with pytest.raises(BadSchedule):
            never.check()
            never.due_after(utc("2026-01-01T00:00"))


@pytest.mark.parametrize("fields", [{}, {"cron": "* * * * *", "every_s": 60}, {"every_s": 60, "hours": "morning"}])
def test_d15_exactly_one_kind_of_time_is_required(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ScheduleTime.model_validate(fields)


@given(
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31)),  # noqa: DTZ001 - made aware below
    st.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe"]),
    st.integers(0, 23),
    st.integers(0, 59),
)
def test_d15_a_daily_run_is_due_within_25_hours(moment: datetime, zone: str, hour: int, minute: int) -> None:
    start = moment.replace(tzinfo=UTC)
    due = ScheduleTime(cron=f"{minute} {hour} * * *", zone=zone).due_after(start)
    assert due is not None
    assert timedelta(0) < due - start <= timedelta(hours=25)
