"""Two people changed one text: their edits put together, unless they touch the same words. F9"""

from __future__ import annotations

import difflib

from coterie.modes.draft.edits import TextEdit, apply_edits, edits_between


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
