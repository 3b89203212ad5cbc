"""Splitting long texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coterie.messaging.ports import Capabilities
from coterie.messaging.protocol import Attachment, OutgoingMessage, OutgoingNotification, RoomRef
from coterie.messaging.streaming import fit_to_platform, split_text


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


def test_p5_files_that_are_too_large_become_a_sentence() -> None:
    room = RoomRef(surface="telegram", id="1")
    small, large = Attachment(name="a.txt", path="a.txt", size=10), Attachment(name="b.zip", path="b.zip", size=10**8)
    outgoing = OutgoingMessage(room=room, text="", attachments=(small, large))
    message, notice = fit_to_platform(outgoing, Capabilities(max_file_bytes=50_000_000))
    assert isinstance(message, OutgoingMessage) and message.attachments == (small,)
    assert isinstance(notice, OutgoingNotification) and "b.zip is larger than the 50 MB" in notice.text
    (notice,) = fit_to_platform(outgoing.model_copy(update={"attachments": (large,)}), Capabilities(max_file_bytes=1))
    assert isinstance(notice, OutgoingNotification), "no empty message before it"


@given(TEXTS, st.integers(10, 80))
def test_p5_lengths_in_utf_16_fit(text: str, longest: int) -> None:
    capabilities = Capabilities(max_length=longest, length_unit="utf-16")
    parts = split_text(text, longest, capabilities.length_of)
    assert "".join(parts) == text
    assert all(len(part.encode("utf-16-le", "surrogatepass")) // 2 <= longest for part in parts)
