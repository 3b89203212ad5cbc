"""Words, names and questions: the plain-text side of memory, shared by storing and asking.

Full-text search ranks by rare words, so the words every sentence has are dropped from the question. Names
of speakers are dropped from what is compared by meaning: every turn of a talk with Ana is about as near
to "Ana" as any other, and the name would outshine what was said.
"""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from collections.abc import Iterable

STOP_WORDS = frozenset(
    """
    a about above after again against all am an and any are aren as at be because been before being below between both
    but by can cannot could couldn d did didn do does doesn doing don down during each few for from further had hadn has
    hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself let ll m me
    more most mustn my myself no nor not of off on once only or other ought our ours ourselves out over own re s same
    shan she should shouldn so some such t than that the their theirs them themselves then there these they this those
    through to too under until up ve very was wasn we were weren what when where which while who whom why will with won
    would wouldn you your yours yourself yourselves
    """.split()  # noqa: SIM905  a paragraph is easier to read than a column of 150
)

_WORD = re.compile(r"[^\W_]+")
_ASIDE = re.compile(r"\s*[\[(][^\])]*[\])]\s*$")
_PREFIX = re.compile(r"^\s*(?:\[[^\]]{1,40}\]\s*)?(?:[-*•]\s+)?")
_NEGATIONS = frozenset(
    ["not", "no", "never", "none", "nobody", "nothing", "neither", "nor", "without", "cannot", "cant"]
)


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def keywords(text: str) -> list[str]:
    """The words of a text that say something, once each, in order."""
    return [word for word in dict.fromkeys(words(text)) if word not in STOP_WORDS]


def fts_match_any(text: str) -> str | None:
    """An FTS5 expression that finds any telling word. Every word is quoted, so nothing in it is an operator."""
    found = keywords(text) or list(dict.fromkeys(words(text)))
    return " OR ".join(f'"{word}"' for word in found[:64]) or None


def display_name(identifier: str) -> str:
    """What a person is called in prose, given a name or an identifier such as `bot:mara`."""
    return identifier.rpartition(":")[2].strip()


class NameMatcher:
    """A set of names, to find in a text or to take out of it."""

    def __init__(self, identifiers: Iterable[str]) -> None:
        self._known = {display_name(each).casefold(): each for each in sorted(identifiers) if display_name(each)}
        alternatives = "|".join(re.escape(name) for name in sorted(self._known, key=len, reverse=True))
        self._pattern = re.compile(rf"\b({alternatives})\b(?:['’]s\b)?", re.IGNORECASE) if alternatives else None

    def find_in(self, text: str) -> set[str]:
        if self._pattern is None:
            return set()
        return {self._known[name.casefold()] for name in self._pattern.findall(text)}

    def remove_from(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(" ", text)


def is_question(text: str) -> bool:
    """Whether what was said ends in a question, not counting an aside in brackets after it."""
    return _ASIDE.sub("", text).rstrip().endswith(("?", "？", "؟"))


@functools.lru_cache(maxsize=4_096)
def digest(text: str) -> bytes:
    """Equal for texts that say the same in the same words, whatever their case, spacing and punctuation."""
    bare = unicodedata.normalize("NFKC", _PREFIX.sub("", text.strip())).casefold()
    told = _WORD.findall(bare)
    return hashlib.blake2b(" ".join(told).encode() if told else bare.strip().encode(), digest_size=16).digest()


def numbers_in(text: str) -> frozenset[str]:
    """What must not differ between two texts that are taken for one: numbers."""
    return frozenset(word for word in words(text) if any(letter.isdigit() for letter in word))


def is_negated(text: str) -> bool:
    lowered = text.lower().replace("’", "'")
    return "n't" in lowered or not _NEGATIONS.isdisjoint(words(lowered))
