"""Asking others' devices for keys we miss, and giving those again that we gave before.

Only what a device was given already is given to it again: whoever joins later is not told what was said before. What
somebody forwards to us opens only what they themselves wrote.
"""

from __future__ import annotations

import hashlib
from typing import Any

from coterie.base.logging import get_logger
from coterie.kernel.cabinet import KeyStore
from coterie.surfaces.matrix.crypto.devices import DeviceList
from coterie.surfaces.matrix.crypto.held import PendingEvent
from coterie.surfaces.matrix.crypto.own_device import MEGOLM, OwnDevice
from coterie.surfaces.matrix.crypto.pairwise import OlmSessions
from coterie.surfaces.matrix.crypto.speaking import OutboundSessions, send_to_devices
from coterie.surfaces.matrix.homeserver import Homeserver

KEY_REQUEST = "m.room_key_request"
_log = get_logger(__name__)


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
