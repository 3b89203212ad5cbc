"""Decides whether a message is admitted: shape, moderators' rulings, rate limits and content.

The decision depends only on earlier messages and the given time, so that a session can be replayed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import unicodedata
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from coterie.base.clock import Clock
from coterie.base.config import Section
from coterie.base.paths import write_atomic
from coterie.modes.crowd.errors import BadCrowdConfig, IdentityRefused, MessageRefused
from coterie.modes.crowd.events import CrowdRuled
from coterie.modes.crowd.moderation import ModerationFinding, Moderator
from coterie.modes.crowd.moderation.wordlist import fold
from coterie.modes.crowd.protocol import (
    MAX_MESSAGE_CHARS,
    ONE_LINE,
    RESERVED_NAMES,
    AuditRecord,
    ChatAuthor,
    ChatMessage,
    ChatPost,
)

# Who posts, and under which name: decided by the receiver of a connection, never by a field of a message.
#
# The owner gives each guest a signed token for one room and one name (`coterie crowd invite`). A connection without a
# token can only read. A name that looks like the name of a persona or of a moderator is refused.


ChatRole = Literal["owner", "guest", "worker", "reader"]
"""A worker posts for the room's personas, over a broker only. A reader, such as an overlay, posts nothing."""
DEFAULT_DAYS = 30
_KEY_BYTES = 32
_MAX_TOKEN_CHARS = 1_000
_NAME = re.compile(r"\w(?:[\w .-]{0,38}\w)?")
_LOOK_ALIKE_SIGNS = str.maketrans(
    {"0": "o", "1": "l", "i": "l", "|": "l", "!": "l", "3": "e", "4": "a", "5": "s", "7": "t", "8": "b", "@": "a"}
)
_NOT_A_LETTER = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class ChatIdentity:
    """Who a connection belongs to."""

    name: str
    role: ChatRole = "guest"


def name_skeleton(name: str) -> str:
    """What a name looks like: the same for names that differ in case, signs, look-alike or invisible characters."""
    letters = fold(unicodedata.normalize("NFKC", name)).translate(_LOOK_ALIKE_SIGNS)
    return _NOT_A_LETTER.sub("", letters).replace("rn", "m") or name.casefold()


def check_guest_name(name: str, taken: Iterable[str]) -> str:
    """Return the name in its normal form. Raises `IdentityRefused` if it is not usable or looks like a taken one."""
    plain = unicodedata.normalize("NFKC", name).strip()
    if not _NAME.fullmatch(plain):
        raise IdentityRefused(
            "A name has 1 to 40 letters, digits, blanks, dots, hyphens and underscores.", "Choose another name."
        )
    skeleton = name_skeleton(plain)
    for other in (*RESERVED_NAMES, *taken):
        if name_skeleton(other) == skeleton:
            raise IdentityRefused(f"{plain} looks like {other}, who is somebody else here.", "Choose another name.")
    return plain


class _Claims(BaseModel):
    room: str
    name: str
    role: ChatRole
    until_ms: int


class ChatTokens:
    """Signs tokens and checks them. Whoever has a token posts under its name in its room, until it expires."""

    def __init__(self, key: bytes, clock: Clock) -> None:
        self._key = key
        self._clock = clock

    @classmethod
    def from_folder(cls, folder: Path, clock: Clock) -> ChatTokens:
        """Use the key in this folder, and create it first if there is none. Removing it ends all tokens."""
        file = folder / "crowd.key"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(file, secrets.token_bytes(_KEY_BYTES), mode=0o600)
        key = file.read_bytes()
        if len(key) < _KEY_BYTES:
            raise BadCrowdConfig(f"{file} is damaged.", "Remove it, and give your guests new tokens.")
        return cls(key, clock)

    def issue(self, room: str, identity: ChatIdentity, days: float = DEFAULT_DAYS) -> str:
        until_ms = self._clock.now_ms() + round(days * 86_400_000)
        claims = _Claims(room=room, name=identity.name, role=identity.role, until_ms=until_ms)
        body = _encode(claims.model_dump_json().encode())
        return f"{body}.{self._signature(body)}"

    def check(self, token: str, room: str) -> ChatIdentity:
        """Return who the token belongs to. Raises `IdentityRefused` if it is not valid for this room and time."""
        body, _, signature = token[:_MAX_TOKEN_CHARS].partition(".")
        if not hmac.compare_digest(self._signature(body).encode(), signature.encode("utf-8", "replace")):
            raise IdentityRefused("This token is not valid.", "Ask the owner of the room for a new link.")
        try:
            claims = _Claims.model_validate(json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))))
        except (ValueError, ValidationError):
            raise IdentityRefused("This token cannot be read.", "Ask the owner of the room for a new link.") from None
        if claims.room != room:
            raise IdentityRefused(f"This token is for the room {claims.room}.", "Use the link of this room.")
        if claims.until_ms <= self._clock.now_ms():
            raise IdentityRefused("This token has expired.", "Ask the owner of the room for a new link.")
        return ChatIdentity(claims.name, claims.role)

    def _signature(self, body: str) -> str:
        return _encode(hmac.digest(self._key, body.encode("utf-8", "replace"), hashlib.sha256))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


