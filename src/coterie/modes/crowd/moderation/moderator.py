"""One look at a message: what is forbidden, what is taken out, and by which rule. C16"""

from __future__ import annotations

import re
from collections.abc import Iterable
from copy import copy
from typing import Literal, NamedTuple

import ahocorasick_rs
from pydantic import Field

from coterie.base.config import Section
from coterie.modes.crowd.moderation import redaction, wordlist
from coterie.modes.crowd.moderation.redaction import hosts, is_listed, redact_hinted
from coterie.modes.crowd.moderation.wordlist import MASKS, Matcher, Wordlist, WordlistEntry, alternative_readings, fold

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
        self._disguises = self._words + len(wordlist.DISGUISE_HINTS)
        words = (entry.text for entry in self.matcher.entries)
        self._private = self._disguises + len(redaction.REDACTION_HINTS)
        hints = (*wordlist.DISGUISE_HINTS, *redaction.REDACTION_HINTS, *MASKS, *redaction.LINK_HINTS)
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
