"""Snippets of search results."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coterie.conversation.search import snippet


def test_s17_a_snippet_is_plain_text_with_the_words_marked() -> None:
    parts = snippet(f"{'long ago ' * 20}<b>the Sailor</b> sailed {'away ' * 60}", ["sail"])
    assert [piece.text for piece in parts if piece.hit] == ["Sailor", "sailed"]
    assert parts[0].text == parts[-1].text == "…"
    assert "<b>the " in "".join(piece.text for piece in parts)


@given(st.text(max_size=400), st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4))
def test_s17_law_a_snippet_is_a_part_of_the_text(text: str, words: list[str]) -> None:
    parts = snippet(text, words)
    inner = "".join(piece.text for piece in parts).strip("…")
    assert inner.strip("…") in " ".join(text.split()).strip("…") or "…" in text
