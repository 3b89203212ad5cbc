"""C7: lines written by a model are shortened and checked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.modes.crowd.generation import length_problem, remove_unpaired_marks, shorten

LONG = "and then the lever went down and the bread was on fire and nobody in the whole kitchen had a bucket of water"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("I'm here. sit, there is a plate", "I'm here. sit, there is a plate"),
        ("no. that is the wrong door! " + LONG, "no. that is the wrong door!"),
        ('he said "that is the door." ' + LONG, 'he said "that is the door."'),
        ("the lever, the bread, the fire, all of it, " + LONG, "the lever, the bread, the fire, all of it"),
        (LONG, LONG),
    ],
)
def test_c7_a_long_line_is_cut_at_a_sentence_or_clause(text: str, kept: str) -> None:
    assert shorten(text) == kept


def test_c7_long_and_repetitive_lines_are_rejected() -> None:
    assert "too long" in length_problem(LONG)
    assert "repeats itself" in length_problem("no. no. no wonder. no wonder no. no")
    assert length_problem("LETS GO LETS GO LETS GO") == ""
    assert length_problem("the storm is on the other side and the ferry is not") == ""


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ('(to himself) "are you sure?', "(to himself) are you sure?"),
        ("(laughs, the door is open", "laughs, the door is open"),
        ('he said "left" (twice)', 'he said "left" (twice)'),
        ("it's 5' tall", "it's 5' tall"),
    ],
)
def test_c7_unpaired_marks_are_removed(text: str, cleaned: str) -> None:
    assert remove_unpaired_marks(text) == cleaned


@given(st.text(max_size=400))
def test_c7_shortening_keeps_a_prefix_and_is_idempotent(text: str) -> None:
    once = shorten(text)
    assert text.startswith(once)
    assert shorten(once) == once
