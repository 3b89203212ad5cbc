"""The decision about one message: let in, numbered, or stopped with a reason. Pure in its own state and the time given.

What it decides depends on nothing but what came before, so that an evening can be played again. It writes nothing and
tells nobody: the gateway does both, for many messages at once.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from coterie.modes.crowd.errors import Refused
from coterie.modes.crowd.gateway.limits import Buckets, RoomLimits
from coterie.modes.crowd.gateway.rulings import Rulings
from coterie.modes.crowd.moderation import Finding, Moderator
from coterie.modes.crowd.protocol import AuditRecord, Author, ChatMessage, ChatPost
from coterie.modes.crowd.protocol.chat_message import MOST_CHARACTERS, ONE_LINE

_MENTION = re.compile(r"@([\w.-]*\w)")
_ONE_LINE = re.compile(ONE_LINE)
_MOST_REMEMBERED = 20_000


class Admitted(NamedTuple):
    message: ChatMessage
    audits: tuple[AuditRecord, ...] = ()
    again: bool = False
    """Sent before: this is the message that came of it then, and nothing new happened."""


class Stopped(NamedTuple):
    error: Refused
    audits: tuple[AuditRecord, ...]


class Door:
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
        self.number = last
        self.rulings = Rulings(limits)
        self._moderator = moderator
        self._buckets = Buckets(limits)
        self._emotes = frozenset(emotes)
        self._names = {name.casefold(): name for name in names}
        self._sent: OrderedDict[tuple[str, str], ChatMessage] = OrderedDict()

    def govern(self, moderator: Moderator, limits: RoomLimits) -> None:
        """Other rules from here on. What moderators ruled stays in force."""
        self._moderator = moderator
        self._buckets = Buckets(limits)

    def know(self, names: Iterable[str]) -> None:
        """They can be mentioned from now on."""
        self._names |= {name.casefold(): name for name in names}

    def remember(self, message: ChatMessage) -> None:
        """A message of an earlier life: its number is taken, and its sender's id is known."""
        self.number = max(self.number, message.number)
        self._names[message.author.name.casefold()] = message.author.name
        if message.nonce is not None:
            self._sent[message.author.name, message.nonce] = message
            if len(self._sent) > _MOST_REMEMBERED:
                self._sent.popitem(last=False)

    def admit(self, post: ChatPost, now_ms: int) -> Admitted | Stopped:
        author = post.author
        if (before := self._sent.get((author.name, post.id))) is not None:
            return Admitted(before, again=True)
        try:
            text = self._checked(post, now_ms)
        except Refused as refused:
            return Stopped(refused, (self._record("refused", refused.rule, refused.what, author, post.id, now_ms),))
        verdict = self._moderator.check(text, strict=author.kind == "persona")
        if verdict.findings and (refusal := verdict.refusal) is not None:
            error = Refused(refusal.rule, refusal.reason, "Say it differently.")
            return Stopped(error, (self._noted(refusal, author, post.id, now_ms),))
        self.rulings.spoke(author, now_ms)
        self.number += 1
        text = verdict.text
        # A message is not validated again: the post's fields were, and `_checked` let the text through as one line.
        message = ChatMessage.trusted(
            {
                "id": f"{self.room}-{self.number}",
                "number": self.number,
                "room": self.room,
                "author": author,
                "text": text[:MOST_CHARACTERS],
                "reply_to": post.reply_to,
                "mentions": self._mentioned(text) if "@" in text else (),
                "emotes": tuple([word for word in text.split() if word in self._emotes]) if self._emotes else (),
                "ts": now_ms,
                "nonce": post.id,
                "trace": post.trace,
            },
            _beside(post.model_extra) if post.model_extra else {},
        )
        self.remember(message)
        if not verdict.findings:
            return Admitted(message)
        return Admitted(message, tuple(self._noted(each, author, message.id, now_ms) for each in verdict.findings))

    def _checked(self, post: ChatPost, now_ms: int) -> str:
        if post.room != self.room:
            raise Refused("room", f"This is the room {self.room}, not {post.room}.", "Send it to its own room.")
        text = post.text.strip()
        if not text or not (text.isprintable() or _ONE_LINE.match(text)):
            raise Refused("shape", "A message is one line with something in it.", "Leave out line breaks.")
        if len(text) > MOST_CHARACTERS:
            raise Refused(
                "length", f"A message has at most {MOST_CHARACTERS} characters.", "Say less, or say it twice."
            )
        self.rulings.check(post.author, now_ms)
        if post.author.kind != "system" and (wait := self._buckets.take(post.author.name.casefold(), now_ms)):
            raise Refused("rate", "You are sending too fast.", f"Try again in {wait:.0f} s.", wait)
        return text

    def _mentioned(self, text: str) -> tuple[str, ...]:
        found = (self._names.get(name.casefold()) for name in _MENTION.findall(text))
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def _noted(self, finding: Finding, author: Author, message: str, now_ms: int) -> AuditRecord:
        return self._record(finding.action, finding.rule, finding.reason, author, message, now_ms)

    def _record(self, action: str, rule: str, reason: str, author: Author, message: str, now_ms: int) -> AuditRecord:
        return AuditRecord(
            room=self.room, ts=now_ms, action=action, rule=rule, reason=reason, author=author, message=message
        )


def _beside(extra: Mapping[str, Any]) -> dict[str, Any]:
    """What a sender said that no field is for. A message's own fields are not a sender's to fill."""
    return {name: value for name, value in extra.items() if name not in ChatMessage.model_fields}
