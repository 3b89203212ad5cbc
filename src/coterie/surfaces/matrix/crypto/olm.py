"""From one device to another: Olm. Room keys travel this way, and nothing that people write.

A message can be opened once: its key is gone then. So what opening it led to is kept in the same transaction as that
it was opened, and a message that comes again after a crash is known by its hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from vodozemac import AnyOlmMessage, Curve25519PublicKey, PreKeyMessage, Session

from coterie.base.logging import get_logger
from coterie.eventstore.sqlite.keystore import KeyPath, KeyStore
from coterie.surfaces.matrix.crypto.devices import OLM, PICKLE_KEY, Device, OwnDevice
from coterie.surfaces.matrix.crypto.primitives import Json, from_base64, has_signature, to_base64
from coterie.surfaces.matrix.homeserver import Homeserver

_SESSIONS, _HEARD = "olm", "heard"
_MOST_HEARD = 1_000
_MAX_SESSIONS = 8
"""Per device: some clients begin anew often, and only the latest are used."""
_log = get_logger(__name__)


class Undecryptable(Exception):
    """A message for us that no key of ours opens."""


class OlmSessions:
    def __init__(self, cabinet: KeyStore, server: Homeserver, own: OwnDevice) -> None:
        self._cabinet = cabinet
        self._server = server
        self._own = own
        self._sessions: dict[str, list[Session]] = {}
        self._heard: list[str] = json.loads(cabinet.get(_HEARD, "to device") or "[]")

    def decrypt(self, sender_key: str, message: Json) -> tuple[Json, dict[KeyPath, str | None]] | None:
        """What it says, and what must be kept together with whatever is made of it. None if it was opened before."""
        mark = hashlib.sha256(f"{sender_key} {message.get('body')}".encode()).hexdigest()[:24]
        if mark in self._heard:
            return None
        plain, changes = self._decrypt(sender_key, int(message["type"]), str(message["body"]))
        self._heard = [*self._heard, mark][-_MOST_HEARD:]
        changes[_HEARD, "to device"] = json.dumps(self._heard)
        try:
            told = json.loads(plain)
        except ValueError as error:
            raise Undecryptable("it says nothing readable") from error
        return told, changes

    def _decrypt(self, sender_key: str, kind: int, body: str) -> tuple[bytes, dict[KeyPath, str | None]]:
        lines = self._sessions_with(sender_key)
        try:
            begins = PreKeyMessage.from_base64(body) if kind == 0 else None
            message = begins.to_any() if begins is not None else AnyOlmMessage.from_parts(kind, from_base64(body))
        except ValueError as error:
            raise Undecryptable(str(error)) from error
        for at, line in enumerate(lines):
            if begins is not None and not line.session_matches(begins):
                continue
            try:
                plain = line.decrypt(message)
            except ValueError:
                continue
            # Whoever wrote last on a line knows it: answers go that way.
            lines.insert(0, lines.pop(at))
            return plain, self._row(sender_key)
        if begins is None:
            raise Undecryptable("no line to this device")
        try:
            key = Curve25519PublicKey.from_base64(sender_key)
            line, plain = self._own.account.create_inbound_session(key, begins)
        except ValueError as error:
            raise Undecryptable(str(error)) from error
        lines.insert(0, line)
        del lines[_MAX_SESSIONS:]
        return plain, {**self._own.pickled(), **self._row(sender_key)}

    def encrypt(self, device: Device, kind: str, content: Json) -> tuple[Json, dict[KeyPath, str | None]]:
        """What to send, and what must be kept before it is sent. There must be a line to the device."""
        told = {
            "type": kind,
            "content": content,
            "sender": self._own.user,
            "sender_device": self._own.device,
            "keys": {"ed25519": self._own.ed25519},
            "recipient": device.user,
            "recipient_keys": {"ed25519": device.ed25519},
        }
        sealed_kind, sealed = self._sessions_with(device.curve25519)[0].encrypt(json.dumps(told).encode()).to_parts()
        ciphertext = {device.curve25519: {"type": sealed_kind, "body": to_base64(sealed)}}
        content = {"algorithm": OLM, "sender_key": self._own.curve25519, "ciphertext": ciphertext}
        return content, self._row(device.curve25519)

    async def ensure_sessions(self, devices: Iterable[Device], *, new_session: bool = False) -> list[Device]:
        """Those of them that can be written to, with a line made where there is none (or a new one)."""
        wanted = list(devices)
        without = [one for one in wanted if new_session or not self._sessions_with(one.curve25519)]
        if without:
            await self._claim(without)
        return [one for one in wanted if self._sessions_with(one.curve25519)]

    async def _claim(self, devices: Sequence[Device]) -> None:
        asked: dict[str, dict[str, str]] = {}
        for one in devices:
            asked.setdefault(one.user, {})[one.device] = "signed_curve25519"
        told = (await self._server.claim_keys(asked)).get("one_time_keys", {})
        changes: dict[KeyPath, str | None] = {}
        for one in devices:
            keys = told.get(one.user, {}).get(one.device, {})
            key = next(iter(keys.values()), None)
            if key is None or not has_signature(key, one.user, one.device, one.ed25519):
                _log.info("a device gives no key to write to it", user=one.user, device=one.device)
                continue
            theirs = Curve25519PublicKey.from_base64(one.curve25519)
            once = Curve25519PublicKey.from_base64(key["key"])
            self._sessions_with(one.curve25519).insert(0, self._own.account.create_outbound_session(theirs, once))
            changes |= self._row(one.curve25519)
        self._cabinet.put(changes)

    def _sessions_with(self, curve25519: str) -> list[Session]:
        if curve25519 not in self._sessions:
            kept: list[str] = json.loads(self._cabinet.get(_SESSIONS, curve25519) or "[]")
            self._sessions[curve25519] = [Session.from_pickle(one, PICKLE_KEY) for one in kept]
        return self._sessions[curve25519]

    def _row(self, curve25519: str) -> dict[KeyPath, str | None]:
        told = [line.pickle(PICKLE_KEY) for line in self._sessions[curve25519][:_MAX_SESSIONS]]
        return {(_SESSIONS, curve25519): json.dumps(told)}
