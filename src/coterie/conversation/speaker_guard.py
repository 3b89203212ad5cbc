"""One voice at a time: a small model likes to go on and speak for the others, under their names. S12

A line that another's name labels (`Ana:`, `**Ana**:`) ends the reply before that line; the speaker's own label is left
out, and so is a wrong one before the very first words, which are still its answer. Words come in pieces, so the
beginning of a line that may yet turn out to be a label is held until it is clear: nobody is shown a word that is then
taken back. A voice may also have a breath, and ends with the sentence that uses it up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from coterie.conversation.length_limit import LengthLimit

_BEFORE, _AFTER = r"[\s*_\[#]*", r"[ \t*_\]]*"


class SpeakerGuard:
    def __init__(
        self, own: Iterable[str] = (), others: Iterable[str] = (), length_limit: LengthLimit | None = None
    ) -> None:
        """`own` and `others` are the names that may label a line; nothing is cut where there are none."""
        mine = set(map(str.casefold, _labels(own)))
        theirs = [name for name in _labels(others) if name.casefold() not in mine]
        self.ended = False
        """Whether another began to speak, or the breath was used up: what comes now is not said."""
        self._breath = length_limit or LengthLimit()
        self._names = tuple(mine | {name.casefold() for name in theirs})
        self._own = _pattern(_labels(own))
        self._others = _pattern(theirs)
        self._held = ""
        self._line_begins = True
        self._has_spoken = False

    def filter(self, text: str) -> str:
        """What of it, and of what was held, can be shown now."""
        if self.ended:
            return ""
        self._held += text
        shown = ""
        while self._held:
            if self._line_begins:
                if self._undecided():
                    break
                if self._has_spoken and self._others and self._others.match(self._held):
                    self.ended, self._held = True, ""
                    break
                gap = len(self._held) - len(self._held.lstrip())
                shown += self._held[:gap]
                if (label := self._label()) is not None:
                    self._held = self._held[label.end() :]
                    continue  # a label may follow a label
                self._held = self._held[gap:]
                self._line_begins = False
            # The break before a line belongs to it, and goes if the line goes.
            end = self._held.find("\n")
            end = len(self._held) if end < 0 else end
            self._has_spoken = self._has_spoken or bool(self._held[:end].strip())
            shown, self._held = shown + self._held[:end], self._held[end:]
            self._line_begins = bool(self._held)
        shown = self._breath.filter(shown)
        if self._breath.reached:
            self.ended, self._held = True, ""
        return shown

    def flush(self) -> str:
        """What is held when nothing more comes: it did not become another's label."""
        label = self._label()
        held, self._held = self._held, ""
        return self._breath.filter(held if label is None else held[: len(held) - len(held.lstrip())])

    def _label(self) -> re.Match[str] | None:
        """The label before what is held, if it is one to leave out."""
        for pattern in (self._own, None if self._has_spoken else self._others):
            if pattern and (label := pattern.match(self._held)):
                return label
        return None

    def _undecided(self) -> bool:
        if not self._names:
            return False
        if (label := self._label()) and label.end() == len(self._held):
            return True  # the space after it has yet to come
        bare = re.sub(f"^{_BEFORE}", "", self._held).casefold()
        if any(name.startswith(bare) for name in self._names):
            return True
        return any(bare.startswith(name) and re.fullmatch(_AFTER, bare[len(name) :]) for name in self._names)


def _labels(names: Iterable[str]) -> list[str]:
    """A name, and its first word: Maren Holt is also Maren."""
    told = [" ".join(name.split()) for name in names]
    firsts = [first for name in told if len(first := name.partition(" ")[0]) > 1]
    return list(dict.fromkeys(name for name in (*told, *firsts) if name))


def _pattern(names: list[str]) -> re.Pattern[str] | None:
    if not names:
        return None
    either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.compile(rf"{_BEFORE}(?:{either}){_AFTER}[:：][*_]*[ \t]*", re.IGNORECASE)