_MAX_AUTHORS = 50_000
_MENTION = re.compile(r"@([\w.-]*\w)")
_ONE_LINE = re.compile(ONE_LINE)
_CONTROLS = re.compile("[\x80-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters beyond ASCII, and those that change the direction of all that follows."""
_MAX_REMEMBERED = 20_000


class RoomLimits(Section):
    """The `[limits]` section of a room's file."""

    burst: int = Field(default=5, ge=1)
    """Messages an author may send at once."""
    per_minute: float = Field(default=30, gt=0)
    """Messages per author and minute in the long run."""
    slow_mode_s: float = Field(default=0, ge=0)
    """Seconds between two messages of an author, personas included; 0 is off."""
    followers_only: bool = False


ROOM_MODES = ("slow_mode_s", "followers_only")
"""Limits that a moderator's ruling can also set. The latest change of either counts."""


def changed_modes(before: RoomLimits, after: RoomLimits) -> tuple[str, ...]:
    """The names of the modes that differ."""
    return tuple(name for name in ROOM_MODES if getattr(before, name) != getattr(after, name))


_AUDIT_LIMITS = RoomLimits(burst=20, per_minute=60)
"""Audit records of refusals per author."""


class TokenBuckets:
    """A token bucket per author. Full buckets need not be stored."""

    def __init__(self, limits: RoomLimits) -> None:
        self._burst = float(limits.burst)
        self._per_ms = limits.per_minute / 60_000
        self._left: dict[str, tuple[float, int]] = {}
        """Author → tokens left, and when."""

    def take(self, author: str, now_ms: int) -> float:
        """Take a token. Returns 0, or the seconds until one is available."""
        left, since = self._left.get(author, (self._burst, now_ms))
        left = min(self._burst, left + (now_ms - since) * self._per_ms)
        if left < 1:
            return (1 - left) / self._per_ms / 1_000
        if len(self._left) >= _MAX_AUTHORS and author not in self._left:
            self._drop_full(now_ms)
        self._left[author] = (left - 1, now_ms)
        return 0.0

    def _drop_full(self, now_ms: int) -> None:
        self._left = {
            author: (left, since)
            for author, (left, since) in self._left.items()
            if left + (now_ms - since) * self._per_ms < self._burst
        }


class ModerationState:
    """Moderators' rulings in force: timeouts, bans, slow mode, followers only, and the kill switch."""

    def __init__(self, limits: RoomLimits) -> None:
        self._timed_out_until: dict[str, int] = {}
        self._banned: set[str] = set()
        self._followers: set[str] = set()
        self._last_message_ms: dict[str, int] = {}
        self.slow_ms = 0
        self.followers_only = False
        self.killed = False
        self.apply_limits(limits, ROOM_MODES)

    def apply_limits(self, limits: RoomLimits, changed: Collection[str]) -> None:
        """Set the modes that were changed in the room's file. Rulings on the others stay in force."""
        if "slow_mode_s" in changed:
            self.slow_ms = round(limits.slow_mode_s * 1_000)
        if "followers_only" in changed:
            self.followers_only = limits.followers_only

    def apply(self, ruling: CrowdRuled) -> None:
        name = ruling.who.casefold()
        match ruling.what:
            case "timeout":
                self._timed_out_until[name] = ruling.at_ms + round((ruling.seconds or 60) * 1_000)
            case "ban":
                self._banned.add(name)
            case "pardon":
                self._banned.discard(name)
                self._timed_out_until.pop(name, None)
            case "slow":
                self.slow_ms = round((ruling.seconds or 0) * 1_000)
            case "followers":
                self.followers_only = ruling.on
            case "follow":
                (self._followers.add if ruling.on else self._followers.discard)(name)
            case "kill":
                self.killed = True
            case "revive":
                self.killed = False

    def check(self, author: ChatAuthor, now_ms: int) -> None:
        """Raise `MessageRefused` if this author may not post now."""
        if self.killed:
            raise MessageRefused("killed", "This room is switched off.", "Wait until a moderator switches it on again.")
        name = author.name.casefold()
        if name in self._banned:
            raise MessageRefused("ban", "You are banned from this room.", "A moderator can lift it.")
        if (until := self._timed_out_until.get(name, 0)) > now_ms:
            seconds = (until - now_ms) / 1_000
            raise MessageRefused("timeout", "You are timed out.", f"Come back in {seconds:.0f} s.", seconds)
        if self.followers_only and author.kind == "human" and name not in self._followers:
            raise MessageRefused("followers", "Only followers may chat here.", "Follow the room first.")
        if self.slow_ms and (wait := self._last_message_ms.get(name, -self.slow_ms) + self.slow_ms - now_ms) > 0:
            raise MessageRefused(
                "slow", "The room is in slow mode.", f"Try again in {wait / 1_000:.0f} s.", wait / 1_000
            )

    def record_message(self, author: ChatAuthor, now_ms: int) -> None:
        if self.slow_ms:
            self._last_message_ms[author.name.casefold()] = now_ms


class Admitted(NamedTuple):
    message: ChatMessage
    audits: tuple[AuditRecord, ...] = ()
    duplicate: bool = False
    """The same post was sent before; `message` is the earlier result."""


class Refused(NamedTuple):
    error: MessageRefused
    audits: tuple[AuditRecord, ...]


class Admission:
    """Admits and numbers messages of one room. Stores and publishes nothing."""

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
        """`last` is the number of the room's last message; `names` can be mentioned from the start."""
        limits = limits or RoomLimits()
        self.room = room
        self.last_number = last
        self.moderation_state = ModerationState(limits)
        self.moderator = moderator
        self._buckets = TokenBuckets(limits)
        self._emotes = frozenset(emotes)
        self._names: dict[str, str] = {}
        self._reserved: dict[str, str] = {}
        """The skeleton of each persona's name → the name."""
        self._moderators: dict[str, str] = {}
        self._free_names: set[tuple[str, bool]] = set()
        """Names of people that were found to be nobody else's, and whether they are guests."""
        self._audit_budget = TokenBuckets(_AUDIT_LIMITS)
        self._unaudited: dict[str, int] = {}
        """Author → refusals without an audit record of their own since the last one."""
        self.add_names(names)
        self._sent: OrderedDict[tuple[str, str], ChatMessage] = OrderedDict()

    def change_rules(self, moderator: Moderator, limits: RoomLimits, changed: Collection[str] = ()) -> None:
        """Replace the rules. Moderators' rulings stay in force, except on the changed modes."""
        self.moderator = moderator
        self._buckets = TokenBuckets(limits)
        self.moderation_state.apply_limits(limits, changed)

    def add_names(self, names: Iterable[str]) -> None:
        """Add names of personas: they can be mentioned, and nobody else can post under them."""
        for name in names:
            self._names[name.casefold()] = name
            self._reserved[name_skeleton(name)] = name
        self._free_names.clear()

    def add_moderator(self, name: str) -> None:
        """Add the name of a moderator, under which no guest can post."""
        self._moderators[name_skeleton(name)] = name
        self._free_names.clear()

    def is_persona(self, name: str) -> bool:
        return self._reserved.get(name_skeleton(name)) == name

    def sent(self, post: ChatPost) -> ChatMessage | None:
        """The message of a post that was admitted before."""
        return self._sent.get((post.author.name, post.id))

    def remember(self, message: ChatMessage) -> None:
        """Take the number and the sender's id of an admitted message into account."""
        self.last_number = max(self.last_number, message.number)
        self._names[message.author.name.casefold()] = message.author.name
        if message.nonce is not None:
            self._sent[message.author.name, message.nonce] = message
            if len(self._sent) > _MAX_REMEMBERED:
                self._sent.popitem(last=False)

    def forget(self, message: ChatMessage) -> None:
        """Undo an admission whose message could not be stored: the same post may be sent again."""
        if message.nonce is not None and self._sent.get((message.author.name, message.nonce)) is message:
            del self._sent[message.author.name, message.nonce]
        if self.last_number == message.number:
            self.last_number -= 1

    def admit(self, post: ChatPost, now_ms: int, *, guest: bool = False, relayed: bool = False) -> Admitted | Refused:
        """`guest` is whether the post comes from a guest, as the receiver of the connection knows.

        `relayed` is whether another platform has admitted it already: its own rate limits count there.
        """
        author = post.author
        if (earlier := self.sent(post)) is not None:
            return Admitted(earlier, duplicate=True)
        try:
            text = self._check(post, now_ms, guest, relayed)
        except MessageRefused as refused:
            return Refused(refused, self.audit_refusal(refused.rule, refused.what, author, post.id, now_ms))
        verdict = self.moderator.check(text, strict=author.kind == "persona")
        if verdict.findings and (refusal := verdict.refusal) is not None:
            error = MessageRefused(refusal.rule, refusal.reason, "Rephrase it.")
            return Refused(error, self.audit_refusal(refusal.rule, refusal.reason, author, post.id, now_ms))
        self.moderation_state.record_message(author, now_ms)
        self.last_number += 1
        text = verdict.text
        # Not validated again: the post's fields were, and `_check` made sure that the text is one line.
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

    def _check(self, post: ChatPost, now_ms: int, guest: bool, relayed: bool) -> str:
        if post.room != self.room:
            raise MessageRefused("room", f"This is the room {self.room}, not {post.room}.", "Send it to its own room.")
        text = post.text.strip()
        if len(text) > MAX_MESSAGE_CHARS:
            raise MessageRefused(
                "length", f"A message has at most {MAX_MESSAGE_CHARS} characters.", "Shorten it, or split it in two."
            )
        if not text or not (text.isprintable() or (_ONE_LINE.match(text) and not _CONTROLS.search(text))):
            raise MessageRefused(
                "shape", "A message is one line of text.", "Leave out line breaks and control characters."
            )
        if (post.author.name, guest) not in self._free_names and (other := self._name_clash(post.author, guest)):
            raise MessageRefused(
                "name", f"{post.author.name} looks like {other}, who is somebody else here.", "Choose another name."
            )
        self.moderation_state.check(post.author, now_ms)
        if not relayed and (wait := self._buckets.take(post.author.name.casefold(), now_ms)) > 0:
            raise MessageRefused("rate", "You are sending too fast.", f"Try again in {wait:.0f} s.", wait)
        return text

    def _name_clash(self, author: ChatAuthor, guest: bool) -> str:
        """Whose name a person's name looks like; empty if it is nobody else's."""
        if author.kind == "persona":
            return ""
        skeleton = name_skeleton(author.name)
        if clash := self._reserved.get(skeleton) or (self._moderators.get(skeleton) if guest else None):
            return clash
        if len(self._free_names) >= _MAX_AUTHORS:
            self._free_names.clear()
        self._free_names.add((author.name, guest))
        return ""

    def _mentions(self, text: str) -> tuple[str, ...]:
        known_names = (self._names.get(name.casefold()) for name in _MENTION.findall(text))
        return tuple(dict.fromkeys(name for name in known_names if name is not None))

    def audit_refusal(
        self, rule: str, reason: str, author: ChatAuthor, message: str | None, now_ms: int
    ) -> tuple[AuditRecord, ...]:
        """The record of a refusal. In a flood only some get one, which says how many others there were."""
        name = author.name.casefold()
        if self._audit_budget.take(name, now_ms) > 0:
            if len(self._unaudited) < _MAX_AUTHORS:
                self._unaudited[name] = self._unaudited.get(name, 0) + 1
            return ()
        if others := self._unaudited.pop(name, 0):
            reason = f"{reason} {others} other refusals of this author have no record of their own."
        return (self._audit("refused", rule, reason, author, message, now_ms),)

    def _audit_finding(self, finding: ModerationFinding, author: ChatAuthor, message: str, now_ms: int) -> AuditRecord:
        return self._audit(finding.action, finding.rule, finding.reason, author, message, now_ms)

    def _audit(
        self, action: str, rule: str, reason: str, author: ChatAuthor, message: str | None, now_ms: int
    ) -> AuditRecord:
        return AuditRecord(
            room=self.room, ts=now_ms, action=action, rule=rule, reason=reason, author=author, message=message
        )


def _unknown_fields(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Extra fields of a post that are not fields of a message, which a sender must not set."""
    return {name: value for name, value in extra.items() if name not in ChatMessage.model_fields}
