"""The decision about one message: let in, numbered, or stopped with a reason. Pure in its own state and the time given.

What it decides depends on nothing but what came before, so that an evening can be played again. It writes nothing and
tells nobody: the gateway does both, for many messages at once.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from coterie.modes.crowd.errors import MessageRefused
from coterie.modes.crowd.gateway.limits import RoomLimits, TokenBuckets
from coterie.modes.crowd.gateway.rulings import ModerationState
from coterie.modes.crowd.moderation import ModerationFinding, Moderator
from coterie.modes.crowd.protocol import AuditRecord, ChatAuthor, ChatMessage, ChatPost
from coterie.modes.crowd.protocol.chat_message import MAX_MESSAGE_CHARS, ONE_LINE

_MENTION = re.compile(r"@([\w.-]*\w)")
_ONE_LINE = re.compile(ONE_LINE)
_MAX_REMEMBERED = 20_000


class Admitted(NamedTuple):
    message: ChatMessage
    audits: tuple[AuditRecord, ...] = ()
    duplicate: bool = False
    """Sent before: this is the message that came of it then, and nothing new happened."""


class Rejected(NamedTuple):
    error: MessageRefused
    audits: tuple[AuditRecord, ...]


class Admission:
    def __init__(
        self,
        room: str,
        moderator: Moderator,
        limits: RoomLimits | None = None,
        *,
        emotes: Collection[str] = (),
        names: Iterable[str] = (),
        last: int = 0,
    ) -> None:
        """`last` is the number of the room's last message; `names` are who can be mentioned from the start."""
        limits = limits or RoomLimits()
        self.room = room
        self.last_number = last
        self.moderation_state = ModerationState(limits)
        self._moderator = moderator
        self._buckets = TokenBuckets(limits)
        self._emotes = frozenset(emotes)
        self._names = {name.casefold(): name for name in names}
        self._sent: OrderedDict[tuple[str, str], ChatMessage] = OrderedDict()

    def change_rules(self, moderator: Moderator, limits: RoomLimits) -> None:
        """Other rules from here on. What moderators ruled stays in force."""
        self._moderator = moderator
        self._buckets = TokenBuckets(limits)

    def add_names(self, names: Iterable[str]) -> None:
        """They can be mentioned from now on."""
        self._names |= {name.casefold(): name for name in names}

    def remember(self, message: ChatMessage) -> None:
        """A message of an earlier life: its number is taken, and its sender's id is known."""
        self.last_number = max(self.last_number, message.number)
        self._names[message.author.name.casefold()] = message.author.name
        if message.nonce is not None:
            self._sent[message.author.name, message.nonce] = message
            if len(self._sent) > _MAX_REMEMBERED:
                self._sent.popitem(last=False)

    def admit(self, post: ChatPost, now_ms: int) -> Admitted | Rejected:
        author = post.author
        if (before := self._sent.get((author.name, post.id))) is not None:
            return Admitted(before, duplicate=True)
        try:
            text = self._check(post, now_ms)
        except MessageRefused as refused:
            return Rejected(refused, (self._audit("refused", refused.rule, refused.what, author, post.id, now_ms),))
        verdict = self._moderator.check(text, strict=author.kind == "persona")
        if verdict.findings and (refusal := verdict.refusal) is not None:
            error = MessageRefused(refusal.rule, refusal.reason, "Say it differently.")
            return Rejected(error, (self._audit_finding(refusal, author, post.id, now_ms),))
        self.moderation_state.record_message(author, now_ms)
        self.last_number += 1
        text = verdict.text
        # A message is not validated again: the post's fields were, and `_checked` let the text through as one line.
        message = ChatMessage.from_validated(
            {
                "id": f"{self.room}-{self.last_number}",
                "number": self.last_number,
                "room": self.room,
                "author": author,
                "text": text[:MAX_MESSAGE_CHARS],
                "reply_to": post.reply_to,
                "mentions": self._mentions(text) if "@" in text else (),
                "emotes": tuple([word for word in text.split() if word in self._emotes]) if self._emotes else (),
                "ts": now_ms,
                "nonce": post.id,
                "trace": post.trace,
            },
            _unknown_fields(post.model_extra) if post.model_extra else {},
        )
        self.remember(message)
        if not verdict.findings:
            return Admitted(message)
        return Admitted(
            message, tuple(self._audit_finding(each, author, message.id, now_ms) for each in verdict.findings)
        )

    def _check(self, post: ChatPost, now_ms: int) -> str:
        if post.room != self.room:
            raise MessageRefused("room", f"This is the room {self.room}, not {post.room}.", "Send it to its own room.")
        text = post.text.strip()
        if not text or not (text.isprintable() or _ONE_LINE.match(text)):
            raise MessageRefused("shape", "A message is one line with something in it.", "Leave out line breaks.")
        if len(text) > MAX_MESSAGE_CHARS:
            raise MessageRefused(
                "length", f"A message has at most {MAX_MESSAGE_CHARS} characters.", "Say less, or say it twice."
            )
        self.moderation_state.check(post.author, now_ms)
        if post.author.kind != "system" and (wait := self._buckets.take(post.author.name.casefold(), now_ms)):
            raise MessageRefused("rate", "You are sending too fast.", f"Try again in {wait:.0f} s.", wait)
        return text

    def _mentions(self, text: str) -> tuple[str, ...]:
        found = (self._names.get(name.casefold()) for name in _MENTION.findall(text))
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def _audit_finding(self, finding: ModerationFinding, author: ChatAuthor, message: str, now_ms: int) -> AuditRecord:
        return self._audit(finding.action, finding.rule, finding.reason, author, message, now_ms)

    def _audit(self, action: str, rule: str, reason: str, author: ChatAuthor, message: str, now_ms: int) -> AuditRecord:
        return AuditRecord(
            room=self.room, ts=now_ms, action=action, rule=rule, reason=reason, author=author, message=message
        )


def _unknown_fields(extra: Mapping[str, Any]) -> dict[str, Any]:
    """What a sender said that no field is for. A message's own fields are not a sender's to fill."""
    return {name: value for name, value in extra.items() if name not in ChatMessage.model_fields}
