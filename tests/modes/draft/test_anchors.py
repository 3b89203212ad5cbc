"""Places that outlive edits. F3, F7"""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from coterie.modes.draft.anchors import Anchor, anchor_at, find_similar, move_anchors, relocate
from coterie.modes.draft.diff import Span, SpanMap, TextEdit, apply_edits, edits_between
from coterie.modes.draft.locate import Match, NoMatch

DOC = (
    "The lamp burns.\n\nThe boats come late in winter, and somebody waits.\n\nThe lamp burns.\n\nNobody counts them.\n"
)

texts = st.lists(st.sampled_from(["a", "b", "\n", "\n\n", "é🦀", "word ", "\r\n", " "]), max_size=25).map("".join)


def pending(document: str, words: str, nth: int = 0) -> Anchor:
    at = -1
    for _ in range(nth + 1):
        at = document.index(words, at + 1)
    return anchor_at(document, Span(at, at + len(words)))


def through(anchor: Anchor, *versions: str) -> Anchor:
    for old, new in itertools.pairwise(versions):
        (anchor,) = move_anchors([anchor], old, new, edits_between(old, new))
    return anchor


@given(texts, texts)
def test_f7_edits_turn_the_old_text_into_the_new(old: str, new: str) -> None:
    edits = edits_between(old, new)
    assert apply_edits(old, edits) == new
    assert all(one.end < other.start for one, other in itertools.pairwise(edits))


@given(texts, texts, st.data())
def test_f7_a_span_is_untouched_exactly_when_no_edit_is_inside_it(old: str, new: str, data: st.DataObject) -> None:
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
    hull = SpanMap(edits).map_covering(span)
    assert 0 <= hull.start <= hull.end <= len(new)


@given(st.lists(st.text(alphabet="xyz \n", max_size=4), min_size=3, max_size=8), st.randoms(use_true_random=False))
def test_f8_accepting_in_any_order_gives_the_same_bytes(proposed: list[str], chance: random.Random) -> None:
    originals = [f"w{number}" for number in range(len(proposed))]
    text = " same same ".join(originals)
    whole = " same same ".join(proposed)
    waiting = [(pending(text, original), words) for original, words in zip(originals, proposed, strict=True)]
    chance.shuffle(waiting)
    while waiting:
        (anchor, words), *rest = waiting
        assert anchor.fresh
        assert text[anchor.start : anchor.end] == anchor.exact
        edit = TextEdit(anchor.start, anchor.end, words)
        after = apply_edits(text, [edit])
        places = move_anchors([one for one, _ in rest], text, after, [edit])
        waiting = [(place, them) for place, (_, them) in zip(places, rest, strict=True)]
        text = after
    assert text == whole


def test_f3_an_anchor_keeps_the_words_and_what_stands_around_them() -> None:
    anchor = pending(DOC, "somebody waits")
    assert (anchor.exact, anchor.prefix[-12:], anchor.suffix[:3]) == ("somebody waits", "winter, and ", ".\n\n")
    assert len(pending(DOC * 2, DOC[:9], nth=2).prefix) == 64


def test_f7_edits_elsewhere_leave_it_fresh_and_move_it() -> None:
    anchor = through(pending(DOC, "somebody waits"), DOC, "# A title\n\n" + DOC)
    assert anchor.fresh
    assert anchor.start == DOC.index("somebody waits") + len("# A title\n\n")


def test_f7_a_rewritten_original_is_stale_though_fuzzy_would_find_it() -> None:
    rewritten = DOC.replace("somebody waits", "someone waits")
    anchor = through(pending(DOC, "come late in winter, and somebody waits"), DOC, rewritten)
    assert not anchor.fresh
    offered = find_similar(anchor, rewritten)
    assert isinstance(offered, Match)
    assert rewritten[offered.span.start : offered.span.end] == "come late in winter, and someone waits"


def test_f7_fresh_again_when_the_text_comes_back() -> None:
    gone = DOC.replace("Nobody counts them.", "They are counted.")
    anchor = pending(DOC, "Nobody counts them.")
    assert not through(anchor, DOC, gone).fresh
    assert through(anchor, DOC, gone, DOC) == anchor
    assert through(anchor, DOC, gone, "New.\n\n" + gone, "New.\n\n" + DOC).fresh


def test_f7_a_copy_that_stood_there_all_along_is_not_the_original() -> None:
    second = pending(DOC, "The lamp burns.", nth=1)
    gone = DOC[: second.start] + "The lamp is out." + DOC[second.end :]
    after = through(second, DOC, gone)
    assert not after.fresh
    assert through(second, DOC, gone, gone + "\nMore.\n").fresh is False
    assert through(second, DOC, gone, DOC).start == second.start


def test_f7_words_that_come_back_across_the_edge_of_an_edit() -> None:
    old = "## Lamps\n\nText.\n\n### Lamps\n"
    new = "### Lamps\n\nText.\n\n### Lamps\n"
    anchor = through(pending(old, "## Lamps"), old, new, old)
    assert (anchor.fresh, anchor.start) == (True, 0)


def test_f7_what_was_moved_is_found_where_it_is_now() -> None:
    there = "Nobody counts them.\n\n" + DOC.replace("Nobody counts them.\n", "")
    anchor = through(pending(DOC, "Nobody counts them."), DOC, there)
    assert anchor.fresh
    assert anchor.start == 0


def test_f3_a_thread_finds_its_place_again_or_is_orphaned() -> None:
    anchor = pending(DOC, "The boats come late in winter, and somebody waits.")
    rewritten = DOC.replace("somebody waits", "someone is waiting")
    found = relocate(through(anchor, DOC, rewritten), rewritten)
    assert found is not None
    assert found.exact == "The boats come late in winter, and someone is waiting."
    assert relocate(through(anchor, DOC, "All gone.\n"), "All gone.\n") is None
    assert find_similar(through(anchor, DOC, "All gone.\n"), "All gone.\n") == NoMatch("absent")
