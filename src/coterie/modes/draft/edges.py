"""Where exactly a quote begins and ends, once it is known about where it stands. F6

An alignment of characters is blurred at its ends when the first or last words are wrong. Words that agree are firm
ground: from the outermost of them the remaining words are counted off, but never across the edge of a paragraph.
Markdown's signs at the edges belong to the span when it is balanced with them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from coterie.modes.draft.normal import NormalisedText, unescape
from coterie.modes.draft.placing import Span

WordSpan = tuple[int, int]
_LOOK_FURTHER = 6
"""Words that a quote may have left out next to its edge."""
_WORD = re.compile(r"\S+")
_BLANK_LINE = re.compile(r"\n[ \t>]*\n")
_BLOCK_EDGE = re.compile(r"\n[ \t>]*\n|\n[ \t]*(?:[-*+>]|#{1,6}|\d{1,3}[.)])[ \t]")
_SNAP = 2
_OPENING = re.compile(r"(?:[*_~]+|`{1,2}(?!`)|!?\[)+\Z")
_CLOSING_SIGN = r"[*_~]+|`{1,2}(?!`)|\]\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|\]\[[^\]\n]*\]|\]"
_CLOSING = re.compile(rf"(?:{_CLOSING_SIGN})+")
_CLOSING_AFTER_SPACE = re.compile(rf"(?:[ \t]*(?:{_CLOSING_SIGN}))+")
_SIGN = re.compile(r"[ \t]*(?:[-*+>#]{1,6}[ \t]+)+")
_BULLETS = re.compile(r"^[ \t>]*[-*+][ \t]", re.MULTILINE)
_SEVERAL_BLOCKS = re.compile(r"\S\s+[-*+>#]{1,6}\s")


def word_spans(text: str) -> list[WordSpan]:
    return [found.span() for found in _WORD.finditer(text)]


def block_boundary(quote: str) -> re.Pattern[str]:
    """What a quote's edges must not be moved across: a list item's end, unless the quote itself holds several."""
    return _BLANK_LINE if _SEVERAL_BLOCKS.search(quote) else _BLOCK_EDGE


def extend_by_words(
    document: NormalisedText,
    words: Sequence[WordSpan],
    firm: int,
    missing: Sequence[str],
    step: int,
    edge_of: re.Pattern[str],
) -> int:
    """The word with which a quote begins (step -1) or ends (step 1), seen from a firm one.

    `missing` are the quote's words from there outward. The outermost is looked for nearby; where it is nowhere, it
    was itself wrong, and as many words are counted off as are missing. Neither leaves the paragraph.
    """
    if not missing:
        return firm
    expected, at, edge = firm, firm, False
    near: list[int] = []
    for count in range(1, len(missing) + _LOOK_FURTHER + 1):
        beyond = at + step
        if not 0 <= beyond < len(words) or _parted(document, words[min(at, beyond)], words[max(at, beyond)], edge_of):
            edge = True
            break
        at = beyond
        if count <= len(missing):
            expected = at
        if document.text[slice(*words[at])].lower() == missing[-1].lower():
            near.append(at)
    if near:
        return min(near, key=lambda place: abs(place - expected))
    # Where the words at an edge are wrong anyway, a paragraph's own edge close by is the better guess.
    return at if edge and abs(at - expected) <= _SNAP else expected


def include_markup(document: NormalisedText, start: int, end: int, quote: str) -> Span:
    """A stretch of the bare text as a span of the source, with the signs at its edges that belong to it."""
    source = document.source
    left, right = document.to_source(start, end)
    opened = _OPENING.search(source, max(0, left - 12), left)
    closed = _CLOSING.match(source, right)
    wide_left = opened.start() if opened else left
    wide_right = closed.end() if closed else right
    further = _CLOSING_AFTER_SPACE.match(source, right)
    widest_right = further.end() if further else right
    choices = [(wide_left, wide_right), (wide_left, right), (left, wide_right), (left, right)]
    # A sign after a space may as well open what comes next: only where everything closes by it does it belong here.
    balanced = [*choices, (wide_left, widest_right), (left, widest_right)]
    left, right = next((choice for choice in balanced if _balanced(source[slice(*choice)])), choices[0])
    if _SIGN.match(unescape(quote)):
        # The quote has its bullet or heading sign, so the span has it too.
        line = source.rfind("\n", 0, left) + 1
        if _SIGN.fullmatch(source, line, left):
            left = line + len(source[line:left]) - len(source[line:left].lstrip(" \t"))
    return Span(left, right)


def _parted(document: NormalisedText, before: WordSpan, after: WordSpan, edge_of: re.Pattern[str]) -> bool:
    gap = document.source[document.ends[before[1] - 1] : document.starts[after[0]] + 1]
    return edge_of.search(gap) is not None


def _balanced(text: str) -> bool:
    text = _BULLETS.sub("", text)
    even = all(text.count(sign) % 2 == 0 for sign in "*_`")
    return even and text.count("[") == text.count("]")
