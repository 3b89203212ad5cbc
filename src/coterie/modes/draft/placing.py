"""Where a quote was found, or why it was not. F6"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MatchKind = Literal["exact", "normalised", "markup", "ellipsis", "fuzzy"]
"""In the order they are tried; a card says which it was."""


@dataclass(frozen=True, slots=True)
class Span:
    start: int
    end: int

    def overlaps(self, other: Span) -> bool:
        return self.start < other.end and other.start < self.end

    def contains(self, other: Span) -> bool:
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class Match:
    span: Span
    how: MatchKind
    score: float = 1.0
    """How much of the quote agrees."""


@dataclass(frozen=True, slots=True)
class NoMatch:
    reason: Literal["absent", "ambiguous"]
    count: int = 0
    """How often it was found, where it was found too often."""


MatchResult = Match | NoMatch
