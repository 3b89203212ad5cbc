"""C7: a model's line is said in one breath."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.modes.crowd.generation import length_problem, remove_unpaired_marks, shorten

LONG = "and then the lever went down and the bread was on fire and nobody in the whole kitchen had a bucket of water"


@pytest.mark.parametrize(
    ("whole", "kept"),
    [
        ("I'm here. sit, there is a plate", "I'm here. sit, there is a plate"),
        ("no. that is the wrong door! " + LONG, "no. that is the wrong door!"),
        ('he said "that is the door." ' + LONG, 'he said "that is the door."'),
        ("the lever, the bread, the fire, all of it, " + LONG, "the lever, the bread, the fire, all of it"),
        (LONG, LONG),
    ],
)
def test_c7_what_comes_after_a_breath_is_left_away(whole: str, kept: str) -> None:
    assert shorten(whole) == kept


def test_c7_what_has_no_end_or_goes_in_circles_is_no_line() -> None:
    assert "on and on" in length_problem(LONG)
    assert "circles" in length_problem("no. no. no wonder. no wonder no. no")
    assert length_problem("LETS GO LETS GO LETS GO") == ""
    assert length_problem("the storm is on the other side and the ferry is not") == ""


@pytest.mark.parametrize(
    ("loose", "mended"),
    [
        ('(to himself) "are you sure?', "(to himself) are you sure?"),
        ("(laughs, the door is open", "laughs, the door is open"),
        ('he said "left" (twice)', 'he said "left" (twice)'),
        ("it's 5' tall", "it's 5' tall"),
    ],
)
def test_c7_a_mark_that_lost_its_other_half_is_left_away(loose: str, mended: str) -> None:
    assert remove_unpaired_marks(loose) == mended


@given(st.text(max_size=400))
def test_c7_a_breath_is_a_beginning_and_a_second_look_finds_nothing_to_cut(text: str) -> None:
    once = shorten(text)
    assert text.startswith(once)
    assert shorten(once) == once
