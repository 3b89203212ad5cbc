"""Time words in questions (M3)."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory.text import find_interval

NOW = datetime(2026, 3, 18, 15, 0, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("question", "start", "end"),
    [
        ("What did we do last summer?", "2025-06-01", "2025-09-01"),
        ("Who came in May?", "2025-05-01", "2025-06-01"),
        ("Who came in February?", "2026-02-01", "2026-03-01"),
        ("What happened in May 2023?", "2023-05-01", "2023-06-01"),
        ("What happened on 8 May, 2023?", "2023-05-08", "2023-05-09"),
        ("What happened on May 8th 2023?", "2023-05-08", "2023-05-09"),
        ("What happened on 2023-05-08?", "2023-05-08", "2023-05-09"),
        ("Where was she two weeks ago?", "2026-03-01", "2026-03-08"),
        ("Where was she yesterday?", "2026-03-17", "2026-03-18"),
        ("What did he say last week?", "2026-03-09", "2026-03-16"),
        ("What did he say on Monday?", "2026-03-16", "2026-03-17"),
        ("What did she plan last month?", "2026-02-01", "2026-03-01"),
        ("Where did they live in 2019?", "2019-01-01", "2020-01-01"),
        ("What did they build in the winter of 2024?", "2024-12-01", "2025-03-01"),
        ("Where was he three years ago?", "2023-01-01", "2024-01-01"),
    ],
)
def test_m3_time_words_name_an_interval(question: str, start: str, end: str) -> None:
    found = find_interval(question, NOW)
    assert found is not None
    assert (found.start.date().isoformat(), found.end.date().isoformat()) == (start, end)


@pytest.mark.parametrize("question", ["May I come in?", "Where is the boat?", "she may fall"])
def test_m3_what_names_no_time_has_no_interval(question: str) -> None:
    assert find_interval(question, NOW) is None


def test_m3_a_day_that_does_not_exist_is_read_as_its_month() -> None:
    found = find_interval("on 31 February 2024", NOW)
    assert found is not None and found.start == datetime(2024, 2, 1, tzinfo=UTC)


@given(st.text(max_size=60), st.dates(date(1990, 1, 1), date(2090, 1, 1)))
def test_m3_no_text_breaks_the_reading_of_time(text: str, today: date) -> None:
    found = find_interval(text, datetime(today.year, today.month, today.day, 12, tzinfo=UTC))
    assert found is None or found.start < found.end
