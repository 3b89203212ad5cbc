"""Megolm: room keys, with which events in encrypted rooms are encrypted and decrypted.

Receiving: a key counts only for the user whose device sent it. Each message index of a key decrypts one event, so that
an event cannot be replayed as another.

Sending: the key of a room goes to every device of every member and nowhere else. It is replaced when a member or a
device leaves, after a hundred messages, and after a week. The ciphertext for a token is kept until the next send, so
that a repeated send after a crash sends the same bytes.
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
from coterie.base.untrusted import describe_problem, parse_json
from coterie.eventstore import KeyPath, KeyStore
from coterie.surfaces.matrix.crypto.devices import MEGOLM, PICKLE_KEY, Device, DeviceList, OwnDevice
from coterie.surfaces.matrix.crypto.olm import OlmSessions, Undecryptable
from coterie.surfaces.matrix.crypto.primitives import panics_as_errors
from coterie.surfaces.matrix.homeserver import Homeserver, Json
from coterie.surfaces.matrix.schemas import EncryptedContent

_INBOUND = "room keys"


class MissingKey(Undecryptable):
    """We do not have the key, or only from a later message index on."""


@dataclass
class InboundKey:
    room: str
    sender: str
    sender_key: str
    pickle: str
    heard: dict[str, str] = field(default_factory=dict)
    """The event that was decrypted at each message index."""


class InboundSessions:
    def __init__(self, keystore: KeyStore) -> None:
        self._keystore = keystore
        self._changes: dict[KeyPath, str | None] = {}

    def add_key(
        self, room: str, sender: str, sender_key: str, session: str, key: str, *, exported: bool = False
    ) -> dict[KeyPath, str | None]:
        """The changes to store for a received key. A key that decrypts less than the one we have is ignored."""
        try:
            with panics_as_errors():
                session_key = (
                    InboundGroupSession.import_session(ExportedSessionKey(key))
                    if exported
                    else InboundGroupSession(SessionKey(key))
                )
        except ValueError as error:
            raise Undecryptable(str(error)) from error
        if session_key.session_id != session:
            raise Undecryptable("the key has another session id")
        path = (_INBOUND, f"{room} {session}")
        before = self._key(room, session)
        if before is not None:
            current = InboundGroupSession.from_pickle(before.pickle, PICKLE_KEY)
            if before.sender != sender or current.first_known_index <= session_key.first_known_index:
                return {}
        heard = before.heard if before is not None else {}
        return {path: json.dumps(asdict(InboundKey(room, sender, sender_key, session_key.pickle(PICKLE_KEY), heard)))}

    def can_decrypt(self, room: str, event: Json) -> bool:
        """Whether we have the key to it."""
        try:
            self._find_key(room, event)
        except Undecryptable:
            return False
        return True

    def decrypt(self, room: str, event: Json) -> Json:
        """The decrypted event. Raises `MissingKey` if its key may still arrive."""
        key, session, message = self._find_key(room, event)
        try:
            with panics_as_errors():
                decrypted = session.decrypt(message)
            plain = parse_json(decrypted.plaintext)
        except ValueError as error:
            raise Undecryptable(str(error)) from error
        index = str(decrypted.message_index)
        known_event = key.heard.get(index)
        if known_event not in (None, event["event_id"]):
            raise Undecryptable("a replay of another event")
        if not isinstance(plain, dict) or plain.get("room_id") != room or not isinstance(plain.get("content"), dict):
            raise Undecryptable("meant for another room")
        if known_event is None:
            key.heard[index] = str(event["event_id"])
            self._changes[_INBOUND, f"{room} {session.session_id}"] = json.dumps(asdict(key))
        content = {**plain["content"]}
        if "m.relates_to" in event["content"]:
            content["m.relates_to"] = event["content"]["m.relates_to"]
        return {**event, "type": str(plain.get("type", "")), "content": content}

    def take_changes(self) -> dict[KeyPath, str | None]:
        """The changes to store for what was decrypted since the last call."""
        changes, self._changes = self._changes, {}
        return changes

    def _find_key(self, room: str, event: Json) -> tuple[InboundKey, InboundGroupSession, MegolmMessage]:
        try:
            content = EncryptedContent.model_validate(event["content"])
            with panics_as_errors():
                session, message = content.session_id, MegolmMessage.from_base64(content.ciphertext)
        except ValueError as error:
            raise Undecryptable(describe_problem(error)) from None
        key = self._key(room, session)
        if key is None:
            raise MissingKey("there is no key for it")
        if key.sender != event.get("sender"):
            raise Undecryptable("the key is of another sender")
        group_session = InboundGroupSession.from_pickle(key.pickle, PICKLE_KEY)
        if message.message_index() < group_session.first_known_index:
            raise MissingKey("the key starts at a later message")
        return key, group_session, message

    def _key(self, room: str, session: str) -> InboundKey | None:
        path = (_INBOUND, f"{room} {session}")
        row = self._changes.get(path) or self._keystore.get(*path)
        return InboundKey(**json.loads(row)) if row is not None else None


ENCRYPTED = "m.room.encrypted"
_OUTBOUND, _GIVEN, _SENT = "speaking", "given", "sent"
_MAX_MESSAGES, _MAX_AGE_S = 100, 7 * 24 * 3600
_DEVICES_PER_REQUEST = 50
_RETRY_DEVICE_S = 300.0
"""How long a device without a one-time key is skipped."""
_log = get_logger(__name__)


@dataclass
class OutboundKey:
    pickle: str
    since: float
    count: int = 0
    shared: dict[str, list[str]] = field(default_factory=dict)
    """The devices that have it: their identity key, and from which message index on."""
    given: dict[str, str] = field(default_factory=dict)
    """The key as it was sent, by message index."""


@dataclass(frozen=True)
class EncryptedMessage:
    content: Json
    event: str = ""
    """The homeserver's event id, once it is known."""


