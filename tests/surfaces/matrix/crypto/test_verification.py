"""Verification by emoji: against a second implementation of the protocol, and what ends it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from nio.crypto.sas import Sas as NioSas
from vodozemac import Account, Curve25519PublicKey, Sas

from coterie.eventstore import KeyStore
from coterie.surfaces.matrix.crypto.devices import CrossSigningIdentity, Device, DeviceList, OwnDevice
from coterie.surfaces.matrix.crypto.primitives import canonical_json, to_base64
from coterie.surfaces.matrix.crypto.verification import _EMOJI, VERIFICATION, Verifications, is_verification
from coterie.surfaces.matrix.homeserver import Homeserver, Json

BOT, ANA = "@bot:here", "@ana:here"
ANA_KEYS = Account()


@dataclass
class Sent:
    """What our side sent, by step."""

    steps: list[tuple[str, Json]] = field(default_factory=list)

    def last(self, step: str) -> Json:
        return next(content for name, content in reversed(self.steps) if name == step)


class OneDevice(DeviceList):
    async def for_users(self, users: Any) -> list[Device]:
        return [Device(ANA, "PHONE", ANA_KEYS.curve25519_key.to_base64(), ANA_KEYS.ed25519_key.to_base64())]


class Recording(Homeserver):
    def __init__(self, sent: Sent) -> None:
        super().__init__("http://127.0.0.1:1")
        self._sent = sent

    async def send_to_device(self, kind: str, messages: Json, transaction: str) -> None:
        ((user, devices),) = messages.items()
        assert user == ANA and list(devices) == ["PHONE"]
        self._sent.steps.append((kind.removeprefix(VERIFICATION), devices["PHONE"]))


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def ours(tmp_path: Path, sent: Sent) -> Iterator[Verifications]:
    keystore, server = KeyStore(tmp_path / "keys.db"), Recording(sent)
    own = OwnDevice(keystore, BOT, "BOTDEVICE")

    async def send_in_room(room: str, kind: str, content: Json, token: str) -> str:
        assert room == "!room"
        sent.steps.append((kind.removeprefix(VERIFICATION), content))
        return "$sent"

    found = Verifications(server, own, OneDevice(keystore, server, (BOT, "BOTDEVICE")), send_in_room)
    found.identity = tmp_path / "identity.json"
    found.identity.write_text(json.dumps(CrossSigningIdentity.new().seeds))
    yield found
    keystore.close()


class Client:
    """The side of a person's client, written from the specification."""

    def __init__(self, ours: Verifications, sent: Sent, transaction: str, *, in_room: bool, mac: str) -> None:
        self._ours, self._sent, self._transaction = ours, sent, transaction
        self._in_room, self._mac_name = in_room, mac
        self._sas = Sas()

    async def say(self, step: str, content: Json) -> None:
        if not self._in_room:
            await self._ours.receive(ANA, f"{VERIFICATION}{step}", {**content, "transaction_id": self._transaction})
            return
        event: Json = {"sender": ANA, "origin_server_ts": int(time.time() * 1000), "event_id": self._transaction}
        if step == "request":
            content = {**content, "msgtype": f"{VERIFICATION}request", "to": BOT, "body": "Verify me"}
            event |= {"type": "m.room.message", "content": content}
        else:
            relation = {"rel_type": "m.reference", "event_id": self._transaction}
            event |= {"type": f"{VERIFICATION}{step}", "content": {**content, "m.relates_to": relation}}
            event["event_id"] = f"${step}"
        assert is_verification(event)
        await self._ours.receive_in_room("!room", event)

    async def exchange(self) -> list[str]:
        """Up to the emoji; returns those that this side shows."""
        await self.say("request", {"from_device": "PHONE", "methods": ["m.sas.v1", "m.qr_code.scan.v1"]})
        assert self._sent.last("ready")["methods"] == ["m.sas.v1"]
        start: Json = {
            "from_device": "PHONE",
            "method": "m.sas.v1",
            "key_agreement_protocols": ["curve25519-hkdf-sha256"],
            "hashes": ["sha256"],
            "message_authentication_codes": [self._mac_name, "unknown"],
            "short_authentication_string": ["decimal", "emoji"],
        }
        await self.say("start", start)
        accept = self._sent.last("accept")
        key = self._sas.public_key.to_base64()
        await self.say("key", {"key": key})
        theirs = self._sent.last("key")["key"]
        signed = {**start, "m.relates_to": {"rel_type": "m.reference", "event_id": self._transaction}}
        if not self._in_room:
            signed = {**start, "transaction_id": self._transaction}
        commitment = hashlib.sha256(theirs.encode() + canonical_json(signed)).digest()
        assert accept["commitment"] == to_base64(commitment)
        self._shared = self._sas.diffie_hellman(Curve25519PublicKey.from_base64(theirs))
        info = "|".join(("MATRIX_KEY_VERIFICATION_SAS", ANA, "PHONE", key, BOT, "BOTDEVICE", theirs, self._transaction))
        return [_EMOJI[index] for index in self._shared.bytes(info).emoji_indices]

    def mac(self, text: str, info: str) -> str:
        calculate = (
            self._shared.calculate_mac if self._mac_name.endswith("v2") else self._shared.calculate_mac_invalid_base64
        )
        return str(calculate(text, info))

    async def confirm(self, key: str) -> None:
        base = f"MATRIX_KEY_VERIFICATION_MAC{ANA}PHONE{BOT}BOTDEVICE{self._transaction}"
        macs = {"ed25519:PHONE": self.mac(key, f"{base}ed25519:PHONE")}
        await self.say("mac", {"mac": macs, "keys": self.mac("ed25519:PHONE", f"{base}KEY_IDS")})

    def check_their_mac(self, keys: dict[str, str]) -> None:
        content = self._sent.last("mac")
        base = f"MATRIX_KEY_VERIFICATION_MAC{BOT}BOTDEVICE{ANA}PHONE{self._transaction}"
        assert content["mac"] == {name: self.mac(key, base + name) for name, key in keys.items()}
        assert content["keys"] == self.mac(",".join(sorted(keys)), f"{base}KEY_IDS")


