"""A text with what does not matter taken out, and the way back to where each character stood. F6

Two depths: `plain` evens out white space, quotes and dashes; `bare` drops Markdown's own signs as well, so that words
quoted from a rendered page are found in its source.
"""

from __future__ import annotations

import functools
import re
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Literal

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
