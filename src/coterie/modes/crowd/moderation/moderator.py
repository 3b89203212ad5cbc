"""Checks a message against word lists and link policy, and redacts private data.

One automaton scans each message for all word list entries and hints. Only messages with a hit are examined further, so
ordinary chat costs about a microsecond.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Literal, NamedTuple

import ahocorasick_rs
from pydantic import Field

from coterie.base.config import Section
from coterie.memory import remove_secrets
from coterie.modes.crowd.moderation.wordlist import (
    DISGUISE_HINTS,
    MASKS,
    Matcher,
    Wordlist,
    WordlistEntry,
    alternative_readings,
    fold,
)

_TLD = (
    "com|net|org|io|gg|tv|ly|me|co|ru|xyz|link|live|shop|top|app|dev|de|uk|eu|fr|nl|info|biz|club|online|site|store"
    "|click|win"
)
_LINK = re.compile(rf"(?i)(?:https?://|www\.)([^\s/?#]+)|(?<![@\w.-])((?:[a-z0-9-]+\.)+(?:{_TLD}))(?![\w.-]*\w)")
LINK_HINTS = (".", "://")
"""Every link contains one of these."""


def linked_hosts(text: str) -> list[str]:
    """Return the hosts a text links to, with or without a scheme."""
    if not any(hint in text for hint in LINK_HINTS):
        return []
    return [(found[1] or found[2]).lower().removeprefix("www.") for found in _LINK.finditer(text)]


def is_allowed_host(host: str, allowed: Collection[str]) -> bool:
    """Whether a host is an allowed domain or a subdomain of one."""
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
"""Everything that is redacted contains one of these, in lower case."""
_AUTOMATON = ahocorasick_rs.AhoCorasick(REDACTION_HINTS)
_FIRST_DOT = len(_AT)
_FIRST_NUMBER = _FIRST_DOT + len(_DOT)
_FIRST_KEY = _FIRST_NUMBER + len(_NUMBERS)
_MIN_PHONE_DIGITS = 7


@dataclass(frozen=True, slots=True)
class Redacted:
    text: str
    rules: tuple[str, ...] = ()
    """The redaction rules that applied."""


def redact(text: str) -> Redacted:
    """Replace e-mail addresses, telephone numbers, street addresses, keys and card numbers. Idempotent."""
    return redact_hinted(text, [index for index, _, _ in _AUTOMATON.find_matches_as_indexes(text.lower())])


def redact_hinted(text: str, hints: Sequence[int]) -> Redacted:
    """Redact a text whose hints are known: indexes into `REDACTION_HINTS`, once per occurrence."""
    if not hints:
        return Redacted(text)
    digits = sum(_FIRST_NUMBER <= index < _FIRST_KEY for index in hints)
    rules: list[str] = []
    if (min(hints) < _FIRST_DOT and "." in text) or _FIRST_DOT in hints:
        text = _replace(_EMAIL, "[email]", "redact:email", text, rules)
    if digits:
        text = _replace(_ADDRESS, "[address]", "redact:address", text, rules)
    if (digits >= _MIN_PHONE_DIGITS or max(hints) >= _FIRST_KEY) and (cleaned := remove_secrets(text)) != text:
        rules.append("redact:key")
        text = cleaned
    if digits >= _MIN_PHONE_DIGITS:
        replaced = _PHONE.sub(lambda found: "[phone]" if _is_phone(found[0]) else found[0], text)
        if replaced != text:
            rules.append("redact:phone")
            text = replaced
    return Redacted(text, tuple(rules))


def _replace(pattern: re.Pattern[str], placeholder: str, rule: str, text: str, rules: list[str]) -> str:
    changed = pattern.sub(placeholder, text)
    if changed != text:
        rules.append(rule)
    return changed


def _is_phone(text: str) -> bool:
    digits = sum(letter.isdigit() for letter in text)
    return _MIN_PHONE_DIGITS <= digits <= 15 and _DATE.fullmatch(text.strip()) is None


class ScanResult(NamedTuple):
    worst: WordlistEntry | None
    """The most severe entry in the folded text."""
    disguises: bool
    """Whether alternative readings must be checked."""
    redaction_hints: list[int]
    """Indexes into `REDACTION_HINTS`, once per occurrence."""


NOTHING_FOUND = ScanResult(None, disguises=False, redaction_hints=[])
"""Plain ASCII without a listed word, a disguise, a mask, a link or a redaction hint."""


class MessageScanner:
    def __init__(self, lists: Iterable[Wordlist]) -> None:
        self.matcher = Matcher(lists)
        self._words = len(self.matcher.entries)
        self._disguises = self._words + len(DISGUISE_HINTS)
        words = (entry.text for entry in self.matcher.entries)
        self._redaction_hints = self._disguises + len(REDACTION_HINTS)
        hints = (*DISGUISE_HINTS, *REDACTION_HINTS, *MASKS, *LINK_HINTS)
        self._automaton = ahocorasick_rs.AhoCorasick([*words, *hints])

    def scan(self, plain: str) -> ScanResult:
        """Scan a folded text, which contains the hints of the original text as well."""
        padded = f" {plain} "
        found = self._automaton.find_matches_as_indexes(padded, overlapping=True)
        if not found and plain.isascii():
            return NOTHING_FOUND
        words: list[tuple[int, int, int]] = []
        redaction_hints: list[int] = []
        disguises = not plain.isascii()
        for match in found:
            index = match[0]
            if index < self._words:
                words.append(match)
            elif index < self._disguises:
                disguises = True
            elif index < self._redaction_hints:
                redaction_hints.append(index - self._disguises)
        return ScanResult(self.matcher.worst(padded, words) if words else None, disguises, redaction_hints)


PolicyAction = Literal["allow", "flag", "refuse"]


class ModerationPolicy(Section):
    """The `[moderation]` section of a room's file."""

    mild: PolicyAction = "flag"
    """Severity 1."""
    coarse: PolicyAction = "refuse"
    """Severity 2."""
    vile: Literal["flag", "refuse"] = "refuse"
    """Severity 3: slurs, threats, calls to self-harm. Never allowed without an audit record."""
    links: Literal["allow", "listed", "none"] = "listed"
    allowed_hosts: tuple[str, ...] = Field(default=("twitch.tv", "youtube.com", "youtu.be", "wikipedia.org"))
    redact: bool = True
    """Replace e-mail addresses, telephone numbers, street addresses and keys."""

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
    """The text to show, redacted."""
    findings: tuple[ModerationFinding, ...] = ()

    @property
    def refusal(self) -> ModerationFinding | None:
        return next((finding for finding in self.findings if finding.action == "refused"), None)


