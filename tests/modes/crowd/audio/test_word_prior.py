"""C9: which words are likely after one another, with the model that comes in a wheel."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.modes.crowd.audio.moonshine import LanguageModelPrior

pytest.importorskip("pocketsphinx")
PRIOR = LanguageModelPrior()


@pytest.mark.parametrize(
    ("likely", "unlikely"),
    [
        ("Who remembers the first boss?", "Who remembers the first goss?"),
        ("We go back for the key.", "We go back for the quay."),
        ("I would do it again.", "I wood do it again."),
        ("They don't know.", "They dont no."),
    ],
)
def test_c9_what_people_say_is_likelier_than_what_sounds_like_it(likely: str, unlikely: str) -> None:
    assert PRIOR.log_probability(likely) > PRIOR.log_probability(unlikely)


def test_c9_marks_and_capitals_do_not_count() -> None:
    assert PRIOR.log_probability("It’s the LEFT door!") == PRIOR.log_probability("it's the left door")


@given(st.text(max_size=80))
def test_c9_whatever_was_heard_has_some_chance(text: str) -> None:
    assert -math.inf < PRIOR.log_probability(text) < 0
