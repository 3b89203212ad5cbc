"""C9: the trigram language model of the pocketsphinx wheel."""

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
def test_c9_real_sentences_are_likelier_than_similar_sounding_ones(likely: str, unlikely: str) -> None:
    assert PRIOR.log_probability(likely) > PRIOR.log_probability(unlikely)


def test_c9_punctuation_and_case_are_ignored() -> None:
    assert PRIOR.log_probability("It’s the LEFT door!") == PRIOR.log_probability("it's the left door")


@given(st.text(max_size=80))
def test_c9_every_text_has_a_finite_log_probability(text: str) -> None:
    assert -math.inf < PRIOR.log_probability(text) < 0
