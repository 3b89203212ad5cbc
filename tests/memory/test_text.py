"""Words and names."""

from __future__ import annotations

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory.text import NameMatcher, digest, display_name, fts_match_any, is_negated, is_question, keywords

_SEARCH = apsw.Connection(":memory:")
_SEARCH.execute("CREATE VIRTUAL TABLE said USING fts5(text, tokenize='porter unicode61')")


@given(st.text(max_size=80))
def test_no_question_is_an_fts_operator(text: str) -> None:
    match = fts_match_any(text)
    if match is not None:
        _SEARCH.execute("SELECT count(*) FROM said WHERE said MATCH ?", (match,)).fetchall()


def test_stop_words_are_dropped_unless_they_are_all_there_is() -> None:
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


def test_names_are_found_and_taken_out() -> None:
    names = NameMatcher(["bot:mara", "Ana", "you"])
    assert names.find_in("Did Mara see ANA's boat?") == {"bot:mara", "Ana"}
    assert names.remove_from("Ana's boat and Banana").split() == ["boat", "and", "Banana"]
    assert NameMatcher([]).remove_from("Ana") == "Ana"
    assert display_name("bot:mara") == "mara"


@pytest.mark.parametrize(
    ("text", "asks"),
    [("Where is it?", True), ("Where is it? [shares a photo]", True), ("Here. Why? Because.", False), ("", False)],
)
def test_a_question_is_known_by_its_end(text: str, asks: bool) -> None:
    assert is_question(text) is asks


def test_negation_is_noticed() -> None:
    assert is_negated("She doesn’t sail") and is_negated("she never sails") and not is_negated("she sails at noon")
