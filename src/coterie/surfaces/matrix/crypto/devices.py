"""Whose devices there are, as far as they vouch for themselves. What a homeserver says about a known device's identity
is not believed a second time: keys that change under the same name are somebody else's."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from vodozemac import Account

from coterie.base.errors import ConfigError
from coterie.base.files import write_private_json
from coterie.base.logging import get_logger
from coterie.eventstore.sqlite.keystore import KeyPath, KeyStore
from coterie.surfaces.matrix.crypto.primitives import Json, from_base64, has_signature, sign_json, to_base64
from coterie.surfaces.matrix.homeserver import Homeserver, KeysRefused, MatrixRefused

# Our own device: its identity, and the one-time keys with which others begin to write to it.
#
# Keys are kept before they are published, and published again after a crash in between: the homeserver takes the same
# key twice, so that none is ever on the homeserver and not here.


OLM = "m.olm.v1.curve25519-aes-sha2"
MEGOLM = "m.megolm.v1.aes-sha2"
PICKLE_KEY = bytes(32)
"""What is kept is protected by who may read the file; a key lying beside it would protect nothing more."""
_OWN = "own"


class OwnDevice:
    def __init__(self, cabinet: KeyStore, user: str, device: str) -> None:
        self.user = user
        self.device = device
        self._cabinet = cabinet
        kept = cabinet.get(_OWN, "account")
        self.is_new = kept is None
        """Whether it was made just now: then nothing on the homeserver can be meant for it."""
        self.account = Account() if kept is None else Account.from_pickle(kept, PICKLE_KEY)
        self._published = cabinet.get(_OWN, "published") == device

    @property
    def curve25519(self) -> str:
        return self.account.curve25519_key.to_base64()

    @property
    def ed25519(self) -> str:
        return self.account.ed25519_key.to_base64()

    def pickled(self) -> dict[KeyPath, str | None]:
        """As it is to be kept, with whatever else changes together with it."""
        return {(_OWN, "account"): self.account.pickle(PICKLE_KEY)}

    def sign(self, told: Json) -> Json:
        return sign_json(told, self.user, self.device, lambda message: self.account.sign(message).to_base64())

    def keys(self) -> Json:
        keys = {f"curve25519:{self.device}": self.curve25519, f"ed25519:{self.device}": self.ed25519}
        return self.sign(
            {"user_id": self.user, "device_id": self.device, "algorithms": [OLM, MEGOLM], "keys": keys},
        )

    async def publish(self, server: Homeserver, left: int | None = None, *, fallback_used: bool = False) -> None:
        """Let others write to us. `left` is how many one-time keys the homeserver still has, where it told."""
        if self._published and left is None:
            return
        wanted = self.account.max_number_of_one_time_keys - (left or 0)
        waiting = self.account.one_time_keys
        if wanted > len(waiting):
            self.account.generate_one_time_keys(wanted - len(waiting))
        if not self._published or fallback_used:
            self.account.generate_fallback_key()  # type: ignore[attr-defined]  # its stubs lag behind
        self._cabinet.put(self.pickled())
        told: Json = {} if self._published else {"device_keys": self.keys()}
        told["one_time_keys"] = {
            f"signed_curve25519:{name}": self.sign({"key": key.to_base64()})
            for name, key in self.account.one_time_keys.items()
        }
        told["fallback_keys"] = {
            f"signed_curve25519:{name}": self.sign({"key": key.to_base64(), "fallback": True})
            for name, key in self.account.fallback_key.items()  # type: ignore[attr-defined]
        }
        await server.upload_keys(told)
        self.account.mark_keys_as_published()
        self._cabinet.put({**self.pickled(), (_OWN, "published"): self.device})
        self._published = True

    async def replenish_keys(self, server: Homeserver, told: Json) -> None:
        """After each sync: one-time keys are used up by whoever begins to write to us."""
        left = told.get("device_one_time_keys_count", {}).get("signed_curve25519", 0)
        unused = told.get("device_unused_fallback_key_types")
        used = unused is not None and "signed_curve25519" not in unused
        if left < self.account.max_number_of_one_time_keys // 2 or used:
            try:
                await self.publish(server, left, fallback_used=used)
            except MatrixRefused as error:
                # It has other keys by these names: what we have is an old copy, and the next start finds that out.
                self._cabinet.put({(_OWN, "published"): None})
                raise KeysRefused("The homeserver does not take our keys.", "A new device takes its place.") from error


_PEOPLE = "people"


@dataclass(frozen=True)
class Device:
    user: str
    device: str
    curve25519: str
    ed25519: str


class DeviceList:
    def __init__(self, cabinet: KeyStore, server: Homeserver, own: tuple[str, str]) -> None:
        """`own` is our account and device: others of the account are devices like any other, it itself is not."""
        self._cabinet = cabinet
        self._server = server
        self._own = own
        self._known: dict[str, list[Device]] = {}
        self._stale: set[str] = set()
        for user, told in cabinet.entries(_PEOPLE).items():
            kept = json.loads(told)
            self._known[user] = [Device(**one) for one in kept["devices"]]
            if kept["stale"]:
                self._stale.add(user)

    def apply_changes(self, lists: Json) -> dict[KeyPath, str | None]:
        """What a sync says about whose devices changed; durable before the sync counts as heard."""
        changes: dict[KeyPath, str | None] = {}
        for user in lists.get("changed", []):
            if user in self._known:
                self._stale.add(user)
                changes |= self._row(user)
        for user in lists.get("left", []):
            # Nobody tells us about them any more; whoever comes back is asked about anew.
            self._known.pop(user, None)
            changes[_PEOPLE, user] = None
        return changes

    def mark_all_stale(self) -> dict[KeyPath, str | None]:
        """We lost our place in what the homeserver tells: anybody's devices may have changed."""
        self._stale |= set(self._known)
        return {place: told for user in self._known for place, told in self._row(user).items()}

    async def for_users(self, users: Iterable[str]) -> list[Device]:
        """All devices of these people, asking the homeserver where we do not know for sure."""
        wanted = set(users)
        await self._ask({user for user in wanted if user not in self._known or user in self._stale})
        return [device for user in sorted(wanted) for device in self._known.get(user, [])]

    async def with_key(self, user: str, curve25519: str) -> Device | None:
        """The device of this person that has this key, if it is theirs."""
        for fresh in (False, True):
            if fresh or user not in self._known or user in self._stale:
                await self._ask({user})
            for device in self._known.get(user, []):
                if device.curve25519 == curve25519:
                    return device
        return None

    async def _ask(self, users: set[str]) -> None:
        if not users:
            return
        told = await self._server.query_keys(sorted(users))
        changes: dict[KeyPath, str | None] = {}
        for user in users:
            found = told.get("device_keys", {}).get(user, {})
            before = {device.device: device for device in self._known.get(user, [])}
            read = (_device(user, name, keys) for name, keys in found.items())
            self._known[user] = [
                _as_known(before.get(device.device), device)
                for device in read
                if device is not None and (user, device.device) != self._own
            ]
            self._stale.discard(user)
            changes |= self._row(user)
        self._cabinet.put(changes)

    def _row(self, user: str) -> dict[KeyPath, str | None]:
        told = {"devices": [asdict(one) for one in self._known[user]], "stale": user in self._stale}
        return {(_PEOPLE, user): json.dumps(told)}


