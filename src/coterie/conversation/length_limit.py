"""A breath: how much is said in one go. A small model loses its thread in a long reply, so there the reply ends with
the sentence that uses the breath up; a quotation or an action that is still open is let finish, within reason.

Words come in pieces, and where they are cut makes no difference.
"""

from __future__ import annotations

import re

_LONGER = 1.5
"""By how much an open quotation may exceed the breath before it is closed for the speaker."""
_SENTENCE_ENDS = re.compile(r"""[.!?…][*_"'”’»)\]]*$""")
_GOES_ON = re.compile(r"(?:\b(?:mr|mrs|ms|dr|st)|\b[a-z])\.$", re.IGNORECASE)
_CLOSED_BY = {"*": "*", '"': '"', "“": "”", "«": "»", "(": ")"}


class LengthLimit:
    def __init__(self, words: int | None = None) -> None:
        """As many words, and to the end of the sentence; None for as long as one likes."""
        self.reached = False
        self._limit = words
        self._words = 0
        self._word = ""
        self._open: list[str] = []
        """What would close the quotations and actions that were begun, the last one last."""

    def filter(self, text: str) -> str:
        """What of it is still within the breath."""
        if self._limit is None:
            return text
        if self.reached:
            return ""
        for place, letter in enumerate(text):
            if not letter.isspace():
                self._word += letter
                self._mark(letter)
            elif self._word:
                self._words += 1
                self.reached = self._is_used_up(self._limit)
                self._word = ""
                if self.reached:
                    return text[:place] + "".join(reversed(self._open))
        return text

    def _mark(self, letter: str) -> None:
        if letter in self._open:
            self._open.remove(letter)
        elif closing := _CLOSED_BY.get(letter):
            self._open.append(closing)

    def _is_used_up(self, limit: int) -> bool:
        if self._words < limit or not _SENTENCE_ENDS.search(self._word) or _GOES_ON.search(self._word):
            return False
        return not self._open or self._words >= limit * _LONGER
