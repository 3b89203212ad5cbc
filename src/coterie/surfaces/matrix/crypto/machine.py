"""Everything about encryption that the rest of the surface needs: hear, open, and say, in rooms sealed or plain.

What changes in the key store is durable before the sync it came with counts as heard, and before anything that depends
on it leaves. A room that was sealed once is sealed for ever, whatever anybody says later.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from coterie.base.logging import get_logger
from coterie.eventstore.sqlite.keystore import KeyPath, KeyStore
from coterie.surfaces.matrix.crypto.devices import MEGOLM, OLM, DeviceList, OwnDevice, sign_own_device
from coterie.surfaces.matrix.crypto.key_requests import KEY_REQUEST, KeyRequests, PendingEvent, PendingEvents
from coterie.surfaces.matrix.crypto.megolm import (
    ENCRYPTED,
    InboundSessions,
    MissingKey,
    OutboundSessions,
    send_to_devices,
)
from coterie.surfaces.matrix.crypto.olm import OlmSessions, Undecryptable
from coterie.surfaces.matrix.crypto.primitives import Json
from coterie.surfaces.matrix.homeserver import Homeserver, MatrixRefused
from coterie.surfaces.matrix.rooms import ENCRYPTION

ASK_AFTER_S, TELL_AFTER_S = 4.0, 60.0
HOLD_BACK_S = 10.0
"""How long what somebody said later waits for what they said before, whose key has not come."""
_SEALED_ROOMS = "sealed rooms"
_log = get_logger(__name__)


class OlmMachine:
    def __init__(self, cabinet: KeyStore, server: Homeserver, user: str, device: str) -> None:
        self._cabinet = cabinet
        self._server = server
        if (cabinet.get("own", "device") or device) != device:
            discard_device_keys(cabinet)
        cabinet.put({("own", "device"): device})
        self.own = OwnDevice(cabinet, user, device)
        self.devices = DeviceList(cabinet, server, (user, device))
        self._pairwise = OlmSessions(cabinet, server, self.own)
        self._keys = InboundSessions(cabinet)
        self._held = PendingEvents(cabinet)
        self.outbound = OutboundSessions(cabinet, server, self.own, self.devices, self._pairwise, self._members_of)
        self._requests = KeyRequests(cabinet, server, self.own, self.devices, self._pairwise, self.outbound)
        self._rooms: dict[str, Json] = {room: json.loads(told) for room, told in cabinet.entries(_SEALED_ROOMS).items()}
        self._plain: set[str] = set()
        self._members: dict[str, frozenset[str]] = {}
        self._renewed: set[str] = set()

    async def start(self, identity: Path, password: str | None) -> None:
        await self.own.publish(self._server)
        if self._cabinet.get("own", "vouched") != self.own.device:
            try:
                await sign_own_device(self._server, self.own, identity, password)
                self._cabinet.put({("own", "vouched"): self.own.device})
            except MatrixRefused as error:  # messages go all the same; clients show a warning beside them
                _log.warning("this device is not vouched for", error=str(error))

    # --- which rooms are sealed --------------------------------------------------------------------------------

    def observe_state(self, room: str, events: Iterable[Json]) -> None:
        """What a room's events say about it: whether it is sealed, and that its members changed."""
        for event in events:
            if event.get("type") == ENCRYPTION and event.get("state_key") == "":
                rules = event.get("content")
                self.mark_encrypted(room, rules if isinstance(rules, dict) else {})
            elif event.get("type") == "m.room.member":
                self._members.pop(room, None)

    def forget_members(self, room: str) -> None:
        """We may have missed who came or went."""
        self._members.pop(room, None)

    def mark_encrypted(self, room: str, rules: Json) -> None:
        if self._rooms.get(room) != rules:
            self._rooms[room] = rules
            self._cabinet.put({(_SEALED_ROOMS, room): json.dumps(rules)})

    async def is_encrypted(self, room: str) -> bool:
        if room not in self._rooms and room not in self._plain:
            try:
                self.mark_encrypted(room, await self._server.state_event(room, ENCRYPTION))
            except MatrixRefused as error:
                if error.code != "M_NOT_FOUND":
                    raise
                self._plain.add(room)
        return room in self._rooms

    # --- saying ------------------------------------------------------------------------------------------------

    async def send(self, room: str, kind: str, content: Json, token: str) -> str:
        if not await self.is_encrypted(room):
            return await self._server.send(room, kind, content, token)
        return await self.outbound.send(room, kind, content, token, self._rooms[room])

    async def _members_of(self, room: str) -> frozenset[str]:
        if room not in self._members:
            self._members[room] = frozenset(await self._server.members(room))
        return self._members[room]

    # --- hearing -----------------------------------------------------------------------------------------------

    async def receive_sync(self, told: Json, *, first: bool) -> list[tuple[str, Json]]:
        """What a sync brings for our device. Returns what waited and can be opened now, by room, in order."""
        changes = self.devices.apply_changes(told.get("device_lists", {}))
        if first:
            changes |= self.devices.mark_all_stale()
        self._cabinet.put(changes)
        for event in told.get("to_device", {}).get("events", []):
            try:
                await self._receive_one(event)
            except Undecryptable as error:
                _log.warning("a message between devices was not opened", sender=event.get("sender"), error=str(error))
        await self.own.replenish_keys(self._server, told)
        return self._no_longer_waiting()

    def _no_longer_waiting(self) -> list[tuple[str, Json]]:
        """Nobody's words overtake what they said before, unless that has waited for its key too long."""
        opened: list[tuple[str, Json]] = []
        holding_back: set[tuple[str, str]] = set()
        for held in self._held.all():
            try:
                if (held.room, held.sender) not in holding_back:
                    opened.append((held.room, self._keys.decrypt(held.room, held.event)))
                    self._held.mark_decrypted(held)
            except MissingKey:
                if held.delays_later(HOLD_BACK_S):
                    holding_back.add((held.room, held.sender))
            except Undecryptable as error:
                self._give_up(held, error)
        return opened

    def _give_up(self, held: PendingEvent, error: Undecryptable) -> None:
        self._cabinet.put(self._held.remove([held]))
        _log.warning("an event was not opened", room=held.room, which=held.event.get("event_id"), error=str(error))

    def save_progress(self) -> None:
        """Note what was opened, before it counts as heard."""
        self._cabinet.put(self._keys.take_changes())

    def release(self, events: Iterable[tuple[str, Json]]) -> None:
        """These are in the inbox now: they need not wait here any more."""
        self._cabinet.put(self._held.remove(PendingEvent(room, event, 0) for room, event in events))

    def decrypt(self, room: str, event: Json) -> Json | None:
        """The event as it was meant. None if it cannot be opened yet: then it waits, for its key or for its turn."""
        if event.get("type") != ENCRYPTED or not isinstance(event.get("content"), dict):
            return event
        if event.get("sender") == self.own.user or event["content"].get("algorithm") != MEGOLM:
            return None
        try:
            if not self._held.delays(room, event, HOLD_BACK_S):
                return self._keys.decrypt(room, event)
            self._held.add(room, event)
        except MissingKey:
            self._held.add(room, event)
        except Undecryptable as error:
            _log.warning("an event was not opened", room=room, which=event.get("event_id"), error=str(error))
        return None

    @property
    def has_pending(self) -> bool:
        return len(self._held) > 0

    async def request_missing_keys(self) -> list[PendingEvent]:
        """Ask for keys that should be here by now. Returns what will not be opened any more, one event per key."""
        overdue = self._held.overdue(ASK_AFTER_S, asked=False)
        late = [one for one in overdue if not self._keys.can_decrypt(one.room, one.event)]  # else it waits for its turn
        if late:
            await self._requests.request(late)
            self._held.mark(late)
        lost = self._held.overdue(TELL_AFTER_S, asked=True)
        return list({(one.room, one.session): one for one in lost}.values())

    def mark_notified(self, lost: PendingEvent) -> None:
        """Its sender knows now that we cannot read what this key is for."""
        self._held.mark(self._held.for_sessions([(lost.room, lost.session)]), told=True)

    async def _receive_one(self, event: Json) -> None:
        content, sender = event.get("content"), str(event.get("sender", ""))
        if not isinstance(content, dict):
            return
        if event.get("type") == KEY_REQUEST:
            if sender != self.own.user or content.get("requesting_device_id") != self.own.device:
                await self._requests.answer(sender, content)
            return
        if event.get("type") != ENCRYPTED or content.get("algorithm") != OLM:
            return
        sender_key = str(content.get("sender_key", ""))
        ciphertext = content.get("ciphertext")
        ours = ciphertext.get(self.own.curve25519) if isinstance(ciphertext, dict) else None
        if not isinstance(ours, dict):
            return
        device = await self.devices.with_key(sender, sender_key)
        if device is None:
            raise Undecryptable("from a device nobody vouches for")
        try:
            opened = self._pairwise.decrypt(sender_key, ours)
        except Undecryptable:
            await self._renew(sender, sender_key)
            raise
        if opened is None:
            return
        plain, changes = opened
        fits = (
            plain.get("sender") == sender
            and plain.get("recipient") == self.own.user
            and plain.get("recipient_keys", {}).get("ed25519") == self.own.ed25519
            and plain.get("keys", {}).get("ed25519") == device.ed25519
        )
        if fits and isinstance(plain.get("content"), dict):
            changes |= self._take(sender, sender_key, str(plain.get("type")), plain["content"])
        self._cabinet.put(changes)

    def _take(self, sender: str, sender_key: str, kind: str, content: Json) -> dict[KeyPath, str | None]:
        if kind not in ("m.room_key", "m.forwarded_room_key") or content.get("algorithm") != MEGOLM:
            return {}
        room, session, key = (str(content.get(name, "")) for name in ("room_id", "session_id", "session_key"))
        exported = kind == "m.forwarded_room_key"
        if exported and not self._held.for_sessions([(room, session)]):
            return {}  # nobody asked for it
        try:
            return self._keys.add_key(room, sender, sender_key, session, key, exported=exported)
        except Undecryptable as error:
            _log.warning("a key was not taken", sender=sender, error=str(error))
            return {}

    async def _renew(self, sender: str, sender_key: str) -> None:
        """The line to this device is broken: begin a new one and say so, once while we run."""
        device = await self.devices.with_key(sender, sender_key)
        if device is None or sender_key in self._renewed:
            return
        self._renewed.add(sender_key)
        reached = await self._pairwise.ensure_sessions([device], new_session=True)
        await send_to_devices(self._cabinet, self._server, self._pairwise, reached, "m.dummy", {})

    def close(self) -> None:
        self._cabinet.close()


def discard_device_keys(cabinet: KeyStore) -> None:
    """Forget what only this device could do. The keys to what others wrote are kept: they open it for any device."""
    drawers = ("own", "olm", "heard", "speaking", "given", "sent")
    cabinet.put({(drawer, name): None for drawer in drawers for name in cabinet.entries(drawer)})
