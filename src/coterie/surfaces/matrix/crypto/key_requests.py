"""Asking others' devices for keys we miss, and giving those again that we gave before.

Only what a device was given already is given to it again: whoever joins later is not told what was said before. What
somebody forwards to us opens only what they themselves wrote.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from coterie.base.logging import get_logger
from coterie.eventstore.sqlite.keystore import KeyPath, KeyStore
from coterie.surfaces.matrix.crypto.devices import MEGOLM, DeviceList, OwnDevice
from coterie.surfaces.matrix.crypto.megolm import OutboundSessions, send_to_devices
from coterie.surfaces.matrix.crypto.olm import OlmSessions
from coterie.surfaces.matrix.crypto.primitives import Json
from coterie.surfaces.matrix.homeserver import Homeserver

# What we were sent and cannot open yet. It waits here for its key, durably; its sender is asked for it.
#
# What somebody says later waits behind it for a while, so that they are answered in the order they spoke.


_HELD = "held"
_MOST = 2_000
"""Somebody could send us sealed nonsense for ever."""
_log = get_logger(__name__)


@dataclass
class PendingEvent:
    room: str
    event: Json
    since: float
    asked: bool = False
    told: bool = False
    """Whether its sender was told that we cannot read it."""

    def delays_later(self, seconds: float) -> bool:
        """Whether what its sender says later is to wait for it."""
        return not self.told and time.time() - self.since < seconds

    @property
    def sender(self) -> str:
        return str(self.event.get("sender", ""))

    @property
    def session(self) -> str:
        return str(self.event.get("content", {}).get("session_id", ""))


class PendingEvents:
    def __init__(self, cabinet: KeyStore) -> None:
        self._cabinet = cabinet
        self._held = {name: PendingEvent(**json.loads(told)) for name, told in cabinet.entries(_HELD).items()}
        self._leaving: set[str] = set()

    def __len__(self) -> int:
        return sum(1 for one in self._held.values() if not one.told)

    def add(self, room: str, event: Json) -> None:
        name = _name(room, event)
        if name in self._held:
            return
        if len(self._held) >= _MOST:
            oldest = min(self._held, key=lambda one: self._held[one].since)
            self._cabinet.put(self.remove([self._held[oldest]]))
        self._held[name] = PendingEvent(room, event, time.time())
        self._cabinet.put(self._row(name))

    def delays(self, room: str, event: Json, seconds: float) -> bool:
        """Whether something that its sender said before still waits."""
        about = (room, event.get("sender"))
        return any(
            (one.room, one.sender) == about and name not in self._leaving and one.delays_later(seconds)
            for name, one in self._held.items()
        )

    def mark_decrypted(self, held: PendingEvent) -> None:
        """It was opened and is on its way to the inbox: nothing waits for it any more."""
        self._leaving.add(_name(held.room, held.event))

    def for_sessions(self, sessions: Iterable[tuple[str, str]]) -> list[PendingEvent]:
        """What these keys may open, in the order it came."""
        wanted = set(sessions)
        return [one for one in self.all() if (one.room, one.session) in wanted]

    def all(self) -> list[PendingEvent]:
        return sorted(self._held.values(), key=lambda one: int(one.event.get("origin_server_ts", 0)))

    def overdue(self, seconds: float, *, asked: bool) -> list[PendingEvent]:
        """What has waited longer, and for whose key was (not) asked yet."""
        now = time.time()
        return [one for one in self._held.values() if one.asked is asked and not one.told and now - one.since > seconds]

    def mark(self, held: Iterable[PendingEvent], *, told: bool = False) -> None:
        changes: dict[KeyPath, str | None] = {}
        for one in held:
            one.asked, one.told = True, one.told or told
            changes |= self._row(_name(one.room, one.event))
        self._cabinet.put(changes)

    def remove(self, held: Iterable[PendingEvent]) -> dict[KeyPath, str | None]:
        """No longer waited for."""
        names = [_name(one.room, one.event) for one in held]
        for name in names:
            self._held.pop(name, None)
        self._leaving.difference_update(names)
        return {(_HELD, name): None for name in names}

    def _row(self, name: str) -> dict[KeyPath, str | None]:
        return {(_HELD, name): json.dumps(asdict(self._held[name]))}


def _name(room: str, event: Json) -> str:
    return f"{room} {event['event_id']}"


KEY_REQUEST = "m.room_key_request"


class KeyRequests:
    def __init__(
        self,
        cabinet: KeyStore,
        server: Homeserver,
        own: OwnDevice,
        devices: DeviceList,
        pairwise: OlmSessions,
        speaking: OutboundSessions,
    ) -> None:
        self._cabinet = cabinet
        self._server = server
        self._own = own
        self._devices = devices
        self._pairwise = pairwise
        self._speaking = speaking

    async def request(self, held: list[PendingEvent]) -> None:
        """Once per key, of all devices of who wrote it, and of our own others."""
        for one in {(one.room, one.session): one for one in held}.values():
            body = {"algorithm": MEGOLM, "room_id": one.room, "session_id": one.session}
            body["sender_key"] = str(one.event["content"].get("sender_key", ""))
            mark = hashlib.sha256(f"{one.room} {one.session} {self._own.device}".encode()).hexdigest()[:24]
            told = {
                "action": "request",
                "body": body,
                "request_id": mark,
                "requesting_device_id": self._own.device,
            }
            messages = {user: {"*": told} for user in {one.sender, self._own.user}}
            await self._server.send_to_device(KEY_REQUEST, messages, f"ask.{mark}")

    async def answer(self, sender: str, content: Any) -> None:
        """A line that no longer works is the usual reason to ask: the key goes on a new one."""
        try:
            if content["action"] != "request" or content["body"]["algorithm"] != MEGOLM:
                return
            room, session = str(content["body"]["room_id"]), str(content["body"]["session_id"])
            name = str(content["requesting_device_id"])
        except (KeyError, TypeError):
            return
        device = next((one for one in await self._devices.for_users([sender]) if one.device == name), None)
        key = self._speaking.key_shared_with(room, session, device) if device is not None else None
        if device is None or key is None:
            _log.info("a key was asked for and not given", user=sender, device=name)
            return
        reached = await self._pairwise.ensure_sessions([device], new_session=True)
        told = {"algorithm": MEGOLM, "room_id": room, "session_id": session, "session_key": key}
        await send_to_devices(self._cabinet, self._server, self._pairwise, reached, "m.room_key", told)
