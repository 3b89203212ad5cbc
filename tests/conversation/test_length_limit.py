"""A breath: a reply that would go on ends with a sentence, and with nothing left open."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.conversation.length_limit import LengthLimit
from coterie.conversation.speaker_guard import SpeakerGuard


def heard(pieces: list[str], words: int | None) -> tuple[str, bool]:
    breath = LengthLimit(words)
    return "".join(map(breath.filter, pieces)), breath.reached


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("One two. Three four.", "One two. Three four."),
        ("One two three four five. Six.", "One two three four five."),
        ("One two three! Four.", "One two three!"),
        ('"One two three." She nods.', '"One two three."'),
        ("*One two three.* Four.", "*One two three.*"),
        ("**One** two *three.* Four.", "**One** two *three.*"),
        ("One two Mr. Oke sits down. Then?", "One two Mr. Oke sits down."),
        ("One two J. Oke sits down. Then?", "One two J. Oke sits down."),
        ("One two three.\n\nFour.", "One two three."),
        ('"One two three. Four." Five.', '"One two three. Four."'),
        ('"One two three. Four five. Six seven.', '"One two three. Four five."'),
        ("*One “two three. Four five. Six.", "*One “two three. Four five.”*"),
        ("One two three four five six seven", "One two three four five six seven"),
    ],
)
def test_s12_a_reply_ends_with_the_sentence_that_uses_up_its_breath(text: str, said: str) -> None:
    assert heard([text], 3) == heard(list(text), 3) == (said, said != text)


def test_s12_without_a_breath_nothing_is_cut() -> None:
    assert heard(["One two three. Four. " * 50], None) == ("One two three. Four. " * 50, False)


@given(st.text(alphabet='ab .!?*"“”\n', max_size=80), st.lists(st.integers(0, 80), max_size=12), st.integers(1, 6))
def test_law_how_the_words_are_cut_into_pieces_makes_no_difference(text: str, cuts: list[int], words: int) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    assert heard(pieces, words) == heard([text], words) == heard(list(text), words)


def test_s12_a_voice_whose_breath_is_used_up_says_nothing_more() -> None:
    voice = SpeakerGuard(["Mara"], ["Ana"], LengthLimit(3))
    assert voice.filter("Mara: One two three. Fo") == "One two three."
    assert voice.ended
    assert voice.filter("ur.\nAna") + voice.flush() == ""
