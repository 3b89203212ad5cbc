"""Room keys: what opens what others write. Megolm, the receiving side.

A key counts only for the person whose device gave it to us: whoever wrote something must be whose key opens it. A place
in a key's row opens one event and no other, so that nobody can say old words again in another's name.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field

from vodozemac import ExportedSessionKey, GroupSession, InboundGroupSession, MegolmMessage, SessionKey

from coterie.base.logging import get_logger
from coterie.eventstore.sqlite.keystore import KeyPath, KeyStore
from coterie.surfaces.matrix.crypto.devices import MEGOLM, PICKLE_KEY, Device, DeviceList, OwnDevice
from coterie.surfaces.matrix.crypto.olm import OlmSessions, Undecryptable
from coterie.surfaces.matrix.crypto.primitives import Json
from coterie.surfaces.matrix.homeserver import Homeserver

_INBOUND = "room keys"


class MissingKey(Undecryptable):
    """We were not given the key, or only from a later place on."""


@dataclass
class InboundKey:
    room: str
    sender: str
    sender_key: str
    pickle: str
    heard: dict[str, str] = field(default_factory=dict)
    """The event at each place that was opened."""


class InboundSessions:
    def __init__(self, cabinet: KeyStore) -> None:
        self._cabinet = cabinet
        self._noted: dict[KeyPath, str | None] = {}

    def add_key(
        self, room: str, sender: str, sender_key: str, session: str, key: str, *, exported: bool = False
    ) -> dict[KeyPath, str | None]:
        """What to keep of a key we were given. One that opens less than what we have is not taken."""
        try:
            made = (
                InboundGroupSession.import_session(ExportedSessionKey(key))
                if exported
                else InboundGroupSession(SessionKey(key))
            )
        except ValueError as error:
            raise Undecryptable(str(error)) from error
        if made.session_id != session:
            raise Undecryptable("the key is not what it says it is")
        place = (_INBOUND, f"{room} {session}")
        before = self._kept(room, session)
        if before is not None:
            known = InboundGroupSession.from_pickle(before.pickle, PICKLE_KEY)
            if before.sender != sender or known.first_known_index <= made.first_known_index:
                return {}
        heard = before.heard if before is not None else {}
        return {place: json.dumps(asdict(InboundKey(room, sender, sender_key, made.pickle(PICKLE_KEY), heard)))}

    def can_decrypt(self, room: str, event: Json) -> bool:
        """Whether we have what would open it, now."""
        try:
            self._fitting(room, event)
        except Undecryptable:
            return False
        return True

    def decrypt(self, room: str, event: Json) -> Json:
        """The event as it was before it was sealed. Raises `NoKey` where one may still come."""
        key, line, message = self._fitting(room, event)
        try:
            opened = line.decrypt(message)
            told = json.loads(opened.plaintext)
        except ValueError as error:
            raise Undecryptable(str(error)) from error
        at, before = str(opened.message_index), key.heard.get(str(opened.message_index))
        if before not in (None, event["event_id"]):
            raise Undecryptable("said before, as another event")
        if not isinstance(told, dict) or told.get("room_id") != room or not isinstance(told.get("content"), dict):
            raise Undecryptable("meant for another room")
        if before is None:
            key.heard[at] = str(event["event_id"])
            self._noted[_INBOUND, f"{room} {line.session_id}"] = json.dumps(asdict(key))
        plain = {**told["content"]}
        if "m.relates_to" in event["content"]:
            plain["m.relates_to"] = event["content"]["m.relates_to"]
        return {**event, "type": str(told.get("type", "")), "content": plain}

    def take_changes(self) -> dict[KeyPath, str | None]:
        """Which places were opened since this was last asked."""
        noted, self._noted = self._noted, {}
        return noted

    def _fitting(self, room: str, event: Json) -> tuple[InboundKey, InboundGroupSession, MegolmMessage]:
        content = event["content"]
        try:
            session, message = str(content["session_id"]), MegolmMessage.from_base64(str(content["ciphertext"]))
        except (KeyError, ValueError) as error:
            raise Undecryptable(str(error)) from error
        key = self._kept(room, session)
        if key is None:
            raise MissingKey("no key for this")
        if key.sender != event.get("sender"):
            raise Undecryptable("somebody else's key")
        line = InboundGroupSession.from_pickle(key.pickle, PICKLE_KEY)
        if message.message_index() < line.first_known_index:
            raise MissingKey("the key begins later")
        return key, line, message

    def _kept(self, room: str, session: str) -> InboundKey | None:
        place = (_INBOUND, f"{room} {session}")
        told = self._noted.get(place) or self._cabinet.get(*place)
        return InboundKey(**json.loads(told)) if told is not None else None


# Sending. The key of a room goes to every device of every member and nowhere else: it is replaced when a member or a
# device leaves, after a hundred messages, and after a week. The ciphertext for a token is kept until the next send,
# so that a repeated send after a crash sends the same bytes.

ENCRYPTED = "m.room.encrypted"
_OUTBOUND, _GIVEN, _SENT = "speaking", "given", "sent"
_MESSAGES, _SECONDS = 100, 7 * 24 * 3600
_AT_ONCE = 50
_PATIENCE_S = 300.0
"""How long a device that gave no key to write to it is left alone."""
_log = get_logger(__name__)


@dataclass
class OutboundKey:
    pickle: str
    since: float
    count: int = 0
    shared: dict[str, list[str]] = field(default_factory=dict)
    """Devices that have it: each one's own key, and from which place on."""
    given: dict[str, str] = field(default_factory=dict)
    """The key as it was given out, by place."""


