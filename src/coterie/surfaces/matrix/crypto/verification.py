"""Verification of our device by emoji (`m.sas.v1`), begun by a person's client, between devices or in a room.

Both sides derive the same seven emoji from a key exchange; people compare them. Then each side confirms its long-term
keys with the exchanged key, so that the client marks our account as verified. Nothing of it is stored: after a restart
it is begun anew.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vodozemac import EstablishedSas, Sas

from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.messaging import SurfaceError
from coterie.surfaces.matrix.crypto.devices import CrossSigningIdentity, Device, DeviceList, OwnDevice
from coterie.surfaces.matrix.crypto.primitives import canonical_json, curve25519_key, panics_as_errors, to_base64
from coterie.surfaces.matrix.homeserver import Homeserver, Json
from coterie.surfaces.matrix.schemas import object_at

VERIFICATION = "m.key.verification."
REQUEST = f"{VERIFICATION}request"
METHOD = "m.sas.v1"
_AGREEMENT, _HASH, _STRINGS = "curve25519-hkdf-sha256", "sha256", ("emoji", "decimal")
_MACS = ("hkdf-hmac-sha256.v2", "hkdf-hmac-sha256")
"""In the order of our preference. The second has a known error in its base64, which both sides must make."""
_VALID_S = 600.0
_MAX_OPEN = 20
SendInRoom = Callable[[str, str, Json, str], Awaitable[str]]
Stage = Literal["requested", "accepted", "compared", "confirmed"]
# fmt: off
_EMOJI = (
    "🐶 Dog", "🐱 Cat", "🦁 Lion", "🐎 Horse", "🦄 Unicorn", "🐷 Pig",
    "🐘 Elephant", "🐰 Rabbit", "🐼 Panda", "🐓 Rooster", "🐧 Penguin", "🐢 Turtle",
    "🐟 Fish", "🐙 Octopus", "🦋 Butterfly", "🌷 Flower", "🌳 Tree", "🌵 Cactus",
    "🍄 Mushroom", "🌏 Globe", "🌙 Moon", "☁️ Cloud", "🔥 Fire", "🍌 Banana",
    "🍎 Apple", "🍓 Strawberry", "🌽 Corn", "🍕 Pizza", "🎂 Cake", "❤️ Heart",
    "😀 Smiley", "🤖 Robot", "🎩 Hat", "👓 Glasses", "🔧 Spanner", "🎅 Santa",
    "👍 Thumbs Up", "☂️ Umbrella", "⌛ Hourglass", "⏰ Clock", "🎁 Gift", "💡 Light Bulb",
    "📕 Book", "✏️ Pencil", "📎 Paperclip", "✂️ Scissors", "🔒 Lock", "🔑 Key",
    "🔨 Hammer", "☎️ Telephone", "🏁 Flag", "🚂 Train", "🚲 Bicycle", "✈️ Aeroplane",
    "🚀 Rocket", "🏆 Trophy", "⚽ Ball", "🎸 Guitar", "🎺 Trumpet", "🔔 Bell",
    "⚓ Anchor", "🎧 Headphones", "📁 Folder", "📌 Pin",
)
# fmt: on
_log = get_logger(__name__)


def is_verification(event: Json) -> bool:
    """Whether an event of a room belongs to a verification."""
    is_request = event.get("type") == "m.room.message" and object_at(event, "content").get("msgtype") == REQUEST
    return is_request or str(event.get("type")).startswith(VERIFICATION)


class VerificationFailed(Exception):
    """Why a verification ends, with the code of the protocol."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass
class Verification:
    """One that a person's client began."""

    user: str
    device: str
    transaction: str
    room: str
    """The room in which it takes place; empty between devices."""
    since: float = field(default_factory=time.time)
    stage: Stage = "requested"
    mac: str = ""
    """The agreed way of confirming keys."""
    emoji: tuple[str, ...] = ()
    """What the people compare, once the keys are exchanged."""
    ours: Sas | None = None
    shared: EstablishedSas | None = None
    their_mac: Json | None = None