class Moderator:
    def __init__(self, lists: Iterable[Wordlist], policy: ModerationPolicy | None = None) -> None:
        self.policy = policy or ModerationPolicy()
        self._scanner = MessageScanner(lists)

    def with_policy(self, policy: ModerationPolicy) -> Moderator:
        """Return a moderator with the same word lists and another policy."""
        other = copy(self)
        other.policy = policy
        return other

    def check(self, text: str, *, strict: bool = False) -> ModerationVerdict:
        """`strict` refuses what would only be flagged; it is used for lines written by personas."""
        plain = fold(text)
        scan = self._scanner.scan(plain)
        if scan is NOTHING_FOUND:
            return ModerationVerdict(text)
        entry = self._worst(plain, scan)
        findings: list[ModerationFinding] = []
        if entry is not None:
            action = self.policy.action_for(entry.severity)
            if action == "refuse" or strict:
                return ModerationVerdict(text, (ModerationFinding("refused", f"blocklist:{entry.list}", entry.reason),))
            if action == "flag":
                findings.append(ModerationFinding("flagged", f"blocklist:{entry.list}", entry.reason))
        if self.policy.links != "allow" and (host := self._unwanted_host(text)):
            reason = f"It links to {host}, and this room allows only some addresses."
            return ModerationVerdict(text, (*findings, ModerationFinding("refused", "links", reason)))
        if scan.redaction_hints and self.policy.redact:
            redacted = redact_hinted(text, scan.redaction_hints)
            if redacted.rules:
                text = redacted.text
                findings += [ModerationFinding("redacted", rule, _REDACTION_REASONS[rule]) for rule in redacted.rules]
        return ModerationVerdict(text, tuple(findings)) if findings else ModerationVerdict(text)

    def _worst(self, plain: str, scan: ScanResult) -> WordlistEntry | None:
        worst, matcher = scan.worst, self._scanner.matcher
        if scan.disguises:
            for reading in alternative_readings(plain):
                entry = matcher.find(reading)
                if entry is not None and (worst is None or entry.severity > worst.severity):
                    worst = entry
        if worst is None and any(mask in plain for mask in MASKS):
            for word in _MASKED.finditer(plain):
                if (masked := matcher.find_masked(word[0])) is not None:
                    return masked
        return worst

    def _unwanted_host(self, text: str) -> str | None:
        linked = linked_hosts(text)
        if not linked:
            return None
        allowed = self.policy.allowed_hosts if self.policy.links == "listed" else ()
        return next((host for host in linked if not is_allowed_host(host, allowed)), None)