@dataclass(frozen=True)
class EncryptedMessage:
    content: Json
    event: str = ""
    """The homeserver's id of it, once that is known."""


class OutboundSessions:
    def __init__(
        self,
        cabinet: KeyStore,
        server: Homeserver,
        own: OwnDevice,
        devices: DeviceList,
        pairwise: OlmSessions,
        members: Callable[[str], Awaitable[frozenset[str]]],
    ) -> None:
        """`members` tells who is in a room or invited to it."""
        self._cabinet = cabinet
        self._server = server
        self._own = own
        self._devices = devices
        self._pairwise = pairwise
        self._members = members
        self._locks: dict[str, asyncio.Lock] = {}
        self._silent: dict[str, float] = {}

    async def send(self, room: str, kind: str, content: Json, token: str, rules: Json) -> str:
        """Say it, sealed. The same token again says it once, whatever happened in between."""
        async with self._locks.setdefault(room, asyncio.Lock()):
            sealed = self._sent(room, token) or await self._encrypt(room, kind, content, token, rules)
        if sealed.event:
            return sealed.event
        event = await self._server.send(room, ENCRYPTED, sealed.content, token)
        self._cabinet.put({(_SENT, f"{room} {token}"): json.dumps(asdict(EncryptedMessage(sealed.content, event)))})
        return event

    def discard_key(self, room: str) -> None:
        """The next thing said there has a new key."""
        self._cabinet.put({(_OUTBOUND, room): None})

    def key_shared_with(self, room: str, session: str, device: Device) -> str | None:
        """The key as we gave it to a device; None if it has no right to it."""
        kept = self._cabinet.get(_GIVEN, f"{room} {session}")
        key = OutboundKey(**json.loads(kept)) if kept is not None else None
        curve25519, place = key.shared.get(_name(device), ["", ""]) if key is not None else ("", "")
        return key.given[place] if key is not None and curve25519 == device.curve25519 else None

    def _sent(self, room: str, token: str) -> EncryptedMessage | None:
        kept = self._cabinet.get(_SENT, f"{room} {token}")
        return EncryptedMessage(**json.loads(kept)) if kept is not None else None

    async def _encrypt(self, room: str, kind: str, content: Json, token: str, rules: Json) -> EncryptedMessage:
        key = await self._shared_key(room, rules)
        line = GroupSession.from_pickle(key.pickle, PICKLE_KEY)
        plain = {"type": kind, "content": content, "room_id": room}
        sealed = line.encrypt(json.dumps(plain, ensure_ascii=False).encode())
        told = {
            "algorithm": MEGOLM,
            "ciphertext": sealed.to_base64(),
            "session_id": line.session_id,
            "sender_key": self._own.curve25519,
            "device_id": self._own.device,
        }
        if "m.relates_to" in content:  # homeservers gather threads and edits by it: it stays readable
            told["m.relates_to"] = content["m.relates_to"]
        key.pickle, key.count = line.pickle(PICKLE_KEY), key.count + 1
        changes: dict[KeyPath, str | None] = {(_OUTBOUND, room): json.dumps(asdict(key))}
        for name, kept in self._cabinet.entries(_SENT, f"{room} ").items():
            if json.loads(kept)["event"]:
                changes[_SENT, name] = None
        changes[_SENT, f"{room} {token}"] = json.dumps(asdict(EncryptedMessage(told)))
        self._cabinet.put(changes)
        return EncryptedMessage(told)

    async def _shared_key(self, room: str, rules: Json) -> OutboundKey:
        devices = await self._devices.for_users(await self._members(room))
        key = self._key(room)
        if key is None or _is_expired(key, rules) or not _all_present(key, devices):
            line = GroupSession()
            key = OutboundKey(line.pickle(PICKLE_KEY), time.time())
            self._cabinet.put({(_OUTBOUND, room): json.dumps(asdict(key))})
        without = [one for one in devices if _name(one) not in key.shared and not self._is_silent(one)]
        for start in range(0, len(without), _AT_ONCE):
            await self._share(room, key, without[start : start + _AT_ONCE])
        return key

    async def _share(self, room: str, key: OutboundKey, devices: list[Device]) -> None:
        line = GroupSession.from_pickle(key.pickle, PICKLE_KEY)
        reached = await self._pairwise.ensure_sessions(devices)
        for one in devices:
            if one not in reached:
                self._silent[one.curve25519] = time.monotonic() + _PATIENCE_S
        told = {
            "algorithm": MEGOLM,
            "room_id": room,
            "session_id": line.session_id,
            "session_key": line.session_key.to_base64(),
        }
        await send_to_devices(self._cabinet, self._server, self._pairwise, reached, "m.room_key", told)
        place = str(line.message_index)
        key.given[place] = line.session_key.to_base64()
        key.shared |= {_name(one): [one.curve25519, place] for one in reached}
        again = json.dumps(asdict(key) | {"pickle": ""})
        self._cabinet.put({(_OUTBOUND, room): json.dumps(asdict(key)), (_GIVEN, f"{room} {line.session_id}"): again})

    def _is_silent(self, device: Device) -> bool:
        return self._silent.get(device.curve25519, 0.0) > time.monotonic()

    def _key(self, room: str) -> OutboundKey | None:
        kept = self._cabinet.get(_OUTBOUND, room)
        return OutboundKey(**json.loads(kept)) if kept is not None else None


