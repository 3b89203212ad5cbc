"""Differences between texts: edits, positions after edits, three-way merge, word diff.

Lines are compared by libgit2; the common start and end of a changed hunk are not part of the edit. Long texts are
compared in a worker process: libgit2 takes seconds for many repeated lines, and nothing else runs meanwhile.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Literal

import pygit2

from coterie.base.errors import TooMuchWork, WorkersBusy
from coterie.base.offload import run_limited_blocking

_SHORT_CHARS = 100_000
"""Texts of this length together are compared in 0.2 seconds at most, however they are made."""
_COMPARE_S = 10.0


@dataclass(frozen=True, slots=True)
class Span:
    """Character offsets in a text, the end excluded."""

    start: int
    end: int

    def overlaps(self, other: Span) -> bool:
        return self.start < other.end and other.start < self.end

    def contains(self, other: Span) -> bool:
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class TextEdit:
    """Replaces the old text from `start` to `end` by `text`."""

    start: int
    end: int
    text: str

    @property
    def length_change(self) -> int:
        return len(self.text) - (self.end - self.start)


def edits_between(old: str, new: str) -> list[TextEdit]:
    """The edits that turn one text into the other, in order, never adjacent.

    If comparing the lines of long texts takes too long, everything between their common start and end is one edit.
    """
    if old == new:
        return []
    if len(old) + len(new) <= _SHORT_CHARS:
        return _compare_lines(old, new)
    head = old.rfind("\n", 0, _common_prefix(old, new)) + 1
    tail = _common_prefix(old[head:][::-1], new[head:][::-1])
    # The common end begins with a whole line.
    tail = len(old) - (old.find("\n", len(old) - tail) + 1 or len(old)) if tail else 0
    changed = old[head : len(old) - tail], new[head : len(new) - tail]
    if sum(map(len, changed)) <= _SHORT_CHARS:
        edits = _compare_lines(*changed)
    elif _on_event_loop():
        edits = [_without_common_ends(changed[0], 0, len(changed[0]), changed[1])]
    else:
        try:
            edits = run_limited_blocking("Comparing two texts", _COMPARE_S, _compare_lines, *changed)
        except (TooMuchWork, WorkersBusy):
            edits = [_without_common_ends(changed[0], 0, len(changed[0]), changed[1])]
    return [TextEdit(head + edit.start, head + edit.end, edit.text) for edit in edits]


def _on_event_loop() -> bool:
    """Whether waiting for a worker process would make the event loop wait."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _compare_lines(old: str, new: str) -> list[TextEdit]:
    old_lines, new_lines = _line_starts(old), _line_starts(new)
    patch = pygit2.Patch.create_from(
        old.encode("utf-8", "surrogatepass"), new.encode("utf-8", "surrogatepass"), context_lines=0, interhunk_lines=0
    )
    edits: list[TextEdit] = []
    for hunk in patch.hunks:
        old_line = hunk.old_start - 1 if hunk.old_lines else hunk.old_start
        new_line = hunk.new_start - 1 if hunk.new_lines else hunk.new_start
        start, end = old_lines[old_line], old_lines[old_line + hunk.old_lines]
        text = new[new_lines[new_line] : new_lines[new_line + hunk.new_lines]]
        edits.append(_without_common_ends(old, start, end, text))
    return edits


def apply_edits(text: str, edits: Sequence[TextEdit]) -> str:
    """The text after edits, which are in order and do not overlap."""
    parts: list[str] = []
    position = 0
    for edit in edits:
        parts += [text[position : edit.start], edit.text]
        position = edit.end
    return "".join([*parts, text[position:]])


class SpanMap:
    """Maps spans of an old text to the new one."""

    def __init__(self, edits: Sequence[TextEdit]) -> None:
        self._edits = edits
        self._starts = [edit.start for edit in edits]
        self._shifts = [0]
        for edit in edits:
            self._shifts.append(self._shifts[-1] + edit.length_change)

    def map_unchanged(self, span: Span) -> Span | None:
        """The span in the new text; None if an edit changed its text. An insertion at its edge does not."""
        for number in range(max(0, bisect_left(self._starts, span.start) - 1), len(self._edits)):
            edit = self._edits[number]
            if edit.start >= span.end:
                break
            if edit.end > span.start and (edit.start < edit.end or edit.start > span.start):
                return None
        shift = self._shifts[self._edits_before(span.start)]
        return Span(span.start + shift, span.end + shift)

    def map_covering(self, span: Span) -> Span:
        """The part of the new text that took the span's place, with everything inserted there."""
        first, last = self._map_offset(span.start, low=True), self._map_offset(span.end, low=False)
        return Span(first, max(first, last))

    def _edits_before(self, offset: int) -> int:
        """The number of edits entirely before an offset."""
        count = bisect_left(self._starts, offset)
        while count and self._edits[count - 1].end > offset:
            count -= 1
        while count < len(self._edits) and self._edits[count].end <= offset:
            count += 1
        return count

    def _map_offset(self, offset: int, *, low: bool) -> int:
        """An offset inside an edit maps to the edit's new start (`low`) or end."""
        number = bisect_left(self._starts, offset) - (1 if low else 0)
        for index in (number, number + 1) if low else (number, number - 1):
            if 0 <= index < len(self._edits) and self._edits[index].start <= offset <= self._edits[index].end:
                start = self._edits[index].start + self._shifts[index]
                return start if low else start + len(self._edits[index].text)
        return offset + self._shifts[self._edits_before(offset)]


