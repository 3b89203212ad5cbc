"""What we say in a sealed room. Megolm, the sending side.

The key of a room goes to every device of everybody in it and in nobody else's hands: it is changed when somebody leaves
or a device is gone, after a hundred messages, and after a week. What was sealed under a token is kept until the next
thing is said, so that repeating a send after a crash repeats the same bytes, or no bytes if the homeserver took them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field

from vodozemac import GroupSession

from coterie.base.logging import get_logger
from coterie.kernel.cabinet import KeyPath, KeyStore
from coterie.surfaces.matrix.crypto.devices import Device, DeviceList
from coterie.surfaces.matrix.crypto.own_device import MEGOLM, PICKLE_KEY, OwnDevice
from coterie.surfaces.matrix.crypto.pairwise import OlmSessions
from coterie.surfaces.matrix.crypto.signing import Json
from coterie.surfaces.matrix.homeserver import Homeserver

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
        content, step = pairwise.encrypt(one, kind, content)
        messages.setdefault(one.user, {})[one.device] = content
        changes |= step
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
