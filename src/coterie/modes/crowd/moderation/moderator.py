"""One look at a message: what is forbidden, what is taken out, and by which rule. C16"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Literal, NamedTuple

import ahocorasick_rs
from pydantic import Field

from coterie.base.config import Section
from coterie.memory.writer import remove_secrets
from coterie.modes.crowd.moderation.wordlist import (
    DISGUISE_HINTS,
    MASKS,
    Matcher,
    Wordlist,
    WordlistEntry,
    alternative_readings,
    fold,
)

# Taking out what identifies a person or opens a door: e-mail, telephone, street address, keys, cards. C16
#
# One quick look tells whether there is anything a rule could apply to, so that ordinary chat costs next to nothing.
# What was taken out is never written down; redacting twice changes nothing.


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


# One pass over a message for everything that is looked for: words of the lists, disguises, what might be taken out.
#
# Ordinary chat has none of it, and that is known after a microsecond. All hints are looked for in the folded text, which
# has whatever hint the message itself has, and those it disguises besides.


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
        self._disguises = self._words + len(DISGUISE_HINTS)
        words = (entry.text for entry in self.matcher.entries)
        self._private = self._disguises + len(REDACTION_HINTS)
        hints = (*DISGUISE_HINTS, *REDACTION_HINTS, *MASKS, *LINK_HINTS)
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


# What a room lets pass, as its file says it.


PolicyAction = Literal["allow", "flag", "refuse"]


class ModerationPolicy(Section):
    """How strict a room is."""

    mild: PolicyAction = "flag"
    """Severity 1: let in and noted, by default."""
    coarse: PolicyAction = "refuse"
    """Severity 2."""
    vile: Literal["flag", "refuse"] = "refuse"
    """Severity 3: slurs, threats, calls to self-harm. Cannot be allowed without a note."""
    links: Literal["allow", "listed", "none"] = "listed"
    allowed_hosts: tuple[str, ...] = Field(default=("twitch.tv", "youtube.com", "youtu.be", "wikipedia.org"))
    redact: bool = True
    """Take out e-mail addresses, telephone numbers, street addresses, keys."""

    def action_for(self, severity: int) -> PolicyAction:
        return (self.mild, self.coarse, self.vile)[severity - 1]


_MASKED = re.compile(r"[a-z*#]*[a-z][*#]+[a-z*#]*|[*#]+[a-z]+[a-z*#]*")
_REDACTION_REASONS = {
    "redact:email": "An e-mail address was taken out before anybody saw it.",
    "redact:phone": "A telephone number was taken out before anybody saw it.",
    "redact:address": "A street address was taken out before anybody saw it.",
    "redact:key": "A key, password or card number was taken out before anybody saw it.",
}


class ModerationFinding(NamedTuple):
    action: Literal["refused", "redacted", "flagged"]
    rule: str
    reason: str


class ModerationVerdict(NamedTuple):
    text: str
    """As it may be shown."""
    findings: tuple[ModerationFinding, ...] = ()

    @property
    def refusal(self) -> ModerationFinding | None:
        return next((finding for finding in self.findings if finding.action == "refused"), None)


class Moderator:
    def __init__(self, lists: Iterable[Wordlist], policy: ModerationPolicy | None = None) -> None:
        self.policy = policy or ModerationPolicy()
        self._scanner = MessageScanner(lists)

    def with_policy(self, policy: ModerationPolicy) -> Moderator:
        """The same lists by another policy."""
        other = copy(self)
        other.policy = policy
        return other

    def check(self, text: str, *, strict: bool = False) -> ModerationVerdict:
        """`strict` is for what a model wrote: nothing that would only be noted of a person is let through."""
        plain = fold(text)
        seen = self._scanner.scan(plain)
        if seen is NOTHING_FOUND:
            return ModerationVerdict(text)
        entry = self._worst(plain, seen)
        findings: list[ModerationFinding] = []
        if entry is not None:
            answer = self.policy.action_for(entry.severity)
            if answer == "refuse" or strict:
                return ModerationVerdict(text, (ModerationFinding("refused", f"blocklist:{entry.list}", entry.reason),))
            if answer == "flag":
                findings.append(ModerationFinding("flagged", f"blocklist:{entry.list}", entry.reason))
        if self.policy.links != "allow" and (host := self._unwanted_host(text)):
            reason = f"It links to {host}, and this room lets only some addresses in."
            return ModerationVerdict(text, (*findings, ModerationFinding("refused", "links", reason)))
        if seen.private and self.policy.redact:
            redacted = redact_hinted(text, seen.private)
            if redacted.rules:
                text = redacted.text
                findings += [ModerationFinding("redacted", rule, _REDACTION_REASONS[rule]) for rule in redacted.rules]
        return ModerationVerdict(text, tuple(findings)) if findings else ModerationVerdict(text)

    def _worst(self, plain: str, seen: ScanResult) -> WordlistEntry | None:
        worst, matcher = seen.worst, self._scanner.matcher
        if seen.disguises:
            for reading in alternative_readings(plain):
                found = matcher.find(reading)
                if found is not None and (worst is None or found.severity > worst.severity):
                    worst = found
        if worst is None and any(mask in plain for mask in MASKS):
            for word in _MASKED.finditer(plain):
                if (masked := matcher.find_masked(word[0])) is not None:
                    return masked
        return worst

    def _unwanted_host(self, text: str) -> str | None:
        named = hosts(text)
        if not named:
            return None
        allowed = self.policy.allowed_hosts if self.policy.links == "listed" else ()
        return next((host for host in named if not is_listed(host, allowed)), None)
