"""The length limit and the speaker guard of replies."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.conversation.reply_filters import LengthLimit, SpeakerGuard


def limited(pieces: list[str], words: int | None) -> tuple[str, bool]:
    limit = LengthLimit(words)
    return "".join(map(limit.filter, pieces)), limit.reached


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_s12_a_reply_ends_with_the_sentence_that_reaches_the_limit(text: str, expected: str) -> None:
    assert limited([text], 3) == limited(list(text), 3) == (expected, expected != text)


def test_s12_without_a_limit_nothing_is_cut() -> None:
    assert limited(["One two three. Four. " * 50], None) == ("One two three. Four. " * 50, False)


@given(st.text(alphabet='ab .!?*"“”\n', max_size=80), st.lists(st.integers(0, 80), max_size=12), st.integers(1, 6))
def test_law_the_length_limit_does_not_depend_on_chunks(text: str, cuts: list[int], words: int) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    assert limited(pieces, words) == limited([text], words) == limited(list(text), words)


def test_s12_nothing_follows_the_length_limit() -> None:
    guard = SpeakerGuard(["Mara"], ["Ana"], LengthLimit(3))
    assert guard.filter("Mara: One two three. Fo") == "One two three."
    assert guard.ended
    assert guard.filter("ur.\nAna") + guard.flush() == ""


OWN, OTHERS = ["Mara Holt"], ["Ana", "Io", "You"]


def guarded(pieces: list[str], own: list[str] = OWN, others: list[str] = OTHERS) -> tuple[str, bool]:
    """What was shown, and whether somebody else began to speak. What is shown is never taken back: only added to."""
    guard = SpeakerGuard(own, others)
    shown = "".join(guard.filter(piece) for piece in pieces)
    return shown + guard.flush(), guard.ended


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Good evening.", "Good evening."),
        ("Good evening.\nAna: Hello!", "Good evening."),
        ("Good evening.\n\n  **Io**: Hello!\nMara: What?", "Good evening."),
        ("Good evening.\n**You:** Hello!", "Good evening."),
        ("Good evening.\n[ana] : Hello!", "Good evening."),
        ("Mara: Good evening.\nMara Holt: Sit.", "Good evening.\nSit."),
        ("**Mara Holt:** Good evening.", "Good evening."),
        ("I told Ana: go home.", "I told Ana: go home."),
        ("Ana goes out.\nYou know: nobody asked.", "Ana goes out.\nYou know: nobody asked."),
        ('"Ana: come here!" she calls.', '"Ana: come here!" she calls.'),
        ("Anabel: not here.\nIons: charged.", "Anabel: not here.\nIons: charged."),
        ("Two things:\n* one\n* two\n", "Two things:\n* one\n* two\n"),
        ("A line.\nAna", "A line.\nAna"),
        ("  \n", "  \n"),
    ],
)
def test_a_line_labelled_with_another_name_ends_the_reply(text: str, shown: str) -> None:
    assert guarded([text]) == (shown, shown != text and "Mara" not in text.split(":")[0])
    assert guarded(list(text))[0] == shown


@pytest.mark.parametrize("text", ["Ana: Hello!", "**Ana:** Hello!", "Ana: Mara: Hello!", "Mara: You: Hello!"])
def test_a_wrong_label_before_the_first_words_is_removed(text: str) -> None:
    assert guarded([text]) == guarded(list(text)) == ("Hello!", False)


LINES = st.sampled_from(["Ana: hi", "**Io**: yes", "Mara: so", "You: me", "Ana", "Anabel: x", "", "* * *", "so: Ana:"])
TEXTS = st.lists(LINES | st.text(alphabet="AnaIoMr: *\n", max_size=12), max_size=6).map("\n".join)


@given(TEXTS, st.lists(st.integers(0, 80), max_size=12))
def test_law_the_speaker_guard_does_not_depend_on_chunks(text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    assert guarded(pieces) == guarded([text]) == guarded(list(text))


@given(TEXTS)
def test_law_no_line_of_another_is_shown_and_without_names_nothing_is_cut(text: str) -> None:
    shown, _ = guarded(list(text))
    for line in shown.split("\n"):
        assert not line.lstrip(" *_[#").lower().startswith(("ana:", "io:", "you:", "io**:"))
    assert guarded(list(text), own=[], others=[]) == (text, False)


def test_very_many_open_quotations_are_closed_up_to_a_limit() -> None:
    limit = LengthLimit(2)
    shown = limit.filter("(" * 10_000 + "one two. three four five. six")
    assert limit.reached
    assert shown.endswith(")")
    assert shown.count(")") == 100
