"""Lists of what a room does not want to hear: plain files, one entry a line, a severity for each file.

`word` is that word alone, `word*` the word with any ending, `*word*` the letters anywhere; a blank inside makes it a
phrase. A list may be written in ROT13, so that whoever edits its neighbour need not read it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import ahocorasick_rs

from coterie.base.errors import ConfigError
from coterie.modes.crowd.moderation.normalise import fold

_HEADER = re.compile(r"#\s*(severity|encoding|reason):\s*(.+)")
MASKS = ("*", "#")
"""What stands for a letter that is not written."""
_ENDINGS = frozenset(["", "s", "es", "z"])


@dataclass(frozen=True)
class WordlistEntry:
    text: str
    anywhere: bool
    any_ending: bool
    list: str
    severity: int
    reason: str


@dataclass(frozen=True)
class Wordlist:
    name: str
    severity: int
    reason: str
    entries: tuple[WordlistEntry, ...]


def read_wordlists(folders: Iterable[Path]) -> list[Wordlist]:
    """Every list in these folders. A later folder's file replaces an earlier one of the same name."""
    files = {file.name: file for folder in folders for file in sorted(folder.glob("*.txt"))}
    return [_read(file) for _, file in sorted(files.items())]


def _read(file: Path) -> Wordlist:
    told = {"severity": "2", "encoding": "plain", "reason": f"It is on the list {file.stem}."}
    words: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if header := _HEADER.match(line):
            told[header[1]] = header[2].strip()
        elif line.strip() and not line.startswith("#"):
            words.append(line.strip())
    if told["severity"] not in ("1", "2", "3") or told["encoding"] not in ("plain", "rot13"):
        raise ConfigError(
            f"The moderation list {file} has a severity or an encoding that is unknown.",
            "Write `# severity: 1`, 2 or 3, and `# encoding: plain` or rot13.",
        )
    severity = int(told["severity"])
    if told["encoding"] == "rot13":
        words = [codecs.decode(word, "rot13") for word in words]
    entries = tuple(
        WordlistEntry(
            fold(word.strip("*")), word.startswith("*"), word.endswith("*"), file.stem, severity, told["reason"]
        )
        for word in words
    )
    return Wordlist(file.stem, severity, told["reason"], entries)


class Matcher:
    """All lists as one automaton. The cost of a message does not depend on how long the lists are."""

    def __init__(self, lists: Iterable[Wordlist]) -> None:
        self.entries: list[WordlistEntry] = [entry for each in lists for entry in each.entries if entry.text]
        patterns = [entry.text for entry in self.entries]
        self._automaton = ahocorasick_rs.AhoCorasick(patterns) if patterns else None
        self._by_length: dict[int, list[WordlistEntry]] = {}
        for entry in self.entries:
            self._by_length.setdefault(len(entry.text), []).append(entry)

    def find(self, reading: str) -> WordlistEntry | None:
        """The worst entry in a reading that has its word boundaries."""
        if self._automaton is None:
            return None
        return self.worst(reading, self._automaton.find_matches_as_indexes(reading, overlapping=True))

    def worst(self, reading: str, matches: Iterable[tuple[int, int, int]]) -> WordlistEntry | None:
        """The same where the letters were found already: which entry's, from where, to where."""
        worst: WordlistEntry | None = None
        for index, start, end in matches:
            entry = self.entries[index]
            if (worst is None or entry.severity > worst.severity) and (
                entry.anywhere or _is_whole_word(reading, start, end, entry)
            ):
                worst = entry
        return worst

    def find_masked(self, word: str) -> WordlistEntry | None:
        """The entry that a word with stars for letters stands for: there must be letters enough to tell."""
        if sum(letter.isalpha() for letter in word) < 2:
            return None
        for entry in self._by_length.get(len(word), ()):
            if all(mine in ("*", "#", "_") or mine == theirs for mine, theirs in zip(word, entry.text, strict=True)):
                return entry
        return None


def _is_whole_word(reading: str, start: int, end: int, entry: WordlistEntry) -> bool:
    if start and (reading[start - 1].isalnum()):
        return False
    if entry.any_ending or end == len(reading) or not reading[end].isalnum():
        return True
    stop = end
    while stop < len(reading) and reading[stop].isalnum():
        stop += 1
    return reading[end:stop] in _ENDINGS
