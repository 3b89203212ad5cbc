"""Cutting a long text into messages at sensible places. P5

The parts joined are the text again, to the byte. A cut is looked for, in this order, after a paragraph, a line, a
sentence, a word; inside a code block only if nothing else fits.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable

_PLACES = tuple(re.compile(pattern) for pattern in (r"\n[ \t]*\n", r"\n", r"(?<=[.!?…。！？])\s", r"\s"))
_FENCE = re.compile(r"^(?:```|~~~)", re.MULTILINE)
_LEAST = 0.3
"""A cut in the first third would leave a stub: a lesser place further on is better."""


def split_text(text: str, max_length: int, length_of: Callable[[str], int] = len) -> list[str]:
    """At least one part, none longer than `longest` by `measure`."""
    parts: list[str] = []
    while True:
        part = first_part(text, max_length, length_of)
        parts.append(part)
        text = text[len(part) :]
        if not text:
            return parts


def first_part(text: str, max_length: int, length_of: Callable[[str], int] = len) -> str:
    """All of the text if it fits, else as much as makes a sensible beginning."""
    # Nothing is measured as less than one, so what lies beyond cannot be part of it.
    window = text[: max_length + 1]
    if len(window) == len(text) and length_of(window) <= max_length:
        return text
    window = window[: _fitting(window, max_length, length_of)]
    return window[: _cut(window)]


def _fitting(text: str, longest: int, measure: Callable[[str], int]) -> int:
    """How many characters of the text are not too long; at least one, so that every part takes something."""
    low, high = 1, min(len(text), longest)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if measure(text[:middle]) <= longest else (low, middle - 1)
    return low


def _cut(window: str) -> int:
    least = int(len(window) * _LEAST)
    fences = [match.start() for match in _FENCE.finditer(window)]
    for outside_code in (True, False):
        for place in _PLACES:
            ends = [match.end() for match in place.finditer(window, least)]
            for end in reversed(ends):
                if not outside_code or bisect_right(fences, end - 1) % 2 == 0:
                    return end
    return len(window)
