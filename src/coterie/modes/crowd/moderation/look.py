"""One pass over a message for everything that is looked for: words of the lists, disguises, what might be taken out.

Ordinary chat has none of it, and that is known after a microsecond. All hints are looked for in the folded text, which
has whatever hint the message itself has, and those it disguises besides.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import ahocorasick_rs

from coterie.modes.crowd.moderation import links, normalise, redaction
from coterie.modes.crowd.moderation.wordlist import MASKS, Matcher, Wordlist, WordlistEntry


class ScanResult(NamedTuple):
    worst: WordlistEntry | None
    """In the plain reading."""
    disguises: bool
    """Whether other readings are worth making."""
    private: list[int]
    """Hints at what is taken out, each as often as it was seen."""


NOTHING_FOUND = ScanResult(None, disguises=False, private=[])
"""Plain ASCII without a word of the lists, a disguise, a mask, a link or anything private."""


class MessageScanner:
    def __init__(self, lists: Iterable[Wordlist]) -> None:
        self.matcher = Matcher(lists)
        self._words = len(self.matcher.entries)
        self._disguises = self._words + len(normalise.DISGUISE_HINTS)
        words = (entry.text for entry in self.matcher.entries)
        self._private = self._disguises + len(redaction.REDACTION_HINTS)
        hints = (*normalise.DISGUISE_HINTS, *redaction.REDACTION_HINTS, *MASKS, *links.LINK_HINTS)
        self._automaton = ahocorasick_rs.AhoCorasick([*words, *hints])

    def scan(self, plain: str) -> ScanResult:
        """Look at a folded text."""
        padded = f" {plain} "
        found = self._automaton.find_matches_as_indexes(padded, overlapping=True)
        if not found and plain.isascii():
            return NOTHING_FOUND
        words: list[tuple[int, int, int]] = []
        private: list[int] = []
        disguises = not plain.isascii()
        for match in found:
            index = match[0]
            if index < self._words:
                words.append(match)
            elif index < self._disguises:
                disguises = True
            elif index < self._private:
                private.append(index - self._disguises)
        return ScanResult(self.matcher.worst(padded, words) if words else None, disguises, private)
