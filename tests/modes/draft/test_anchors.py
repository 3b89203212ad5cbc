"""Anchors and edits: positions after edits, stale and restored text."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from coterie.modes.draft.diff import Span, SpanMap, TextEdit, apply_edits, edits_between
from coterie.modes.draft.locate import Anchor, Match, NoMatch, anchor_at, find_similar, move_anchors, relocate

DOC = (
    "The lamp burns.\n\nThe boats come late in winter, and somebody waits.\n\nThe lamp burns.\n\nNobody counts them.\n"
)

texts = st.lists(st.sampled_from(["a", "b", "\n", "\n\n", "é🦀", "word ", "\r\n", " "]), max_size=25).map("".join)


def anchor_of(document: str, text: str, nth: int = 0) -> Anchor:
    at = -1
    for _ in range(nth + 1):
        at = document.index(text, at + 1)
    return anchor_at(document, Span(at, at + len(text)))


def move_through(anchor: Anchor, *versions: str) -> Anchor:
    for old, new in itertools.pairwise(versions):
        (anchor,) = move_anchors([anchor], old, new, edits_between(old, new))
    return anchor


@given(texts, texts)
def test_f7_edits_turn_the_old_text_into_the_new(old: str, new: str) -> None:
    edits = edits_between(old, new)
    assert apply_edits(old, edits) == new
    assert all(one.end < other.start for one, other in itertools.pairwise(edits))


@given(texts, texts, st.data())
def test_f7_a_span_is_unchanged_if_and_only_if_no_edit_is_inside_it(old: str, new: str, data: st.DataObject) -> None:
    edits = edits_between(old, new)
    start = data.draw(st.integers(0, len(old)))
    span = Span(start, data.draw(st.integers(start, len(old))))
    place = SpanMap(edits).map_unchanged(span)
    touched = any(
        edit.start < span.end and edit.end > span.start if edit.start < edit.end else span.start < edit.start < span.end
        for edit in edits
    )
    assert (place is None) == touched
    if place is not None:
        assert new[place.start : place.end] == old[span.start : span.end]
    covering = SpanMap(edits).map_covering(span)
    assert 0 <= covering.start <= covering.end <= len(new)


@given(st.lists(st.text(alphabet="xyz \n", max_size=4), min_size=3, max_size=8), st.randoms(use_true_random=False))
def test_f8_accepting_in_any_order_gives_the_same_bytes(proposed: list[str], rng: random.Random) -> None:
    originals = [f"w{number}" for number in range(len(proposed))]
    text = " same same ".join(originals)
    expected = " same same ".join(proposed)
    waiting = [(anchor_of(text, original), words) for original, words in zip(originals, proposed, strict=True)]
    rng.shuffle(waiting)
    while waiting:
        (anchor, words), *rest = waiting
        assert anchor.fresh
        assert text[anchor.start : anchor.end] == anchor.exact
        edit = TextEdit(anchor.start, anchor.end, words)
        after = apply_edits(text, [edit])
        places = move_anchors([one for one, _ in rest], text, after, [edit])
        waiting = [(place, them) for place, (_, them) in zip(places, rest, strict=True)]
        text = after
    assert text == expected


def test_f3_an_anchor_has_its_text_and_the_text_around_it() -> None:
    anchor = anchor_of(DOC, "somebody waits")
    assert (anchor.exact, anchor.prefix[-12:], anchor.suffix[:3]) == ("somebody waits", "winter, and ", ".\n\n")
    assert len(anchor_of(DOC * 2, DOC[:9], nth=2).prefix) == 64


def test_f7_edits_elsewhere_move_a_fresh_anchor() -> None:
    anchor = move_through(anchor_of(DOC, "somebody waits"), DOC, "# A title\n\n" + DOC)
    assert anchor.fresh
    assert anchor.start == DOC.index("somebody waits") + len("# A title\n\n")


def test_f7_an_anchor_is_stale_after_a_rewrite_that_fuzzy_matching_finds() -> None:
    rewritten = DOC.replace("somebody waits", "someone waits")
    anchor = move_through(anchor_of(DOC, "come late in winter, and somebody waits"), DOC, rewritten)
    assert not anchor.fresh
    similar = find_similar(anchor, rewritten)
    assert isinstance(similar, Match)
    assert rewritten[similar.span.start : similar.span.end] == "come late in winter, and someone waits"


def test_f7_an_anchor_is_fresh_again_when_its_text_is_restored() -> None:
    gone = DOC.replace("Nobody counts them.", "They are counted.")
    anchor = anchor_of(DOC, "Nobody counts them.")
    assert not move_through(anchor, DOC, gone).fresh
    assert move_through(anchor, DOC, gone, DOC) == anchor
    assert move_through(anchor, DOC, gone, "New.\n\n" + gone, "New.\n\n" + DOC).fresh


def test_f7_an_earlier_copy_is_not_taken_for_the_original() -> None:
    second = anchor_of(DOC, "The lamp burns.", nth=1)
    gone = DOC[: second.start] + "The lamp is out." + DOC[second.end :]
    after = move_through(second, DOC, gone)
    assert not after.fresh
    assert move_through(second, DOC, gone, gone + "\nMore.\n").fresh is False
    assert move_through(second, DOC, gone, DOC).start == second.start


def test_f7_text_restored_across_the_edge_of_an_edit_is_fresh() -> None:
    old = "## Lamps\n\nText.\n\n### Lamps\n"
    new = "### Lamps\n\nText.\n\n### Lamps\n"
    anchor = move_through(anchor_of(old, "## Lamps"), old, new, old)
    assert (anchor.fresh, anchor.start) == (True, 0)


def test_f7_moved_text_is_found_at_its_new_position() -> None:
    moved = "Nobody counts them.\n\n" + DOC.replace("Nobody counts them.\n", "")
    anchor = move_through(anchor_of(DOC, "Nobody counts them."), DOC, moved)
    assert anchor.fresh
    assert anchor.start == 0


def test_f3_an_anchor_is_relocated_or_orphaned() -> None:
    anchor = anchor_of(DOC, "The boats come late in winter, and somebody waits.")
    rewritten = DOC.replace("somebody waits", "someone is waiting")
    found = relocate(move_through(anchor, DOC, rewritten), rewritten)
    assert found is not None
    assert found.exact == "The boats come late in winter, and someone is waiting."
    assert relocate(move_through(anchor, DOC, "All gone.\n"), "All gone.\n") is None
    assert find_similar(move_through(anchor, DOC, "All gone.\n"), "All gone.\n") == NoMatch("absent")
