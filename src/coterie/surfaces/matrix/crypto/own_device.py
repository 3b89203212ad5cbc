"""Our own device: its identity, and the one-time keys with which others begin to write to it.

Keys are kept before they are published, and published again after a crash in between: the homeserver takes the same
key twice, so that none is ever on the homeserver and not here.
"""

from __future__ import annotations

from vodozemac import Account

from coterie.kernel.cabinet import KeyPath, KeyStore
from coterie.surfaces.matrix.crypto.signing import Json, sign_json
from coterie.surfaces.matrix.errors import KeysRefused, MatrixRefused
from coterie.surfaces.matrix.homeserver import Homeserver

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
