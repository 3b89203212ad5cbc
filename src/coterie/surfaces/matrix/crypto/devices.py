"""Our own device and its cross-signing identity, and the devices of others.

A device counts only if it signs its own keys. Keys that change under the same device name are not accepted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from vodozemac import Account

from coterie.base.errors import ConfigError
from coterie.base.logging import get_logger
from coterie.base.paths import write_private_json
from coterie.eventstore import KeyPath, KeyStore
from coterie.surfaces.matrix.crypto.primitives import curve25519_key, from_base64, has_signature, sign_json, to_base64
from coterie.surfaces.matrix.homeserver import Homeserver, Json, KeysRefused, MatrixRefused
from coterie.surfaces.matrix.schemas import DeviceKeys, Sync, object_at

OLM = "m.olm.v1.curve25519-aes-sha2"
MEGOLM = "m.megolm.v1.aes-sha2"
PICKLE_KEY = bytes(32)
"""The key store is protected by its file permissions; a key stored beside it would add nothing."""
_OWN = "own"


class OwnDevice:
    """Our device: its identity, and the one-time keys with which others start sessions with it.

    Keys are stored before they are published, and published again after a crash in between: the homeserver accepts the
    same key twice, so it never has a key that we do not.
    """

    def __init__(self, keystore: KeyStore, user: str, device: str) -> None:
        self.user = user
        self.device = device
        self._keystore = keystore
        stored = keystore.get(_OWN, "account")
        self.is_new = stored is None
        """Whether it was created just now, so that no message can be encrypted for it yet."""
        self.account = Account() if stored is None else Account.from_pickle(stored, PICKLE_KEY)
        self._published = keystore.get(_OWN, "published") == device

    @property
    def curve25519(self) -> str:
        return self.account.curve25519_key.to_base64()

    @property
    def ed25519(self) -> str:
        return self.account.ed25519_key.to_base64()

    def pickled(self) -> dict[KeyPath, str | None]:
        """The row to store, together with whatever else changes."""
        return {(_OWN, "account"): self.account.pickle(PICKLE_KEY)}

    def sign(self, document: Json) -> Json:
        return sign_json(document, self.user, self.device, lambda message: self.account.sign(message).to_base64())

    def keys(self) -> Json:
        keys = {f"curve25519:{self.device}": self.curve25519, f"ed25519:{self.device}": self.ed25519}
        return self.sign(
            {"user_id": self.user, "device_id": self.device, "algorithms": [OLM, MEGOLM], "keys": keys},
        )

    async def publish(self, server: Homeserver, left: int | None = None, *, fallback_used: bool = False) -> None:
        """Publish keys. `left` is how many one-time keys the homeserver still has, if it said so."""
        if self._published and left is None:
            return
        wanted = self.account.max_number_of_one_time_keys - (left or 0)
        unpublished = self.account.one_time_keys
        if wanted > len(unpublished):
            self.account.generate_one_time_keys(wanted - len(unpublished))
        if not self._published or fallback_used:
            self.account.generate_fallback_key()  # type: ignore[attr-defined]  # missing in its stubs
        self._keystore.put(self.pickled())
        body: Json = {} if self._published else {"device_keys": self.keys()}
        body["one_time_keys"] = {
            f"signed_curve25519:{name}": self.sign({"key": key.to_base64()})
            for name, key in self.account.one_time_keys.items()
        }
        body["fallback_keys"] = {
            f"signed_curve25519:{name}": self.sign({"key": key.to_base64(), "fallback": True})
            for name, key in self.account.fallback_key.items()  # type: ignore[attr-defined]
        }
        await server.upload_keys(body)
        self.account.mark_keys_as_published()
        self._keystore.put({**self.pickled(), (_OWN, "published"): self.device})
        self._published = True

    async def replenish_keys(self, server: Homeserver, sync: Sync) -> None:
        """After each sync: each new session with us uses up a one-time key."""
        left, used = sync.one_time_keys, sync.fallback_key_used
        if left < self.account.max_number_of_one_time_keys // 2 or used:
            try:
                await self.publish(server, left, fallback_used=used)
            except MatrixRefused as error:
                # It has other keys under these names, so ours are an old copy; the next start replaces the device.
                self._keystore.put({(_OWN, "published"): None})
                raise KeysRefused(
                    "The homeserver does not accept our keys.", "A new device replaces this one."
                ) from error


_PEOPLE = "people"


@dataclass(frozen=True)
class Device:
    user: str
    device: str
    curve25519: str
    ed25519: str


class DeviceList:
    def __init__(self, keystore: KeyStore, server: Homeserver, own: tuple[str, str]) -> None:
        """`own` is our account and device, which is left out; other devices of the account are like any other."""
        self._keystore = keystore
        self._server = server
        self._own = own
        self._known: dict[str, list[Device]] = {}
        self._stale: set[str] = set()
        for user, row in keystore.entries(_PEOPLE).items():
            stored = json.loads(row)
            self._known[user] = [Device(**device) for device in stored["devices"]]
            if stored["stale"]:
                self._stale.add(user)

    def apply_changes(self, changed: Iterable[str], left: Iterable[str]) -> dict[KeyPath, str | None]:
        """The rows to store for a sync's changes of device lists."""
        changes: dict[KeyPath, str | None] = {}
        for user in changed:
            if user in self._known:
                self._stale.add(user)
                changes |= self._row(user)
        for user in left:
            # The homeserver no longer reports their changes; they are queried again if they return.
            self._known.pop(user, None)
            changes[_PEOPLE, user] = None
        return changes

    def mark_all_stale(self) -> dict[KeyPath, str | None]:
        """After a sync without a position, any device may have changed."""
        self._stale |= set(self._known)
        return {path: row for user in self._known for path, row in self._row(user).items()}

    async def for_users(self, users: Iterable[str]) -> list[Device]:
        """All devices of these users; unknown and stale ones are queried."""
        users = set(users)
        await self._query({user for user in users if user not in self._known or user in self._stale})
        return [device for user in sorted(users) for device in self._known.get(user, [])]

    async def with_key(self, user: str, curve25519: str) -> Device | None:
        """The user's device with this key."""
        for fresh in (False, True):
            if fresh or user not in self._known or user in self._stale:
                await self._query({user})
            for device in self._known.get(user, []):
                if device.curve25519 == curve25519:
                    return device
        return None

    async def _query(self, users: set[str]) -> None:
        if not users:
            return
        response = await self._server.query_keys(sorted(users))
        changes: dict[KeyPath, str | None] = {}
        for user in users:
            found = object_at(response, "device_keys", user)
            known = {device.device: device for device in self._known.get(user, [])}
            parsed = (_parse_device(user, name, keys) for name, keys in found.items())
            self._known[user] = [
                _keep_known(known.get(device.device), device)
                for device in parsed
                if device is not None and (user, device.device) != self._own
            ]
            self._stale.discard(user)
            changes |= self._row(user)
        self._keystore.put(changes)

    def _row(self, user: str) -> dict[KeyPath, str | None]:
        row = {"devices": [asdict(device) for device in self._known[user]], "stale": user in self._stale}
        return {(_PEOPLE, user): json.dumps(row)}


