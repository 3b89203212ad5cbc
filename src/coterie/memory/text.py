"""Text analysis for storing and recalling: words, names, questions, digests, and time expressions.

Common words are dropped from full-text queries. Names of speakers are dropped from texts that are compared by meaning,
because a name makes all turns of a conversation with that person look alike.
"""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

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
_PREFIX = re.compile(r"^\s*(?:\[[^\]]{1,40}\]\s*)?(?:[-*•]\s+)?")
_NEGATIONS = frozenset(
    ["not", "no", "never", "none", "nobody", "nothing", "neither", "nor", "without", "cannot", "cant"]
)


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def keywords(text: str) -> list[str]:
    """The distinct words of a text without stop words, in order."""
    return [word for word in dict.fromkeys(words(text)) if word not in STOP_WORDS]


def fts_match_any(text: str) -> str | None:
    """An FTS5 expression that matches any keyword; None without words. Words are quoted, so none is an operator."""
    terms = keywords(text) or list(dict.fromkeys(words(text)))
    return " OR ".join(f'"{word}"' for word in terms[:64]) or None


def display_name(identifier: str) -> str:
    """The name in prose for a name or an identifier such as `bot:mara`."""
    return identifier.rpartition(":")[2].strip()


class NameMatcher:
    """Finds a set of names in a text, or removes them from it."""

    def __init__(self, identifiers: Iterable[str]) -> None:
        self._by_name = {display_name(value).casefold(): value for value in sorted(identifiers) if display_name(value)}
        alternatives = "|".join(re.escape(name) for name in sorted(self._by_name, key=len, reverse=True))
        self._pattern = re.compile(rf"\b({alternatives})\b(?:['’]s\b)?", re.IGNORECASE) if alternatives else None

    def find_in(self, text: str) -> set[str]:
        if self._pattern is None:
            return set()
        return {self._by_name[name.casefold()] for name in self._pattern.findall(text)}

    def remove_from(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(" ", text)


def is_question(text: str) -> bool:
    """Whether the text ends with a question mark, ignoring a remark in brackets after it."""
    text = text.rstrip()
    if text.endswith((")", "]")):
        start = max(text.rfind(")", 0, -1), text.rfind("]", 0, -1)) + 1
        openings = [at for mark in "([" if (at := text.find(mark, start)) >= 0]
        text = text[: min(openings)].rstrip() if openings else text
    return text.endswith(("?", "？", "؟"))


@functools.lru_cache(maxsize=4_096)
def digest(text: str) -> bytes:
    """A digest that ignores case, spacing and punctuation."""
    folded = unicodedata.normalize("NFKC", _PREFIX.sub("", text.strip())).casefold()
    normalized = " ".join(_WORD.findall(folded)) or folded.strip()
    return hashlib.blake2b(normalized.encode(), digest_size=16).digest()


def numbers_in(text: str) -> frozenset[str]:
    """The words that contain digits."""
    return frozenset(word for word in words(text) if any(letter.isdigit() for letter in word))


def is_negated(text: str) -> bool:
    lowered = text.lower().replace("’", "'")
    return "n't" in lowered or not _NEGATIONS.isdisjoint(words(lowered))


MONTHS = {
    name: number
    for number, name in enumerate(
        "january february march april may june july august september october november december".split(),  # noqa: SIM905
        start=1,
    )
}
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_DAYS = {
    name: number
    for number, name in enumerate(["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"])
}
_NUMBERS = {
    word: number
    for number, word in enumerate(
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"], 1
    )
} | {"a": 1, "an": 1, "couple": 2, "few": 3}

_MONTH = "|".join(MONTHS)
_SEASON = "|".join(_SEASONS)
_DAY = "|".join(_DAYS)
_COUNT = r"(\d{1,3}|" + "|".join(_NUMBERS) + r")(?:\s+of)?"


@dataclass(frozen=True, slots=True)
class Interval:
    """A time interval, without its end. Recall boosts memories of the interval; it does not filter by it."""

    start: datetime
    end: datetime

    def contains(self, moment: datetime) -> bool:
        return self.start <= moment < self.end


def find_interval(text: str, now: datetime) -> Interval | None:
    """The interval that a text names ("last summer", "in May", "two weeks ago"), if any; the most exact match wins."""
    lowered = text.lower()
    for pattern, to_interval in _PATTERNS:
        if match := re.search(pattern, lowered):
            try:
                return to_interval(match, now.astimezone(UTC))
            except (ValueError, OverflowError):  # the 31st of February, the year 0
                continue
    return None


def _days(start: datetime, days: int) -> Interval:
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    return Interval(midnight, midnight + timedelta(days=days))


def _date(match: re.Match[str], now: datetime) -> Interval:
    month, day = MONTHS[match["month"]], int(match["day"])
    year = int(match["year"]) if match["year"] else _latest(month, now)
    return _days(datetime(year, month, day, tzinfo=UTC), 1)


def _iso(match: re.Match[str], now: datetime) -> Interval:
    return _days(datetime(int(match[1]), int(match[2]), int(match[3]), tzinfo=UTC), 1)


def _month(match: re.Match[str], now: datetime) -> Interval:
    month = MONTHS[match["month"]]
    year = int(match["year"]) if match["year"] else _latest(month, now)
    if match["last"] and not match["year"] and (year, month) == (now.year, now.month):
        year -= 1
    return _months(year, month, 1)


def _season(match: re.Match[str], now: datetime) -> Interval:
    month = _SEASONS[match["season"]]
    if match["year"]:
        return _months(int(match["year"]), month, 3)
    season = _months(now.year, month, 3)
    while season.start > now or (match["which"] == "last" and season.end > now):
        season = _months(season.start.year - 1, month, 3)
    return season


def _year(match: re.Match[str], now: datetime) -> Interval:
    return _months(int(match[1]), 1, 12)


def _ago(match: re.Match[str], now: datetime) -> Interval:
    count = int(match[1]) if match[1].isdigit() else _NUMBERS[match[1]]
    unit = match[2]
    if unit == "day":
        return _days(now - timedelta(days=count), 1)
    if unit == "week":
        return _days(now - timedelta(weeks=count, days=3), 7)
    if unit == "month":
        months = now.year * 12 + now.month - 1 - count
        return _months(months // 12, months % 12 + 1, 1)
    return _months(now.year - count, 1, 12)


def _relative(match: re.Match[str], now: datetime) -> Interval:
    which, unit = match[1], match[2]
    back = 1 if which in ("last", "previous") else 0
    if unit == "week":
        return _days(now - timedelta(days=now.weekday() + 7 * back), 7)
    if unit == "weekend":
        return _days(now - timedelta(days=(now.weekday() - 5) % 7 + 7 * (back and now.weekday() >= 5)), 2)
    if unit == "month":
        months = now.year * 12 + now.month - 1 - back
        return _months(months // 12, months % 12 + 1, 1)
    return _months(now.year - back, 1, 12)


def _weekday(match: re.Match[str], now: datetime) -> Interval:
    back = (now.weekday() - _DAYS[match[1]]) % 7 or 7
    return _days(now - timedelta(days=back), 1)


def _near_day(match: re.Match[str], now: datetime) -> Interval:
    back = {"yesterday": 1, "last night": 1, "today": 0, "this morning": 0, "tonight": 0}[match[0]]
    return _days(now - timedelta(days=back), 1)


def _latest(month: int, now: datetime) -> int:
    return now.year if month <= now.month else now.year - 1


def _months(year: int, month: int, count: int) -> Interval:
    start = datetime(year, month, 1, tzinfo=UTC)
    last = year * 12 + month - 1 + count
    return Interval(start, datetime(last // 12, last % 12 + 1, 1, tzinfo=UTC))


_YEAR = r"(?:,?\s*(?:of\s+)?(?P<year>(?:19|20)\d\d))?"
_PATTERNS = (
    (r"\b((?:19|20)\d\d)-(\d{1,2})-(\d{1,2})\b", _iso),
    (rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month>{_MONTH})\b{_YEAR}", _date),
    (rf"\b(?P<month>{_MONTH})\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d){_YEAR}", _date),
    (rf"\b(?:in|during|since|early|late|mid|(?P<last>last)|this|of)[\s-]+(?P<month>{_MONTH})\b{_YEAR}", _month),
    (rf"\b(?P<last>)(?P<month>{_MONTH})\s+(?P<year>(?:19|20)\d\d)\b", _month),
    (rf"\b(?P<which>last|this|in|during)\s+(?:the\s+)?(?P<season>{_SEASON})\b(?:\s+of)?{_YEAR}", _season),
    (rf"\b(?P<which>)(?P<season>{_SEASON})\s+(?:of\s+)?(?P<year>(?:19|20)\d\d)\b", _season),
    (rf"\b{_COUNT}\s+(day|week|month|year)s?\s+ago\b", _ago),
    (r"\b(last|previous|this)\s+(weekend|week|month|year)\b", _relative),
    (rf"\b(?:last|on)\s+({_DAY})\b", _weekday),
    (r"\b(?:yesterday|last night|today|this morning|tonight)\b", _near_day),
    (r"\b(?:in|during|since)\s+((?:19|20)\d\d)\b", _year),
)