class OutboundSessions:
    def __init__(
        self,
        keystore: KeyStore,
        server: Homeserver,
        own: OwnDevice,
        devices: DeviceList,
        pairwise: OlmSessions,
        members: Callable[[str], Awaitable[frozenset[str]]],
    ) -> None:
        """`members` gives who is in a room or invited to it."""
        self._keystore = keystore
        self._server = server
        self._own = own
        self._devices = devices
        self._pairwise = pairwise
        self._members = members
        self._locks: dict[str, asyncio.Lock] = {}
        self._skipped_until: dict[str, float] = {}

    async def send(self, room: str, kind: str, content: Json, token: str, rules: Json) -> str:
        """Encrypt and send. The same token again sends it once, also after a crash."""
        async with self._locks.setdefault(room, asyncio.Lock()):
            message = self._sent(room, token) or await self._encrypt(room, kind, content, token, rules)
        if message.event:
            return message.event
        event = await self._server.send(room, ENCRYPTED, message.content, token)
        self._keystore.put({(_SENT, f"{room} {token}"): json.dumps(asdict(EncryptedMessage(message.content, event)))})
        return event

    def discard_key(self, room: str) -> None:
        """The next message in the room gets a new key."""
        self._keystore.put({(_OUTBOUND, room): None})

    def key_shared_with(self, room: str, session: str, device: Device) -> str | None:
        """The key as we sent it to a device; None if we did not."""
        row = self._keystore.get(_GIVEN, f"{room} {session}")
        key = OutboundKey(**json.loads(row)) if row is not None else None
        curve25519, index = key.shared.get(_name(device), ["", ""]) if key is not None else ("", "")
        return key.given[index] if key is not None and curve25519 == device.curve25519 else None

    def _sent(self, room: str, token: str) -> EncryptedMessage | None:
        row = self._keystore.get(_SENT, f"{room} {token}")
        return EncryptedMessage(**json.loads(row)) if row is not None else None

    async def _encrypt(self, room: str, kind: str, content: Json, token: str, rules: Json) -> EncryptedMessage:
        key = await self._shared_key(room, rules)
        session = GroupSession.from_pickle(key.pickle, PICKLE_KEY)
        plain = {"type": kind, "content": content, "room_id": room}
        ciphertext = session.encrypt(json.dumps(plain, ensure_ascii=False).encode())
        encrypted = {
            "algorithm": MEGOLM,
            "ciphertext": ciphertext.to_base64(),
            "session_id": session.session_id,
            "sender_key": self._own.curve25519,
            "device_id": self._own.device,
        }
        if "m.relates_to" in content:  # homeservers group threads and edits by it, so it stays readable
            encrypted["m.relates_to"] = content["m.relates_to"]
        key.pickle, key.count = session.pickle(PICKLE_KEY), key.count + 1
        changes: dict[KeyPath, str | None] = {(_OUTBOUND, room): json.dumps(asdict(key))}
        for name, row in self._keystore.entries(_SENT, f"{room} ").items():
            if json.loads(row)["event"]:
                changes[_SENT, name] = None
        changes[_SENT, f"{room} {token}"] = json.dumps(asdict(EncryptedMessage(encrypted)))
        self._keystore.put(changes)
        return EncryptedMessage(encrypted)

    async def _shared_key(self, room: str, rules: Json) -> OutboundKey:
        devices = await self._devices.for_users(await self._members(room))
        key = self._key(room)
        if key is None or _is_expired(key, rules) or not _all_present(key, devices):
            key = OutboundKey(GroupSession().pickle(PICKLE_KEY), time.time())
            self._keystore.put({(_OUTBOUND, room): json.dumps(asdict(key))})
        missing = [device for device in devices if _name(device) not in key.shared and not self._is_skipped(device)]
        for start in range(0, len(missing), _DEVICES_PER_REQUEST):
            await self._share(room, key, missing[start : start + _DEVICES_PER_REQUEST])
        return key

    async def _share(self, room: str, key: OutboundKey, devices: list[Device]) -> None:
        session = GroupSession.from_pickle(key.pickle, PICKLE_KEY)
        reached = await self._pairwise.ensure_sessions(devices)
        for device in devices:
            if device not in reached:
                self._skipped_until[device.curve25519] = time.monotonic() + _RETRY_DEVICE_S
        room_key = {
            "algorithm": MEGOLM,
            "room_id": room,
            "session_id": session.session_id,
            "session_key": session.session_key.to_base64(),
        }
        await send_to_devices(self._keystore, self._server, self._pairwise, reached, "m.room_key", room_key)
        index = str(session.message_index)
        key.given[index] = session.session_key.to_base64()
        key.shared |= {_name(device): [device.curve25519, index] for device in reached}
        shared_key = json.dumps(asdict(key) | {"pickle": ""})
        self._keystore.put(
            {(_OUTBOUND, room): json.dumps(asdict(key)), (_GIVEN, f"{room} {session.session_id}"): shared_key}
        )

    def _is_skipped(self, device: Device) -> bool:
        return self._skipped_until.get(device.curve25519, 0.0) > time.monotonic()

    def _key(self, room: str) -> OutboundKey | None:
        row = self._keystore.get(_OUTBOUND, room)
        return OutboundKey(**json.loads(row)) if row is not None else None


