"""Taking out what identifies a person or opens a door: e-mail, telephone, street address, keys, cards. C16

One quick look tells whether there is anything a rule could apply to, so that ordinary chat costs next to nothing.
What was taken out is never written down; redacting twice changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import ahocorasick_rs

from coterie.memory.writer import remove_secrets

# Which addresses a message names, whether or not it writes `https://` before them.


_TLD = (
    "com|net|org|io|gg|tv|ly|me|co|ru|xyz|link|live|shop|top|app|dev|de|uk|eu|fr|nl|info|biz|club|online|site|store"
    "|click|win"
)
_LINK = re.compile(rf"(?i)(?:https?://|www\.)([^\s/?#]+)|(?<![@\w.-])((?:[a-z0-9-]+\.)+(?:{_TLD}))(?![\w.-]*\w)")
LINK_HINTS = (".", "://")
"""What no link can do without."""


def hosts(text: str) -> list[str]:
    """The hosts a text links to."""
    if not any(hint in text for hint in LINK_HINTS):
        return []
    return [(found[1] or found[2]).lower().removeprefix("www.") for found in _LINK.finditer(text)]


def is_listed(host: str, allowed: Collection[str]) -> bool:
    """Whether a host is one of the allowed ones, or below one of them."""
    return any(host == domain or host.endswith(f".{domain}") for domain in allowed)


_EMAIL = re.compile(
    r"\b[\w.+-]+\s?(?:@|\(at\)|\[at\])\s?[\w-]+(?:\s?(?:\.|\(dot\)|\[dot\])\s?[a-z][\w-]+)+"
    r"|\b[\w.+-]+ at [\w-]+ dot (?:com|net|org|de|io|uk)\b",
    re.IGNORECASE,
)
_PHONE = re.compile(
    r"(?<![\w.,:/#-])(?:\+\d{1,3}[\s./-]?)?(?:\(\d{1,5}\)[\s./-]?)?\d{2,5}(?:[\s./-]\d{2,8}){1,4}(?![\w:%]|[.,]\d)"
    r"|(?<![\w.,:/#-])\+?\d{9,13}(?![\w:%]|[.,]\d)"
)
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2})")
_ROAD = "street|st|avenue|ave|road|rd|lane|ln|drive|dr|boulevard|blvd|court|ct|terrace|crescent|close|square|place|way"
_ADDRESS = re.compile(
    rf"\b\d{{1,5}}[a-z]?\s+(?:[A-Z][\w'.-]+\s+){{1,3}}(?i:{_ROAD})\b\.?"
    r"(?:,?\s+(?i:apt|apartment|flat|unit|suite)\.?\s*\w+)?"
    r"|\b[A-ZÄÖÜ][\w-]+(?i:straße|strasse|str\.|weg|gasse|platz|allee)\s+\d{1,4}(?:\s?[a-z])?\b"
)
_AT = ("@", "(at)", "[at]")
_DOT = ("dot",)
_NUMBERS = tuple("0123456789")
_KEYS = (
    *("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "aiza", "xox", "akia", "bearer ", "private key"),
    *("pass", "pin ", "pin:", "pin=", "api key", "secret key"),
)
REDACTION_HINTS = (*_AT, *_DOT, *_NUMBERS, *_KEYS)
"""What nothing that is taken out can do without, in lower case."""
_AUTOMATON = ahocorasick_rs.AhoCorasick(REDACTION_HINTS)
_FIRST_DOT = len(_AT)
_FIRST_NUMBER = _FIRST_DOT + len(_DOT)
_FIRST_KEY = _FIRST_NUMBER + len(_NUMBERS)
_FEWEST_DIGITS = 7


@dataclass(frozen=True, slots=True)
class Redacted:
    text: str
    rules: tuple[str, ...] = ()
    """Which kinds of thing were taken out."""


def redact(text: str) -> Redacted:
    return redact_hinted(text, [index for index, _, _ in _AUTOMATON.find_matches_as_indexes(text.lower())])


def redact_hinted(text: str, which: Sequence[int]) -> Redacted:
    """The same for whoever has looked already: which of `HINTS` there are, each as often as it is there."""
    if not which:
        return Redacted(text)
    digits = sum(_FIRST_NUMBER <= index < _FIRST_KEY for index in which)
    rules: list[str] = []
    if (min(which) < _FIRST_DOT and "." in text) or _FIRST_DOT in which:
        text = _replace(_EMAIL, "[email]", "redact:email", text, rules)
    if digits:
        text = _replace(_ADDRESS, "[address]", "redact:address", text, rules)
    if (digits >= _FEWEST_DIGITS or max(which) >= _FIRST_KEY) and (cleared := remove_secrets(text)) != text:
        rules.append("redact:key")
        text = cleared
    if digits >= _FEWEST_DIGITS:
        calls = _PHONE.sub(lambda found: "[phone]" if _is_phone(found[0]) else found[0], text)
        if calls != text:
            rules.append("redact:phone")
            text = calls
    return Redacted(text, tuple(rules))


def _replace(pattern: re.Pattern[str], stands_for: str, rule: str, text: str, rules: list[str]) -> str:
    changed = pattern.sub(stands_for, text)
    if changed != text:
        rules.append(rule)
    return changed


def _is_phone(text: str) -> bool:
    digits = sum(letter.isdigit() for letter in text)
    return _FEWEST_DIGITS <= digits <= 15 and _DATE.fullmatch(text.strip()) is None
