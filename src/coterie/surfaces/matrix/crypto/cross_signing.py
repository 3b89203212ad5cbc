"""Cross-signing: the account vouches for its devices, so that people who verified it once need not do so again.

Its three keys lie in a file of their own beside the key store. With that file a lost key store costs a device; without
it, people see a new identity.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coterie.base.errors import ConfigError
from coterie.base.files import write_private_json
from coterie.base.logging import get_logger
from coterie.surfaces.matrix.crypto.devices import OwnDevice
from coterie.surfaces.matrix.crypto.signing import Json, from_base64, has_signature, sign_json, to_base64
from coterie.surfaces.matrix.homeserver import Homeserver

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
