"""Splitting long texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coterie.messaging.streaming import split_text


def in_bytes(text: str) -> int:
    return len(text.encode())


TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=400) | st.lists(
    st.sampled_from(["word ", "Sentence. ", "\n\n", "\n", "```\n", "😀", "ü", "x" * 30]), max_size=80
).map("".join)


@given(TEXTS, st.integers(min_value=4, max_value=60))
def test_p5_the_parts_joined_are_the_text_and_none_is_too_long(text: str, longest: int) -> None:
    for measure in (len, in_bytes):
        parts = split_text(text, longest, measure)
        assert "".join(parts) == text
        assert all(measure(part) <= longest for part in parts)
        assert all(parts) or text == ""


def test_p5_a_text_is_split_after_a_paragraph_then_a_line_a_sentence_a_word() -> None:
    assert split_text("One two.\n\nThree four five.", 16) == ["One two.\n\n", "Three four five."]
    assert split_text("One two three.\nFour five.", 18) == ["One two three.\n", "Four five."]
    assert split_text("One two. Three four.", 12) == ["One two. ", "Three four."]
    assert split_text("Onetwothree fourfive", 14) == ["Onetwothree ", "fourfive"]
    assert split_text("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]


def test_p5_a_less_natural_split_is_better_than_a_stub() -> None:
    assert (
        split_text("Oh.\n\nThis goes on for a good while, without an end", 40)[0]
        == "Oh.\n\nThis goes on for a good while, "
    )


def test_p5_a_code_block_is_split_only_if_nothing_else_fits() -> None:
    text = "Look at this, please: \n```\na = 1\n\nb = 2\n```\nThat is all."
    assert split_text(text, 40)[0] == "Look at this, please: \n"
