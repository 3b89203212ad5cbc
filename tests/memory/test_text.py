"""Text analysis: keywords, names, digests, questions, and time expressions (M3)."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory.text import (
    NameMatcher,
    digest,
    display_name,
    find_interval,
    fts_match_any,
    is_negated,
    is_question,
    keywords,
)

_DATABASE = apsw.Connection(":memory:")
_DATABASE.execute("CREATE VIRTUAL TABLE texts USING fts5(text, tokenize='porter unicode61')")


@given(st.text(max_size=80))
def test_no_text_becomes_an_fts_operator(text: str) -> None:
    match = fts_match_any(text)
    if match is not None:
        _DATABASE.execute("SELECT count(*) FROM texts WHERE texts MATCH ?", (match,)).fetchall()


def test_stop_words_are_dropped_unless_there_are_no_others() -> None:
    assert fts_match_any("What did she do with the boat?") == '"boat"'
    assert fts_match_any("to be or not to be") == '"to" OR "be" OR "or" OR "not"'
    assert fts_match_any("?!") is None
    assert keywords("The boat, the BOAT") == ["boat"]


@given(st.text(max_size=60))
def test_a_digest_ignores_case_spacing_and_punctuation(text: str) -> None:
    assert digest(text) == digest(f"  {text}  ")
    assert digest("Ana sold the boat") == digest("ANA  sold the boat!") == digest("- ana sold the boat")
    assert digest("Ana sold the boat") != digest("Ben sold the boat")
    assert digest("-") == digest(" - ") != digest("*")


def test_names_are_found_and_removed() -> None:
    names = NameMatcher(["bot:mara", "Ana", "you"])
    assert names.find_in("Did Mara see ANA's boat?") == {"bot:mara", "Ana"}
    assert names.remove_from("Ana's boat and Banana").split() == ["boat", "and", "Banana"]
    assert NameMatcher([]).remove_from("Ana") == "Ana"
    assert display_name("bot:mara") == "mara"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Where is it?", True), ("Where is it? [shares a photo]", True), ("Here. Why? Because.", False), ("", False)],
)
def test_questions_are_recognised_by_their_end(text: str, expected: bool) -> None:
    assert is_question(text) is expected


def test_negation_is_detected() -> None:
    assert is_negated("She doesn’t sail") and is_negated("she never sails") and not is_negated("she sails at noon")


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
def test_m3_time_expressions_give_an_interval(question: str, start: str, end: str) -> None:
    found = find_interval(question, NOW)
    assert found is not None
    assert (found.start.date().isoformat(), found.end.date().isoformat()) == (start, end)


@pytest.mark.parametrize("question", ["May I come in?", "Where is the boat?", "she may fall"])
def test_m3_texts_without_a_time_have_no_interval(question: str) -> None:
    assert find_interval(question, NOW) is None


def test_m3_an_invalid_date_is_read_as_its_month() -> None:
    found = find_interval("on 31 February 2024", NOW)
    assert found is not None and found.start == datetime(2024, 2, 1, tzinfo=UTC)


@given(st.text(max_size=60), st.dates(date(1990, 1, 1), date(2090, 1, 1)))
def test_m3_law_any_text_gives_a_valid_interval_or_none(text: str, today: date) -> None:
    found = find_interval(text, datetime(today.year, today.month, today.day, 12, tzinfo=UTC))
    assert found is None or found.start < found.end


@given(st.text("a?？ ()[]\n", max_size=14))
def test_law_a_remark_in_brackets_after_a_question_is_ignored(text: str) -> None:
    without = re.sub(r"\s*[\[(][^\])]*[\])]\s*$", "", text)
    assert is_question(text) == without.rstrip().endswith(("?", "？"))
