"""Time words in a question: "last summer", "in May", "two weeks ago", "on 8 May 2023".

An interval found here is a preference, not a filter: memories of that time are lifted, since what is told
in June may well be about May.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

MONTHS = {
    name: number
    for number, name in enumerate(
        [
            "january",
            "february",
            "march",
            "april",
            "may",
            "june",
            "july",
            "august",
            "september",
            "october",
            "november",
            "december",
        ],
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
    start: datetime
    end: datetime

    def contains(self, moment: datetime) -> bool:
        return self.start <= moment < self.end


def find_interval(text: str, now: datetime) -> Interval | None:
    """The stretch of time that a question speaks of, if it names one. The most exact reading wins."""
    lowered = text.lower()
    for pattern, read in _PATTERNS:
        if match := re.search(pattern, lowered):
            try:
                return read(match, now.astimezone(UTC))
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
    found = _months(now.year, month, 3)
    while found.start > now or (match["which"] == "last" and found.end > now):
        found = _months(found.start.year - 1, month, 3)
    return found


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
        whole = now.year * 12 + now.month - 1 - count
        return _months(whole // 12, whole % 12 + 1, 1)
    return _months(now.year - count, 1, 12)


def _relative(match: re.Match[str], now: datetime) -> Interval:
    which, unit = match[1], match[2]
    back = 1 if which in ("last", "previous") else 0
    if unit == "week":
        return _days(now - timedelta(days=now.weekday() + 7 * back), 7)
    if unit == "weekend":
        return _days(now - timedelta(days=(now.weekday() - 5) % 7 + 7 * (back and now.weekday() >= 5)), 2)
    if unit == "month":
        whole = now.year * 12 + now.month - 1 - back
        return _months(whole // 12, whole % 12 + 1, 1)
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
