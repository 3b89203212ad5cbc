"""Olm: encrypted messages between two devices, used to send room keys.

A message can be decrypted only once. What it led to is therefore stored in the same transaction as its decryption, and
a message that arrives again after a crash is recognised by its hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from vodozemac import AnyOlmMessage, PreKeyMessage, Session

from coterie.base.logging import get_logger
from coterie.base.untrusted import parse_json
from coterie.eventstore import KeyPath, KeyStore
from coterie.surfaces.matrix.crypto.devices import OLM, PICKLE_KEY, Device, OwnDevice
from coterie.surfaces.matrix.crypto.primitives import (
    curve25519_key,
    from_base64,
    has_signature,
    panics_as_errors,
    to_base64,
)
from coterie.surfaces.matrix.homeserver import Homeserver, Json
from coterie.surfaces.matrix.schemas import OlmMessage, object_at

_SESSIONS, _DECRYPTED = "olm", "heard"
_MAX_DECRYPTED = 1_000
_MAX_SESSIONS = 8
"""Per device: some clients often start new sessions, and only the latest are used."""
_log = get_logger(__name__)


class Undecryptable(Exception):
    """A message that none of our keys decrypts."""


class OlmSessions:
    def __init__(self, keystore: KeyStore, server: Homeserver, own: OwnDevice) -> None:
        self._keystore = keystore
        self._server = server
        self._own = own
        self._sessions: dict[str, list[Session]] = {}
        self._decrypted: list[str] = json.loads(keystore.get(_DECRYPTED, "to device") or "[]")

    def decrypt(self, sender_key: str, message: OlmMessage) -> tuple[object, dict[KeyPath, str | None]] | None:
        """The content, which may be anything, and the changes to store with whatever is made of it. None if it was
        decrypted before."""
        digest = hashlib.sha256(f"{sender_key} {message.body}".encode()).hexdigest()[:24]
        if digest in self._decrypted:
            return None
        plain, changes = self._decrypt(sender_key, message.type, message.body)
        self._decrypted = [*self._decrypted, digest][-_MAX_DECRYPTED:]
        changes[_DECRYPTED, "to device"] = json.dumps(self._decrypted)
        try:
            content = parse_json(plain)
        except ValueError:
            content = None
        return content, changes

    def _decrypt(self, sender_key: str, kind: int, body: str) -> tuple[bytes, dict[KeyPath, str | None]]:
        sessions = self._sessions_with(sender_key)
        try:
            with panics_as_errors():
                pre_key = PreKeyMessage.from_base64(body) if kind == 0 else None
                message = pre_key.to_any() if pre_key is not None else AnyOlmMessage.from_parts(kind, from_base64(body))
        except ValueError as error:
            raise Undecryptable(str(error)) from error
        for index, session in enumerate(sessions):
            if pre_key is not None and not session.session_matches(pre_key):
                continue
            try:
                with panics_as_errors():
                    plain = session.decrypt(message)
            except ValueError:
                continue
            # The other device used this session last, so it has it: replies use it too.
            sessions.insert(0, sessions.pop(index))
            return plain, self._row(sender_key)
        if pre_key is None:
            raise Undecryptable("no session with this device")
        try:
            with panics_as_errors():
                session, plain = self._own.account.create_inbound_session(curve25519_key(sender_key), pre_key)
        except ValueError as error:
            raise Undecryptable(str(error)) from error
        sessions.insert(0, session)
        del sessions[_MAX_SESSIONS:]
        return plain, {**self._own.pickled(), **self._row(sender_key)}

    def encrypt(self, device: Device, kind: str, content: Json) -> tuple[Json, dict[KeyPath, str | None]]:
        """The encrypted content, and the changes to store before it is sent. The device needs a session."""
        plain = {
            "type": kind,
            "content": content,
            "sender": self._own.user,
            "sender_device": self._own.device,
            "keys": {"ed25519": self._own.ed25519},
            "recipient": device.user,
            "recipient_keys": {"ed25519": device.ed25519},
        }
        message_kind, body = self._sessions_with(device.curve25519)[0].encrypt(json.dumps(plain).encode()).to_parts()
        ciphertext = {device.curve25519: {"type": message_kind, "body": to_base64(body)}}
        encrypted = {"algorithm": OLM, "sender_key": self._own.curve25519, "ciphertext": ciphertext}
        return encrypted, self._row(device.curve25519)

    async def ensure_sessions(self, devices: Iterable[Device], *, new_session: bool = False) -> list[Device]:
        """The devices with a session, after starting one where there is none, or everywhere with `new_session`."""
        devices = list(devices)
        without = [device for device in devices if new_session or not self._sessions_with(device.curve25519)]
        if without:
            await self._claim(without)
        return [device for device in devices if self._sessions_with(device.curve25519)]

    async def _claim(self, devices: Sequence[Device]) -> None:
        request: dict[str, dict[str, str]] = {}
        for device in devices:
            request.setdefault(device.user, {})[device.device] = "signed_curve25519"
        claimed = object_at(await self._server.claim_keys(request), "one_time_keys")
        changes: dict[KeyPath, str | None] = {}
        for device in devices:
            key = next(iter(object_at(claimed, device.user, device.device).values()), None)
            try:
                if not has_signature(key, device.user, device.device, device.ed25519):
                    raise ValueError("it is not signed")
                identity_key = curve25519_key(device.curve25519)
                one_time_key = curve25519_key(str(object_at(key).get("key")))
            except ValueError:
                _log.info("a device has no one-time key", user=device.user, device=device.device)
                continue
            session = self._own.account.create_outbound_session(identity_key, one_time_key)
            self._sessions_with(device.curve25519).insert(0, session)
            changes |= self._row(device.curve25519)
        self._keystore.put(changes)

    def _sessions_with(self, curve25519: str) -> list[Session]:
        if curve25519 not in self._sessions:
            pickles: list[str] = json.loads(self._keystore.get(_SESSIONS, curve25519) or "[]")
            self._sessions[curve25519] = [Session.from_pickle(pickle, PICKLE_KEY) for pickle in pickles]
        return self._sessions[curve25519]

    def _row(self, curve25519: str) -> dict[KeyPath, str | None]:
        pickles = [session.pickle(PICKLE_KEY) for session in self._sessions[curve25519][:_MAX_SESSIONS]]
        return {(_SESSIONS, curve25519): json.dumps(pickles)}
