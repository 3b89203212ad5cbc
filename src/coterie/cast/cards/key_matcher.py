"""Whether a lorebook's key occurs in a text. Patterns come from strangers, so each has a moment and all of them
together a longer one: a pattern made to run for years simply does not match, and is named.
"""

from __future__ import annotations

import math
import time
from functools import lru_cache

import regex

from coterie.cast.cards.lorebook import LorebookEntry

PATTERN_SECONDS = 0.05
SCAN_SECONDS = 0.5
_LONGEST_PATTERN = 2_000
_MOST_REPEATS = 5_000
"""The product of all counted repeats; a compiler may unroll them."""

_FLAGS = {"i": regex.IGNORECASE, "m": regex.MULTILINE, "s": regex.DOTALL, "g": 0, "u": 0, "y": 0}
_SLASHED = regex.compile(r"/(?P<pattern>.+)/(?P<flags>[a-z]*)", regex.DOTALL)
_COUNTED = regex.compile(r"\{\s*(\d*)\s*,?\s*(\d*)\s*\}")


class KeyMatcher:
    """Matches keys during one scan, within one allowance of time."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        """Patterns that could not be used, and why."""
        self._spent = 0.0
        self._text = self._folded = ""

    def is_match(self, key: str, text: str, entry: LorebookEntry) -> bool:
        slashed = _SLASHED.fullmatch(key) if key.startswith("/") else None
        if (entry.use_regex and (slashed or not entry.plain_keys)) or (entry.plain_keys and slashed):
            pattern, flags = (slashed["pattern"], slashed["flags"]) if slashed else (key, "")
            return self._matches(pattern, flags if entry.case_sensitive or slashed else "i", text)
        if entry.whole_words:
            return _has_word(key, text, case_sensitive=entry.case_sensitive)
        return key in text if entry.case_sensitive else key.casefold() in self._without_case(text)

    def _without_case(self, text: str) -> str:
        if text is not self._text:
            self._text, self._folded = text, text.casefold()
        return self._folded

    def _matches(self, pattern: str, flags: str, text: str) -> bool:
        if pattern in self.refused:
            return False
        left = min(PATTERN_SECONDS, SCAN_SECONDS - self._spent)
        if left <= 0:
            self.refused[pattern] = "the patterns of this book took too long together"
            return False
        started = time.perf_counter()
        try:
            return _compiled(pattern, flags).search(text, timeout=left) is not None
        except TimeoutError:
            self.refused[pattern] = "it takes too long"
        except (regex.error, ValueError, RecursionError, OverflowError, KeyError, IndexError) as error:
            self.refused[pattern] = f"it is not a pattern we can use ({error})"
        finally:
            self._spent += time.perf_counter() - started
        return False


@lru_cache(maxsize=1024)
def _compiled(pattern: str, flags: str) -> regex.Pattern[str]:
    if len(pattern) > _LONGEST_PATTERN:
        raise ValueError("longer than 2,000 characters")
    bounds = (max(int(low or 0), int(high or 0), 1) for low, high in _COUNTED.findall(pattern))
    if math.prod(bounds) > _MOST_REPEATS:
        raise ValueError("too many repeats")
    combined = 0
    for letter in flags:
        if letter not in _FLAGS:
            raise ValueError(f"the flag {letter} is not known")
        combined |= _FLAGS[letter]
    return regex.compile(pattern, combined, cache_pattern=False)


def _has_word(key: str, text: str, *, case_sensitive: bool) -> bool:
    pattern = rf"(?<!\w){regex.escape(key)}(?!\w)"
    return regex.search(pattern, text, 0 if case_sensitive else regex.IGNORECASE) is not None
