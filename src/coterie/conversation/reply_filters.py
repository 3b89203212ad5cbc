"""Filters on streamed reply text: end it at a length limit, and keep a character from speaking for others.

Both give the same result however the text is split into chunks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_OPEN_QUOTE_ALLOWANCE = 1.5
"""By how much an open quotation or action may exceed the limit before it is closed for the speaker."""
_SENTENCE_ENDS = re.compile(r"""[.!?…][*_"'”’»)\]]*$""")
_ABBREVIATION = re.compile(r"(?:\b(?:mr|mrs|ms|dr|st)|\b[a-z])\.$", re.IGNORECASE)
_CLOSED_BY = {"*": "*", '"': '"', "“": "”", "«": "»", "(": ")"}
# A model that repeats a mark without end writes no label: without a limit, each chunk would read all of them again.
_BEFORE, _AFTER = r"[\s*_\[#]{0,1000}", r"[ \t*_\]]{0,100}"
_MAX_OPEN = 100
"""More quotations and actions are not open at once."""


class LengthLimit:
    """Ends a reply with the first sentence that reaches a word count: small models lose the thread in long ones."""

    def __init__(self, words: int | None = None) -> None:
        """`words` is None for no limit."""
        self.reached = False
        self._limit = words
        self._words = 0
        self._word: list[str] = []
        self._open: list[str] = []
        """The characters that would close the open quotations and actions, innermost last."""

    def filter(self, text: str) -> str:
        """The part of the next chunk that is within the limit."""
        if self._limit is None:
            return text
        if self.reached:
            return ""
        for position, letter in enumerate(text):
            if not letter.isspace():
                self._word.append(letter)
                self._track_quotes(letter)
            elif self._word:
                self._words += 1
                self.reached = self._is_reached(self._limit)
                self._word = []
                if self.reached:
                    return text[:position] + "".join(reversed(self._open))
        return text

    def _track_quotes(self, letter: str) -> None:
        if letter in self._open:
            self._open.remove(letter)
        elif (closing := _CLOSED_BY.get(letter)) and len(self._open) < _MAX_OPEN:
            self._open.append(closing)

    def _is_reached(self, limit: int) -> bool:
        if self._words < limit:
            return False
        word = "".join(self._word)
        if not _SENTENCE_ENDS.search(word) or _ABBREVIATION.search(word):
            return False
        return not self._open or self._words >= limit * _OPEN_QUOTE_ALLOWANCE


class SpeakerGuard:
    """Ends a reply before a line labelled with another speaker's name (`Ana:`, `**Ana**:`).

    The speaker's own label is removed, and so is a wrong one before the first words. The beginning of a line that may
    still become a label is held back, so that no shown text is taken back later.
    """

    def __init__(
        self, own: Iterable[str] = (), others: Iterable[str] = (), length_limit: LengthLimit | None = None
    ) -> None:
        """`own` and `others` are the names that may label a line; without names nothing is cut."""
        own_labels = set(map(str.casefold, _labels(own)))
        other_labels = [name for name in _labels(others) if name.casefold() not in own_labels]
        self.ended = False
        """Whether another speaker began or the length limit was reached; later text is dropped."""
        self._length_limit = length_limit or LengthLimit()
        self._names = tuple(own_labels | {name.casefold() for name in other_labels})
        self._own = _pattern(_labels(own))
        self._others = _pattern(other_labels)
        self._held = ""
        self._at_line_start = True
        self._has_text = False

    def filter(self, text: str) -> str:
        """The text that can be shown now, of the next chunk and of what was held back."""
        if self.ended:
            return ""
        self._held += text
        visible = ""
        while self._held:
            if self._at_line_start:
                if self._may_become_label():
                    break
                if self._has_text and self._others and self._others.match(self._held):
                    self.ended, self._held = True, ""
                    break
                gap = len(self._held) - len(self._held.lstrip())
                visible += self._held[:gap]
                if (label := self._label()) is not None:
                    self._held = self._held[label.end() :]
                    continue  # a label may follow a label
                self._held = self._held[gap:]
                self._at_line_start = False
            # The line break belongs to the line after it, and is dropped with that line.
            end = self._held.find("\n")
            end = len(self._held) if end < 0 else end
            self._has_text = self._has_text or bool(self._held[:end].strip())
            visible, self._held = visible + self._held[:end], self._held[end:]
            self._at_line_start = bool(self._held)
        visible = self._length_limit.filter(visible)
        if self._length_limit.reached:
            self.ended, self._held = True, ""
        return visible

    def flush(self) -> str:
        """The text still held back at the end of the stream: it did not become another's label."""
        label = self._label()
        held, self._held = self._held, ""
        return self._length_limit.filter(held if label is None else held[: len(held) - len(held.lstrip())])

    def _label(self) -> re.Match[str] | None:
        """The label at the start of the held text, if it is one to remove."""
        for pattern in (self._own, None if self._has_text else self._others):
            if pattern and (label := pattern.match(self._held)):
                return label
        return None

    def _may_become_label(self) -> bool:
        if not self._names:
            return False
        if (label := self._label()) and label.end() == len(self._held):
            return True  # the space after the label has not arrived yet
        start = re.sub(f"^{_BEFORE}", "", self._held).casefold()
        if any(name.startswith(start) for name in self._names):
            return True
        return any(start.startswith(name) and re.fullmatch(_AFTER, start[len(name) :]) for name in self._names)


def _labels(names: Iterable[str]) -> list[str]:
    """The names and their first words: "Maren Holt" is also "Maren"."""
    full = [" ".join(name.split()) for name in names]
    firsts = [first for name in full if len(first := name.partition(" ")[0]) > 1]
    return list(dict.fromkeys(name for name in (*full, *firsts) if name))


def _pattern(names: list[str]) -> re.Pattern[str] | None:
    if not names:
        return None
    either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.compile(rf"{_BEFORE}(?:{either}){_AFTER}[:：][*_]*[ \t]*", re.IGNORECASE)