def _parse_device(user: str, name: str, keys: Any) -> Device | None:
    try:
        device = DeviceKeys.model_validate(keys)
        curve, ed = device.keys[f"curve25519:{name}"], device.keys[f"ed25519:{name}"]
        curve25519_key(curve)
    except (KeyError, ValueError):  # which includes the errors of schemas and of keys
        return None
    matches = (device.user_id, device.device_id) == (user, name)
    if not matches or not {OLM, MEGOLM} <= set(device.algorithms) or not has_signature(keys, user, name, ed):
        _log.warning("a device's keys are not signed by it", user=user, device=name)
        return None
    return Device(user, name, curve, ed)


def _keep_known(known: Device | None, current: Device) -> Device:
    if known is not None and known != current:
        _log.warning("a device's keys changed under its name", user=current.user, device=current.device)
        return known
    return current


# Cross-signing: the account signs its devices, so that people who verified it once need not do so again. Its keys are
# in a file of their own: with that file, losing the key store costs a device; without it, people see a new identity.


Part = Literal["master", "self_signing", "user_signing"]
PARTS: tuple[Part, ...] = ("master", "self_signing", "user_signing")
_log = get_logger(__name__)


class CrossSigningIdentity:
    """The account's three cross-signing keys."""

    def __init__(self, seeds: dict[str, str]) -> None:
        self.seeds = seeds
        self._keys = {part: Ed25519PrivateKey.from_private_bytes(from_base64(seeds[part])) for part in PARTS}

    @classmethod
    def new(cls) -> CrossSigningIdentity:
        return cls({part: to_base64(Ed25519PrivateKey.generate().private_bytes_raw()) for part in PARTS})

    @classmethod
    def load(cls, file: Path) -> CrossSigningIdentity | None:
        try:
            return cls(json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OSError) as error:
            fix = "Restore it from a backup, or remove it: people then see a new identity."
            raise ConfigError(f"{file} cannot be read ({error}).", fix) from None

    def public(self, part: Part) -> str:
        return to_base64(self._keys[part].public_key().public_bytes_raw())

    def sign(self, document: Json, user: str, part: Part) -> Json:
        return sign_json(document, user, self.public(part), lambda message: to_base64(self._keys[part].sign(message)))

    def public_keys(self, user: str, device: OwnDevice) -> Json:
        keys: Json = {}
        for part in PARTS:
            public = self.public(part)
            key = {"user_id": user, "usage": [part], "keys": {f"ed25519:{public}": public}}
            keys[f"{part}_key"] = device.sign(key) if part == "master" else self.sign(key, user, "master")
        return keys


async def sign_own_device(server: Homeserver, own: OwnDevice, file: Path, password: str | None) -> None:
    """Sign this device with our identity, which is created first if there is none; that needs the password."""
    response = await server.query_keys([own.user])
    identity = CrossSigningIdentity.load(file)
    if identity is None:
        identity = CrossSigningIdentity.new()
        write_private_json(file, identity.seeds)  # before it is published, so that it cannot be lost
    master = object_at(response, "master_keys", own.user, "keys")
    if identity.public("master") not in master.values():
        await server.upload_identity(identity.public_keys(own.user, own), own.user, password)
    device = object_at(response, "device_keys", own.user, own.device) or own.keys()
    public = identity.public("self_signing")
    if not has_signature(device, own.user, public, public):
        device.pop("unsigned", None)
        signed_keys = identity.sign(device, own.user, "self_signing")
        await server.upload_signatures({own.user: {own.device: signed_keys}})
        _log.info("this device is cross-signed", device=own.device)