class Verifications:
    def __init__(
        self,
        server: Homeserver,
        own: OwnDevice,
        devices: DeviceList,
        send_in_room: SendInRoom,
        is_welcome: Callable[[str], bool] = lambda user: True,
    ) -> None:
        """Only users who are welcome can begin one."""
        self._server = server
        self._own = own
        self._devices = devices
        self._send_in_room = send_in_room
        self.is_welcome = is_welcome
        self.identity: Path | None = None
        """The file of the cross-signing identity, which is confirmed with the device."""
        self._open: dict[tuple[str, str], Verification] = {}
        self.verified_by: list[str] = []
        """The users who have verified this device since the start, latest last."""

    def to_compare(self) -> list[Verification]:
        """Those whose emoji wait for a person's answer."""
        self._forget_old()
        return [one for one in self._open.values() if one.stage == "compared"]

    async def receive(self, sender: str, kind: str, content: Json) -> None:
        """A to-device message of a verification."""
        transaction = content.get("transaction_id")
        if isinstance(transaction, str):
            await self._receive(sender, kind, content, transaction, "")

    async def receive_in_room(self, room: str, event: Json) -> None:
        """A message of a verification in a room; the request is its transaction."""
        sender, content, kind = str(event.get("sender")), object_at(event, "content"), str(event.get("type"))
        sent_at = event.get("origin_server_ts")
        is_old = not isinstance(sent_at, int) or time.time() - sent_at / 1000 > _VALID_S
        if sender == self._own.user or is_old:
            return
        if kind == "m.room.message":
            if content.get("to") == self._own.user:
                await self._receive(sender, REQUEST, content, str(event["event_id"]), room)
            return
        transaction = object_at(content, "m.relates_to").get("event_id")
        if isinstance(transaction, str):
            await self._receive(sender, kind, content, transaction, room)

    async def answer(self, transaction: str, *, matches: bool) -> bool:
        """A person has compared the emoji. False if the verification is no longer open."""
        one = next((one for one in self.to_compare() if one.transaction == transaction), None)
        if one is None:
            return False
        try:
            if not matches:
                raise VerificationFailed("m.mismatched_sas", "The emoji are not the same.")
            await self._send(one, "mac", self._own_mac(one))
            one.stage = "confirmed"
            await self._finish(one)
        except VerificationFailed as error:
            await self._cancel(one, error)
        return True

    async def _receive(self, sender: str, kind: str, content: Json, transaction: str, room: str) -> None:
        step, key = kind.removeprefix(VERIFICATION), (sender, transaction)
        self._forget_old()
        one = self._open.get(key)
        if one is None and step in ("request", "start"):
            if not self.is_welcome(sender) or len(self._open) >= _MAX_OPEN or content.get("from_device") is None:
                return
            one = self._open[key] = Verification(sender, str(content["from_device"]), transaction, room)
        if one is None or one.room != room:
            return
        try:
            await self._step(one, step, content)
        except VerificationFailed as error:
            _log.info("a verification failed", user=sender, reason=str(error))
            await self._cancel(one, error)
        except ValueError as error:
            await self._cancel(one, VerificationFailed("m.invalid_message", f"It cannot be read: {error}"))

    async def _step(self, one: Verification, step: str, content: Json) -> None:
        match step, one.stage:
            case "request", "requested":
                _require(METHOD in _texts(content.get("methods")), "m.unknown_method", "There is no common method.")
                await self._send(one, "ready", {"from_device": self._own.device, "methods": [METHOD]})
            case "start", "requested":
                await self._accept(one, content)
            case "key", "accepted":
                await self._exchange_keys(one, str(content.get("key")))
            case "mac", "compared" | "confirmed":
                one.their_mac = content
                await self._check_their_mac(one, content)
                await self._finish(one)
            case (("cancel" | "done"), _):
                self._open.pop((one.user, one.transaction), None)
            case _:
                raise VerificationFailed("m.unexpected_message", f"{step[:20]} was not expected.")

    async def _accept(self, one: Verification, start: Json) -> None:
        known = (
            start.get("method") == METHOD,
            _AGREEMENT in _texts(start.get("key_agreement_protocols")),
            _HASH in _texts(start.get("hashes")),
            not {"emoji"}.isdisjoint(_texts(start.get("short_authentication_string"))),
        )
        offered = _texts(start.get("message_authentication_codes"))
        one.mac = next((mac for mac in _MACS if mac in offered), "")
        _require(all(known) and one.mac != "", "m.unknown_method", "There is no common way of comparing.")
        one.device, one.ours, one.stage = str(start.get("from_device")), Sas(), "accepted"
        commitment = hashlib.sha256(one.ours.public_key.to_base64().encode() + canonical_json(start)).digest()
        accept = {"method": METHOD, "key_agreement_protocol": _AGREEMENT, "hash": _HASH}
        accept |= {"message_authentication_code": one.mac, "commitment": to_base64(commitment)}
        await self._send(one, "accept", {**accept, "short_authentication_string": ["emoji"]})

    async def _exchange_keys(self, one: Verification, their_key: str) -> None:
        if one.ours is None:
            raise VerificationFailed("m.unexpected_message", "There was no start.")
        our_key = one.ours.public_key.to_base64()
        with panics_as_errors():
            one.shared = one.ours.diffie_hellman(curve25519_key(their_key))
        parts = (one.user, one.device, their_key, self._own.user, self._own.device, our_key, one.transaction)
        indices = one.shared.bytes("|".join(("MATRIX_KEY_VERIFICATION_SAS", *parts))).emoji_indices
        await self._send(one, "key", {"key": our_key})
        one.emoji, one.stage = tuple(_EMOJI[index] for index in indices), "compared"

    def _own_mac(self, one: Verification) -> Json:
        keys = {f"ed25519:{self._own.device}": self._own.ed25519}
        identity = CrossSigningIdentity.load(self.identity) if self.identity is not None else None
        if identity is not None:
            master = identity.public("master")
            keys[f"ed25519:{master}"] = master
        base = f"MATRIX_KEY_VERIFICATION_MAC{self._own.user}{self._own.device}{one.user}{one.device}{one.transaction}"
        macs = {name: _mac(one, key, base + name) for name, key in keys.items()}
        return {"mac": macs, "keys": _mac(one, ",".join(sorted(macs)), f"{base}KEY_IDS")}

    async def _check_their_mac(self, one: Verification, content: Json) -> None:
        """Their device confirms its key with the exchanged key: nobody stood between us."""
        macs = {name: str(value) for name, value in object_at(content, "mac").items()}
        base = f"MATRIX_KEY_VERIFICATION_MAC{one.user}{one.device}{self._own.user}{self._own.device}{one.transaction}"
        device = await self._device_of(one)
        name = f"ed25519:{one.device}"
        expected = {
            "keys": _mac(one, ",".join(sorted(macs)), f"{base}KEY_IDS"),
            "device": _mac(one, device.ed25519, base + name) if device is not None else "",
        }
        found = {"keys": str(content.get("keys")), "device": macs.get(name, "")}
        same = [hmac.compare_digest(expected[part].encode(), found[part].encode()) for part in expected]
        _require(device is not None and all(same), "m.key_mismatch", "A key is not the one that was exchanged.")

    async def _device_of(self, one: Verification) -> Device | None:
        devices = await self._devices.for_users([one.user])
        return next((device for device in devices if device.device == one.device), None)

    async def _finish(self, one: Verification) -> None:
        if one.stage == "confirmed" and one.their_mac is not None:
            await self._send(one, "done", {})
            self._open.pop((one.user, one.transaction), None)
            self.verified_by.append(one.user)
            _log.info("this device was verified", user=one.user)

    async def _cancel(self, one: Verification, error: VerificationFailed) -> None:
        self._open.pop((one.user, one.transaction), None)
        try:
            await self._send(one, "cancel", {"code": error.code, "reason": str(error)})
        except SurfaceError as failure:
            _log.info("a verification was not cancelled", user=one.user, error=str(failure))

    async def _send(self, one: Verification, step: str, content: Json) -> None:
        kind, token = f"{VERIFICATION}{step}", f"verify.{new_id()}"
        if one.room:
            relation = {"rel_type": "m.reference", "event_id": one.transaction}
            await self._send_in_room(one.room, kind, {**content, "m.relates_to": relation}, token)
        else:
            message = {**content, "transaction_id": one.transaction}
            await self._server.send_to_device(kind, {one.user: {one.device: message}}, token)

    def _forget_old(self) -> None:
        limit = time.time() - _VALID_S
        self._open = {key: one for key, one in self._open.items() if one.since > limit}


def _mac(one: Verification, text: str, info: str) -> str:
    if one.shared is None:
        raise VerificationFailed("m.unexpected_message", "The keys were not exchanged.")
    is_fixed = one.mac == _MACS[0]
    return one.shared.calculate_mac(text, info) if is_fixed else one.shared.calculate_mac_invalid_base64(text, info)


def _require(condition: bool, code: str, reason: str) -> None:
    if not condition:
        raise VerificationFailed(code, reason)


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
