"""One look at a message: what is forbidden, what is taken out, and by which rule. C16"""

from __future__ import annotations

import re
from collections.abc import Iterable
from copy import copy
from typing import Literal, NamedTuple

from coterie.modes.crowd.moderation.links import hosts, is_listed
from coterie.modes.crowd.moderation.look import NOTHING_FOUND, MessageScanner, ScanResult
from coterie.modes.crowd.moderation.normalise import alternative_readings, fold
from coterie.modes.crowd.moderation.policy import ModerationPolicy
from coterie.modes.crowd.moderation.redaction import redact_hinted
from coterie.modes.crowd.moderation.wordlist import MASKS, Wordlist, WordlistEntry

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
