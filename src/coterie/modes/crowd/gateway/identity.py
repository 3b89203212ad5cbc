"""Who posts, and under which name: decided by the receiver of a connection, never by a field of a message.

The owner gives each guest a signed token for one room and one name (`coterie crowd invite`). A connection without a
token can only read. A name that looks like the name of a persona or of a moderator is refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from coterie.base.clock import Clock
from coterie.base.paths import write_atomic
from coterie.modes.crowd.errors import BadCrowdConfig, IdentityRefused
from coterie.modes.crowd.moderation.wordlist import fold
from coterie.modes.crowd.protocol.messages import RESERVED_NAMES

ChatRole = Literal["owner", "guest"]
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