async def send_to_devices(
    cabinet: KeyStore, server: Homeserver, pairwise: OlmSessions, devices: list[Device], kind: str, content: Json
) -> None:
    """One message to each of these devices. The steps of the cipher are kept before anything leaves."""
    messages: dict[str, Json] = {}
    changes: dict[KeyPath, str | None] = {}
    for one in devices:
        encrypted, session_changes = pairwise.encrypt(one, kind, content)
        messages.setdefault(one.user, {})[one.device] = encrypted
        changes |= session_changes
    if messages:
        cabinet.put(changes)
        mark = hashlib.sha256(json.dumps(messages, sort_keys=True).encode()).hexdigest()[:24]
        await server.send_to_device(ENCRYPTED, messages, mark)


def _name(device: Device) -> str:
    return f"{device.user} {device.device}"


def _is_expired(key: OutboundKey, rules: Json) -> bool:
    most = min(_number(rules.get("rotation_period_msgs"), _MESSAGES), _MESSAGES)
    longest = min(_number(rules.get("rotation_period_ms"), _SECONDS * 1000) / 1000, _SECONDS)
    return key.count >= most or time.time() - key.since >= longest


def _all_present(key: OutboundKey, devices: list[Device]) -> bool:
    """Whether everybody who has the key may still hear us."""
    present = {_name(one): one.curve25519 for one in devices}
    return all(present.get(name) == got[0] for name, got in key.shared.items())


def _number(told: object, otherwise: int) -> int:
    return told if isinstance(told, int) and not isinstance(told, bool) and told > 0 else otherwise