async def send_to_devices(
    keystore: KeyStore, server: Homeserver, pairwise: OlmSessions, devices: list[Device], kind: str, content: Json
) -> None:
    """Send one message to each device. The sessions are stored before anything is sent."""
    messages: dict[str, Json] = {}
    changes: dict[KeyPath, str | None] = {}
    for device in devices:
        encrypted, session_changes = pairwise.encrypt(device, kind, content)
        messages.setdefault(device.user, {})[device.device] = encrypted
        changes |= session_changes
    if messages:
        keystore.put(changes)
        transaction = hashlib.sha256(json.dumps(messages, sort_keys=True).encode()).hexdigest()[:24]
        await server.send_to_device(ENCRYPTED, messages, transaction)


def _name(device: Device) -> str:
    return f"{device.user} {device.device}"


def _is_expired(key: OutboundKey, rules: Json) -> bool:
    max_messages = min(_positive(rules.get("rotation_period_msgs"), _MAX_MESSAGES), _MAX_MESSAGES)
    max_age_s = min(_positive(rules.get("rotation_period_ms"), _MAX_AGE_S * 1000) / 1000, _MAX_AGE_S)
    return key.count >= max_messages or time.time() - key.since >= max_age_s


def _all_present(key: OutboundKey, devices: list[Device]) -> bool:
    """Whether every device that has the key is still in the room."""
    present = {_name(device): device.curve25519 for device in devices}
    return all(present.get(name) == curve25519 for name, (curve25519, _) in key.shared.items())


def _positive(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default