def _line_starts(text: str) -> list[int]:
    """The offset of each line, and of the end of the last one."""
    starts = [0]
    for line in text.split("\n")[:-1]:
        starts.append(starts[-1] + len(line) + 1)
    if starts[-1] < len(text) or not text:
        starts.append(len(text))
    return starts


def _without_common_ends(old: str, start: int, end: int, text: str) -> TextEdit:
    replaced = old[start:end]
    head = _common_prefix(replaced, text)
    tail = _common_prefix(replaced[head:][::-1], text[head:][::-1])
    return TextEdit(start + head, end - tail, text[head : len(text) - tail])


def _common_prefix(one: str, other: str) -> int:
    """The length of the common start, by bisection: slices are compared much faster than characters."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# --- merging -------------------------------------------------------------------------------------------------


def merge_texts(base: str, ours: str, theirs: str) -> str | None:
    """Three-way merge; None if both sides changed the same or adjacent text differently."""
    our_edits, their_edits = deque(edits_between(base, ours)), deque(edits_between(base, theirs))
    merged: list[TextEdit] = []
    while our_edits and their_edits:
        if our_edits[0] == their_edits[0]:
            merged.append(our_edits.popleft())
            their_edits.popleft()
        elif _separate(our_edits[0], their_edits[0]):
            merged.append((our_edits if our_edits[0].start < their_edits[0].start else their_edits).popleft())
        else:
            return None
    return apply_edits(base, [*merged, *our_edits, *their_edits])


def merge_keeping_both(base: str, ours: str, theirs: str) -> str:
    """Three-way merge without conflicts: where both sides changed one place, our text and then theirs."""
    our_edits, their_edits = set(edits_between(base, ours)), set(edits_between(base, theirs))
    merged: list[TextEdit] = []
    for edit in sorted(our_edits | their_edits, key=lambda edit: (edit.start, edit.end, edit in their_edits)):
        last = merged[-1] if merged else None
        if last is None or edit.start > last.end or (edit.start == last.end and last.start < last.end):
            merged.append(edit)
        else:
            merged[-1] = TextEdit(last.start, max(last.end, edit.end), last.text + edit.text)
    return apply_edits(base, merged)


def _separate(one: TextEdit, other: TextEdit) -> bool:
    """Whether there is text between two edits. Two insertions at one offset have no defined order."""
    return one.end < other.start or other.end < one.start


# --- diffs for people ----------------------------------------------------------------------------------------


def unified_diff(current: str, wanted: str, name: str) -> str:
    try:
        patch = patch_text(current.encode("utf-8", "surrogatepass"), wanted.encode("utf-8", "surrogatepass"))
    except (TooMuchWork, WorkersBusy):
        patch = "(The difference is too large to be shown.)\n"
    if not patch:
        return ""
    return f"--- {name} as it is\n+++ {name} as you have it\n{patch}"


def patch_text(old: bytes, new: bytes) -> str:
    """The changed lines as a patch, without its header. Raises `TooMuchWork` or `WorkersBusy` for long texts."""
    if len(old) + len(new) <= _SHORT_CHARS:
        return _patch_text(old, new)
    return run_limited_blocking("Comparing two texts", _COMPARE_S, _patch_text, old, new)


def _patch_text(old: bytes, new: bytes) -> str:
    patch = pygit2.Patch.create_from(old, new, context_lines=3)
    text = (patch.data or b"").decode("utf-8", "replace")
    hunks = text.find("\n@@ ") + 1
    return text[hunks:] if hunks else ""


DiffMark = Literal["-", "+", " "]
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_MAX_WORDS = 600
"""Longer texts are compared by lines, which is faster and easier to read."""
_MIN_SIMILARITY = 0.35


@lru_cache(maxsize=1_024)
def word_diff(original: str, proposed: str) -> tuple[tuple[DiffMark, str], ...]:
    """Deleted, inserted and unchanged words in order."""
    tokens = _WORDS if len(original) + len(proposed) < 6 * _MAX_WORDS else _LINES
    old, new = tokens.findall(original), tokens.findall(proposed)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    if len(old) > _MAX_WORDS or len(old) * len(new) > _MAX_WORDS**2 or matcher.ratio() < _MIN_SIMILARITY:
        # One deletion and one insertion are easier to read than many small ones.
        return _join_runs([("-", original), ("+", proposed)])
    parts: list[tuple[DiffMark, str]] = []
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            parts.append((" ", "".join(old[a:b])))
        else:
            parts += [("-", "".join(old[a:b])), ("+", "".join(new[c:d]))]
    return _join_runs(parts)


def _join_runs(parts: list[tuple[DiffMark, str]]) -> tuple[tuple[DiffMark, str], ...]:
    nonempty = [part for part in parts if part[1]]
    return tuple((mark, "".join(text for _, text in run)) for mark, run in groupby(nonempty, key=lambda part: part[0]))