def test_p7_the_emoji_are_those_of_the_specification() -> None:
    assert [one.partition(" ")[0] for one in _EMOJI] == [symbol for symbol, _ in NioSas.emoji]


@pytest.mark.parametrize("mac", ["hkdf-hmac-sha256.v2", "hkdf-hmac-sha256"])
@pytest.mark.parametrize("in_room", [True, False], ids=["in a room", "between devices"])
async def test_p7_both_sides_show_the_same_emoji_and_confirm_their_keys(
    ours: Verifications, sent: Sent, in_room: bool, mac: str
) -> None:
    client = Client(ours, sent, "$request", in_room=in_room, mac=mac)
    emoji = await client.exchange()
    (waiting,) = ours.to_compare()
    assert list(waiting.emoji) == emoji and len(emoji) == 7
    await client.confirm(ANA_KEYS.ed25519_key.to_base64())
    assert ours.verified_by == [], "a person has not compared them yet"
    assert await ours.answer("$request", matches=True)
    identity = CrossSigningIdentity.load(ours.identity) if ours.identity is not None else None
    assert identity is not None
    master, own = identity.public("master"), ours._own
    client.check_their_mac({"ed25519:BOTDEVICE": own.ed25519, f"ed25519:{master}": master})
    assert ours.verified_by == [ANA] and sent.steps[-1][0] == "done" and ours.to_compare() == []
    assert not await ours.answer("$request", matches=True)


async def test_p7_emoji_that_differ_and_foreign_keys_end_it(ours: Verifications, sent: Sent) -> None:
    client = Client(ours, sent, "$one", in_room=True, mac="hkdf-hmac-sha256.v2")
    await client.exchange()
    await ours.answer("$one", matches=False)
    assert sent.last("cancel")["code"] == "m.mismatched_sas"
    client = Client(ours, sent, "$two", in_room=True, mac="hkdf-hmac-sha256.v2")
    await client.exchange()
    await ours.answer("$two", matches=True)
    await client.confirm(Account().ed25519_key.to_base64())
    assert sent.last("cancel")["code"] == "m.key_mismatch" and ours.verified_by == []


@pytest.mark.parametrize(
    ("step", "content", "code"),
    [
        ("request", {"from_device": "PHONE", "methods": ["m.qr_code.scan.v1"]}, "m.unknown_method"),
        ("start", {"from_device": "PHONE", "method": "m.sas.v1", "hashes": 7}, "m.unknown_method"),
        ("key", {"key": "no key"}, "m.invalid_message"),
        ("key", {}, "m.invalid_message"),
        ("mac", {"mac": {}}, "m.unexpected_message"),
        ("nonsense", {}, "m.unexpected_message"),
    ],
)
async def test_p7_malformed_messages_cancel_it(
    ours: Verifications, sent: Sent, step: str, content: Json, code: str
) -> None:
    client = Client(ours, sent, "$t", in_room=False, mac="hkdf-hmac-sha256.v2")
    if step in ("key", "mac", "nonsense"):
        await client.say("request", {"from_device": "PHONE", "methods": ["m.sas.v1"]})
    if step == "key":
        start = {"from_device": "PHONE", "method": "m.sas.v1", "short_authentication_string": ["emoji"]}
        lists = {"key_agreement_protocols": ["curve25519-hkdf-sha256"], "hashes": ["sha256"]}
        await client.say("start", {**start, **lists, "message_authentication_codes": ["hkdf-hmac-sha256.v2"]})
    await client.say(step, content)
    assert sent.last("cancel")["code"] == code and ours._open == {}


async def test_p7_strangers_and_old_requests_are_not_answered(ours: Verifications, sent: Sent) -> None:
    request = {"from_device": "PHONE", "methods": ["m.sas.v1"], "msgtype": f"{VERIFICATION}request", "to": BOT}
    event = {"type": "m.room.message", "sender": ANA, "event_id": "$r", "content": request, "origin_server_ts": 1_000}
    await ours.receive_in_room("!room", event)
    now = {**event, "origin_server_ts": int(time.time() * 1000)}
    await ours.receive_in_room("!room", {**now, "content": {**request, "to": "@somebody:else"}})
    await ours.receive_in_room("!room", {**now, "sender": BOT})
    ours.is_welcome = lambda user: False
    await ours.receive_in_room("!room", now)
    assert sent.steps == []