def _device(user: str, name: str, keys: Any) -> Device | None:
    try:
        named = (keys["user_id"], keys["device_id"]) == (user, name)
        curve, ed = keys["keys"][f"curve25519:{name}"], keys["keys"][f"ed25519:{name}"]
        able = {OLM, MEGOLM} <= set(keys["algorithms"])
    except (KeyError, TypeError):
        return None
    if not named or not able or not has_signature(keys, user, name, str(ed)):
        _log.warning("a device does not vouch for itself", user=user, device=name)
        return None
    return Device(user, name, str(curve), str(ed))


def _as_known(before: Device | None, now: Device) -> Device:
    if before is not None and before != now:
        _log.warning("a device's keys changed under its name", user=now.user, device=now.device)
        return before
    return now


# Cross-signing: the account signs its devices, so that people who verified it once need not do so again. Its three keys
# are in a file of their own: with that file a lost key store costs a device; without it, people see a new identity.


Part = Literal["master", "self_signing", "user_signing"]
PARTS: tuple[Part, ...] = ("master", "self_signing", "user_signing")
_log = get_logger(__name__)


class CrossSigningIdentity:
    """The account's own keys."""

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
            fix = "Put its backup back, or remove it: people then see a new identity."
            raise ConfigError(f"{file} cannot be read ({error}).", fix) from None

    def public(self, part: Part) -> str:
        return to_base64(self._keys[part].public_key().public_bytes_raw())

    def sign(self, told: Json, user: str, part: Part) -> Json:
        return sign_json(told, user, self.public(part), lambda message: to_base64(self._keys[part].sign(message)))

    def public_keys(self, user: str, device: OwnDevice) -> Json:
        keys: Json = {}
        for part in PARTS:
            public = self.public(part)
            told = {"user_id": user, "usage": [part], "keys": {f"ed25519:{public}": public}}
            keys[f"{part}_key"] = device.sign(told) if part == "master" else self.sign(told, user, "master")
        return keys


async def sign_own_device(server: Homeserver, own: OwnDevice, file: Path, password: str | None) -> None:
    """Let our identity vouch for this device, made and published first if there is none. Needs the password once."""
    told = await server.query_keys([own.user])
    identity = CrossSigningIdentity.load(file)
    if identity is None:
        identity = CrossSigningIdentity.new()
        write_private_json(file, identity.seeds)  # before it is published: nobody may vouch with a key that is nowhere
    master = told.get("master_keys", {}).get(own.user, {}).get("keys", {})
    if identity.public("master") not in master.values():
        await server.upload_identity(identity.public_keys(own.user, own), own.user, password)
    device = told.get("device_keys", {}).get(own.user, {}).get(own.device) or own.keys()
    public = identity.public("self_signing")
    if not has_signature(device, own.user, public, public):
        device.pop("unsigned", None)
        signed_keys = identity.sign(device, own.user, "self_signing")
        await server.upload_signatures({own.user: {own.device: signed_keys}})
        _log.info("this device is vouched for", device=own.device)
