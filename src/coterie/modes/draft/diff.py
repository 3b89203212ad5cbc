"""Where a quote was found, or why it was not. F6"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Literal

import pygit2

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


# What changed between two texts, and where a place in the old one is in the new one. F3, F7
#
# Lines are compared by libgit2, quickly and minimally; what two lines of a hunk have in common at their edges is not part
# of the edit. An accepted proposal is an edit that is known exactly and needs no comparing.


@dataclass(frozen=True, slots=True)
class TextEdit:
    """The old text from `start` to `end` gave way to `text`."""

    start: int
    end: int
    text: str

    @property
    def length_change(self) -> int:
        return len(self.text) - (self.end - self.start)


def edits_between(old: str, new: str) -> list[TextEdit]:
    """In the old text's order, none touching another."""
    if old == new:
        return []
    before, after = _lines(old), _lines(new)
    patch = pygit2.Patch.create_from(
        old.encode("utf-8", "surrogatepass"), new.encode("utf-8", "surrogatepass"), context_lines=0, interhunk_lines=0
    )
    found: list[TextEdit] = []
    for hunk in patch.hunks:
        old_from = hunk.old_start - 1 if hunk.old_lines else hunk.old_start
        new_from = hunk.new_start - 1 if hunk.new_lines else hunk.new_start
        start, end = before[old_from], before[old_from + hunk.old_lines]
        text = new[after[new_from] : after[new_from + hunk.new_lines]]
        found.append(_trimmed(old, start, end, text))
    return found


def apply_edits(text: str, edits: Sequence[TextEdit]) -> str:
    for edit in reversed(edits):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


class SpanMap:
    """Places of an old text in the new one."""

    def __init__(self, edits: Sequence[TextEdit]) -> None:
        self._edits = edits
        self._starts = [edit.start for edit in edits]
        self._shifts = [0]
        for edit in edits:
            self._shifts.append(self._shifts[-1] + edit.length_change)

    def map_unchanged(self, span: Span) -> Span | None:
        """Where it is now; None if something in it changed. What is put in at its very edge leaves it as it is."""
        shift = 0
        for number in range(max(0, bisect_left(self._starts, span.start) - 1), len(self._edits)):
            edit = self._edits[number]
            if edit.start >= span.end:
                break
            if edit.end > span.start and (edit.start < edit.end or edit.start > span.start):
                return None
        shift = self._shifts[self._before(span.start)]
        return Span(span.start + shift, span.end + shift)

    def map_covering(self, span: Span) -> Span:
        """The stretch of the new text that stands where it stood, with all that was put in there."""
        first, last = self._place(span.start, low=True), self._place(span.end, low=False)
        return Span(first, max(first, last))

    def _before(self, place: int) -> int:
        """How many edits lie wholly before a place."""
        count = bisect_left(self._starts, place)
        while count and self._edits[count - 1].end > place:
            count -= 1
        while count < len(self._edits) and self._edits[count].end <= place:
            count += 1
        return count

    def _place(self, place: int, *, low: bool) -> int:
        number = bisect_left(self._starts, place) - (1 if low else 0)
        for at in (number, number + 1) if low else (number, number - 1):
            if 0 <= at < len(self._edits) and self._edits[at].start <= place <= self._edits[at].end:
                start = self._edits[at].start + self._shifts[at]
                return start if low else start + len(self._edits[at].text)
        return place + self._shifts[self._before(place)]


def _lines(text: str) -> list[int]:
    """Where each line begins, and where the last one ends."""
    starts = [0]
    for line in text.split("\n")[:-1]:
        starts.append(starts[-1] + len(line) + 1)
    if starts[-1] < len(text) or not text:
        starts.append(len(text))
    return starts


def _trimmed(old: str, start: int, end: int, text: str) -> TextEdit:
    replaced = old[start:end]
    head = _shared(replaced, text)
    tail = _shared(replaced[head:][::-1], text[head:][::-1])
    return TextEdit(start + head, end - tail, text[head : len(text) - tail])


def _shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (mine, yours) in pairs if mine != yours), min(len(one), len(other)))


# Two people changed one text: their edits put together, unless they touch the same words. F9


def merge_texts(base: str, ours: str, theirs: str) -> str | None:
    """What `ours` becomes when what `theirs` changed since `base` is done to it too; None if that cannot be told."""
    mine, yours = edits_between(base, ours), edits_between(base, theirs)
    together: list[TextEdit] = []
    while mine and yours:
        if mine[0] == yours[0]:
            together.append(mine.pop(0))
            yours.pop(0)
        elif _apart(mine[0], yours[0]):
            together.append((mine if mine[0].start < yours[0].start else yours).pop(0))
        else:
            return None
    return apply_edits(base, [*together, *mine, *yours])


def unified_diff(ours: str, theirs: str, name: str) -> str:
    """For a person to read: what stands there now, and what they wanted."""
    lines = difflib.unified_diff(
        ours.splitlines(keepends=True), theirs.splitlines(keepends=True), f"{name} as it is", f"{name} as you have it"
    )
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def _apart(one: TextEdit, other: TextEdit) -> bool:
    """Whether something stands between two edits: what meets at a point has no order."""
    return one.end < other.start or other.end < one.start


# What a proposal changes, word by word: struck, put in, or left. F14


Mark = Literal["-", "+", " "]
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_MOST_WORDS = 600
"""Beyond that words are not compared but lines: it would take too long, and nobody could read it."""
_HARDLY_ALIKE = 0.35


@lru_cache(maxsize=1_024)
def word_diff(original: str, proposed: str) -> tuple[tuple[Mark, str], ...]:
    """In order; without what was put in it is the original, without what was struck the proposal."""
    by = _WORDS if len(original) + len(proposed) < 6 * _MOST_WORDS else _LINES
    old, new = by.findall(original), by.findall(proposed)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    if len(old) > _MOST_WORDS or matcher.ratio() < _HARDLY_ALIKE:
        # Hardly a word is the same: one struck and one put in read better than a patchwork.
        return _joined([("-", original), ("+", proposed)])
    found: list[tuple[Mark, str]] = []
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            found.append((" ", "".join(old[a:b])))
        else:
            found += [("-", "".join(old[a:b])), ("+", "".join(new[c:d]))]
    return _joined(found)


def _joined(found: list[tuple[Mark, str]]) -> tuple[tuple[Mark, str], ...]:
    told = [piece for piece in found if piece[1]]
    return tuple((mark, "".join(text for _, text in run)) for mark, run in groupby(told, key=lambda piece: piece[0]))
