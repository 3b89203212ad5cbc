"""Values in range can be stored, converted and shown; others are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from coterie.base.clock import from_micros
from coterie.base.values import (
    EARLIEST,
    LATEST,
    DurationS,
    Int64,
    Name,
    Text,
    Time,
    add_seconds,
    clamp_time,
    is_text,
    parse_int64,
    parse_time,
    replace_surrogates,
)

ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


def accepts(kind: Any, value: object) -> bool:
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


@given(st.datetimes(timezones=st.none() | ZONES), ZONES, st.floats())
def test_an_accepted_time_can_be_moved_converted_and_formatted(
    moment: datetime, zone: timezone, seconds: float
) -> None:
    clamped = clamp_time(moment)
    assert EARLIEST <= clamped <= LATEST
    moved = add_seconds(clamped, seconds)
    assert EARLIEST <= moved <= LATEST
    assert moved.astimezone(zone).isoformat()
    assert accepts(Time, moved)


@given(st.datetimes(timezones=ZONES))
def test_a_time_out_of_range_is_refused_with_a_validation_error(moment: datetime) -> None:
    assert accepts(Time, moment) == (clamp_time(moment) == moment)


def test_a_time_without_a_zone_stays_without_one() -> None:
    assert TypeAdapter(Time).validate_python("2026-01-01T10:00").tzinfo is None


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_integers_that_the_database_cannot_store_are_refused(value: int) -> None:
    assert not accepts(Int64, value)
    assert accepts(Int64, 2**63 - 1)


@pytest.mark.parametrize("value", [0, -1, 1e17, float("inf"), float("nan")])
def test_durations_out_of_range_are_refused(value: float) -> None:
    assert not accepts(DurationS, value)


@given(st.text())
def test_accepted_text_can_be_encoded(value: str) -> None:
    assert accepts(Text, value) == is_text(value)
    assert is_text(replace_surrogates(value))


def test_a_lone_surrogate_is_refused_or_replaced() -> None:
    assert not accepts(Text, "a\ud800b")
    assert replace_surrogates("a\ud800b") == "a\ufffdb"
    assert replace_surrogates("\ud83d\ude00") == "😀"


@pytest.mark.parametrize("value", ["", "  ", "a\nb", "a" * 201, "a\x00b", "\ud800"])
def test_names_that_cannot_be_shown_on_one_line_are_refused(value: str) -> None:
    assert not accepts(Name, value)
    assert TypeAdapter(Name).validate_python(" Ana ") == "Ana"


def test_supported_times_are_utc() -> None:
    assert EARLIEST.tzinfo is UTC
    assert LATEST.tzinfo is UTC


@given(st.text() | st.integers().map(str) | st.datetimes(timezones=st.none() | ZONES).map(datetime.isoformat))
def test_any_text_is_an_accepted_value_or_none(value: str) -> None:
    number, moment = parse_int64(value), parse_time(value)
    assert number is None or (accepts(Int64, number) and number >= 0)
    assert moment is None or (accepts(Time, moment) and moment.tzinfo is UTC)


@pytest.mark.parametrize("value", ["9" * 5_000, str(2**63), "-1", "²", "1e5", "", "٣"])
def test_text_that_is_no_integer_for_the_database_is_none(value: str) -> None:
    assert parse_int64(value) is None
    assert parse_int64(str(2**63 - 1)) == 2**63 - 1


@given(st.integers())
def test_every_stored_time_can_be_read_and_shown_in_every_zone(micros: int) -> None:
    moment = from_micros(micros)
    assert moment.astimezone(timezone(timedelta(minutes=1439))).isoformat()
    assert moment.astimezone(timezone(timedelta(minutes=-1439))).isoformat()
