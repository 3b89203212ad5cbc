"""Where a quote was found, or why it was not. F6"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

How = Literal["exact", "normalised", "markup", "ellipsis", "fuzzy"]
"""In the order they are tried; a card says which it was."""


@dataclass(frozen=True, slots=True)
class Span:
    start: int
    end: int

    def overlaps(self, other: Span) -> bool:
        return self.start < other.end and other.start < self.end

    def holds(self, other: Span) -> bool:
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class Found:
    span: Span
    how: How
    score: float = 1.0
    """How much of the quote agrees."""


@dataclass(frozen=True, slots=True)
class Missing:
    why: Literal["absent", "ambiguous"]
    times: int = 0
    """How often it was found, where it was found too often."""


Placing = Found | Missing
