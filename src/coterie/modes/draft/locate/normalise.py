"""A text with what does not matter taken out, and the way back to where each character stood. F6

Two depths: `plain` evens out white space, quotes and dashes; `bare` drops Markdown's own signs as well, so that words
quoted from a rendered page are found in its source.
"""

from __future__ import annotations

import functools
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from coterie.modes.draft.diff import Span

Level = Literal["plain", "bare"]

_EVEN = {
    **dict.fromkeys("‘’‚‛′´", "'"),
    **dict.fromkeys("“”„‟″«»", '"'),
    **dict.fromkeys("‐‑‒–—―−", "-"),
    "…": "...",
}
_GONE = "\u00ad\u200b\u200c\u200d\u2060\ufeff"
"""Characters of no width."""

_PLAIN = rf"(?P<space>\s+)|(?P<gone>[{_GONE}])|(?P<even>[‘’‚‛′´“”„‟″«»‐‑‒–—―−…]|-{{2,3}}(?!-))"
_PLAIN_TOKENS = re.compile(_PLAIN)
_BARE_TOKENS = re.compile(
    r"(?P<sign>(?:(?<=\s)|\A)[-*+>#]{1,6}(?=\s))"
    r"|(?P<dropped>\\[*_`~\[\]])|\\(?P<escaped>[!-/:-@\\^{|}])"
    r"|(?P<link>\]\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|\]\[[^\]\n]*\])"
    r"|(?P<fence>```+)|(?P<markup>[*_~]+|`{1,2}|!?\[|\])"
    f"|{_PLAIN}"
)
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")


@dataclass(frozen=True)
class NormalisedText:
    source: str
    text: str
    starts: array[int]
    """Where in the source each character of the text begins …"""
    ends: array[int]
    """… and ends."""

    def find_all(self, wanted: str, limit: int = 50) -> list[int]:
        found: list[int] = []
        at = self.text.find(wanted)
        while at >= 0 and len(found) < limit:
            found.append(at)
            at = self.text.find(wanted, at + 1)
        return found

    def to_source(self, start: int, end: int) -> tuple[int, int]:
        """Where a stretch of the text stands in the source."""
        return self.starts[start], self.ends[end - 1]

    def from_source(self, start: int, end: int) -> tuple[int, int]:
        """The stretch of the text that a stretch of the source became."""
        return bisect_left(self.starts, start), bisect_right(self.ends, end)


@functools.lru_cache(maxsize=64)
def normalise(source: str, depth: Level) -> NormalisedText:
    parts: list[str] = []
    starts, ends = array("l"), array("l")
    at, blank = 0, True

    def keep(told: str, start: int, end: int) -> None:
        parts.append(told)
        for _ in told:
            starts.append(start)
            ends.append(end)

    def keep_all(start: int, end: int) -> None:
        parts.append(source[start:end])
        starts.extend(range(start, end))
        ends.extend(range(start + 1, end + 1))

    for token in (_PLAIN_TOKENS if depth == "plain" else _BARE_TOKENS).finditer(source):
        start, end = token.span()
        if at < start:
            keep_all(at, start)
            blank = False
        at = end
        match token.lastgroup:
            case "space":
                if not blank:
                    keep(" ", start, end)
                    blank = True
            case "even":
                keep(_EVEN.get(token.group(), "-"), start, end)
                blank = False
            case "fence":
                keep_all(start, end)
                blank = False
            case "escaped":
                keep(token.group("escaped"), start, end)
                blank = False
            case _:
                pass
    if at < len(source):
        keep_all(at, len(source))
    return NormalisedText(source, "".join(parts), starts, ends)


def unescape(quote: str) -> str:
    """Without backslashes in front of punctuation: some models escape what they quote."""
    return _ESCAPE.sub(r"\1", quote)


# Where exactly a quote begins and ends, once it is known about where it stands. F6
#
# An alignment of characters is blurred at its ends when the first or last words are wrong. Words that agree are firm
# ground: from the outermost of them the remaining words are counted off, but never across the edge of a paragraph.
# Markdown's signs at the edges belong to the span when it is balanced with them.


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
