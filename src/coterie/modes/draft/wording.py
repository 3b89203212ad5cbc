"""What a proposal changes, word by word: struck, put in, or left. F14"""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from itertools import groupby
from typing import Literal

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
