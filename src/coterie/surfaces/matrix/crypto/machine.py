"""The encryption of the surface: receives keys, decrypts events and sends, in encrypted and plain rooms.

Changes of the key store are durable before the sync they came with counts as read, and before anything that depends on
them is sent. A room that was encrypted once stays encrypted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from coterie.base.logging import get_logger
from coterie.eventstore import KeyPath, KeyStore
from coterie.messaging import Quarantine
from coterie.surfaces.matrix.crypto.devices import MEGOLM, OLM, Device, DeviceList, OwnDevice, sign_own_device
from coterie.surfaces.matrix.crypto.key_requests import KEY_REQUEST, KeyRequests, PendingEvent, PendingEvents
from coterie.surfaces.matrix.crypto.megolm import (
    ENCRYPTED,
    InboundSessions,
    MissingKey,
    OutboundSessions,
    send_to_devices,
)
from coterie.surfaces.matrix.crypto.olm import OlmSessions, Undecryptable
from coterie.surfaces.matrix.crypto.verification import VERIFICATION, Verifications
from coterie.surfaces.matrix.homeserver import Homeserver, Json, MatrixRefused
from coterie.surfaces.matrix.rooms import ENCRYPTION
from coterie.surfaces.matrix.schemas import KeyRequest, OlmContent, OlmMessage, OlmPayload, RoomKey, Sync, ToDeviceEvent

REQUEST_AFTER_S, NOTIFY_AFTER_S = 4.0, 60.0
"""When the key of an event is requested, and when its sender is notified that it cannot be read."""
HOLD_BACK_S = 10.0
"""How long later events of a sender wait for an earlier one without a key."""
_ENCRYPTED_ROOMS = "sealed rooms"
_log = get_logger(__name__)


class OlmMachine:
    def __init__(self, keystore: KeyStore, server: Homeserver, user: str, device: str) -> None:
        self._keystore = keystore
        self._server = server
        if (keystore.get("own", "device") or device) != device:
            discard_device_keys(keystore)
        keystore.put({("own", "device"): device})
        self.own = OwnDevice(keystore, user, device)
        self.devices = DeviceList(keystore, server, (user, device))
        self._pairwise = OlmSessions(keystore, server, self.own)
        self._inbound = InboundSessions(keystore)
        self._pending = PendingEvents(keystore)
        self.outbound = OutboundSessions(keystore, server, self.own, self.devices, self._pairwise, self._readers)
        self._requests = KeyRequests(keystore, server, self.own, self.devices, self._pairwise, self.outbound)
        self.verifications = Verifications(server, self.own, self.devices, self.send)
        self._rooms: dict[str, Json] = {
            room: json.loads(row) for room, row in keystore.entries(_ENCRYPTED_ROOMS).items()
        }
        self._plain: set[str] = set()
        self._members: dict[str, dict[str, str]] = {}
        self._renewed: set[str] = set()

    async def start(self, identity: Path, password: str | None) -> None:
        await self.own.publish(self._server)
        self.verifications.identity = identity
        if self._keystore.get("own", "vouched") != self.own.device:
            try:
                await sign_own_device(self._server, self.own, identity, password)
                self._keystore.put({("own", "vouched"): self.own.device})
            except MatrixRefused as error:  # messages are still sent; clients show a warning
                _log.warning("this device is not cross-signed", error=str(error))

    def observe_state(self, room: str, events: Iterable[Json]) -> None:
        """Note from a room's events whether it is encrypted, and that its members changed."""
        for event in events:
            if event.get("type") == ENCRYPTION and event.get("state_key") == "":
                rules = event.get("content")
                self.mark_encrypted(room, rules if isinstance(rules, dict) else {})
            elif event.get("type") == "m.room.member":
                self._members.pop(room, None)

    def forget_members(self, room: str) -> None:
        """Changes of membership may have been missed."""
        self._members.pop(room, None)

    def mark_encrypted(self, room: str, rules: Json) -> None:
        if self._rooms.get(room) != rules:
            self._rooms[room] = rules
            self._keystore.put({(_ENCRYPTED_ROOMS, room): json.dumps(rules)})

    async def is_encrypted(self, room: str) -> bool:
        if room not in self._rooms and room not in self._plain:
            try:
                self.mark_encrypted(room, await self._server.state_event(room, ENCRYPTION))
            except MatrixRefused as error:
                if error.code != "M_NOT_FOUND":
                    raise
                self._plain.add(room)
        return room in self._rooms

    async def send(self, room: str, kind: str, content: Json, token: str) -> str:
        if not await self.is_encrypted(room):
            return await self._server.send(room, kind, content, token)
        return await self.outbound.send(room, kind, content, token, self._rooms[room])

    async def has_several_people(self, room: str) -> bool:
        """Whether people other than us and one person have joined."""
        return sum(membership == "join" for membership in (await self._members_of(room)).values()) > 2

    async def _readers(self, room: str) -> frozenset[str]:
        return frozenset(await self._members_of(room))

    async def _members_of(self, room: str) -> dict[str, str]:
        if room not in self._members:
            self._members[room] = await self._server.members(room)
        return self._members[room]

    async def receive_sync(self, sync: Sync, quarantine: Quarantine, *, first: bool) -> list[tuple[str, Json]]:
        """Handle a sync's to-device messages. Returns pending events that can be decrypted now, with their rooms."""
        changes = self.devices.apply_changes(sync.changed_devices, sync.left_devices)
        if first:
            changes |= self.devices.mark_all_stale()
        self._keystore.put(changes)
        for event in sync.to_device:
            with quarantine.reading(event):
                try:
                    await self._receive_to_device(ToDeviceEvent.model_validate(event))
                except Undecryptable as error:
                    _log.warning("a to-device message was not decrypted", sender=event["sender"], error=str(error))
        await self.own.replenish_keys(self._server, sync)
        return self._decrypt_pending(quarantine)

    def _decrypt_pending(self, quarantine: Quarantine) -> list[tuple[str, Json]]:
        """An event does not overtake an earlier one of its sender, unless that has waited for its key too long."""
        decrypted: list[tuple[str, Json]] = []
        holding_back: set[tuple[str, str]] = set()
        for pending in self._pending.all():
            try:
                if (pending.room, pending.sender) not in holding_back:
                    decrypted.append((pending.room, self._inbound.decrypt(pending.room, pending.event)))
                    self._pending.mark_decrypted(pending)
            except MissingKey:
                if pending.delays_later(HOLD_BACK_S):
                    holding_back.add((pending.room, pending.sender))
            except Undecryptable as error:
                self._keystore.put(self._pending.remove([pending]))
                _log_undecryptable(pending.room, pending.event, error)
            except Exception as error:
                quarantine.add(pending.event, error, room=pending.room, event_id=str(pending.event.get("event_id", "")))
                self._keystore.put(self._pending.remove([pending]))
        return decrypted

    def save_progress(self) -> None:
        """Store what was decrypted, before it counts as read."""
        self._keystore.put(self._inbound.take_changes())

    def release(self, events: Iterable[tuple[str, Json]]) -> None:
        """These events are in the inbox now."""
        self._keystore.put(self._pending.remove(PendingEvent(room, event, 0) for room, event in events))

    def decrypt(self, room: str, event: Json) -> Json | None:
        """The decrypted event. None if it has to wait for its key or for an earlier event, or cannot be decrypted."""
        if event.get("type") != ENCRYPTED or not isinstance(event.get("content"), dict):
            return event
        if event.get("sender") == self.own.user or event["content"].get("algorithm") != MEGOLM:
            return None
        try:
            if not self._pending.delays(room, event, HOLD_BACK_S):
                return self._inbound.decrypt(room, event)
            self._pending.add(room, event)
        except MissingKey:
            self._pending.add(room, event)
        except Undecryptable as error:
            _log_undecryptable(room, event, error)
        return None

    @property
    def has_pending(self) -> bool:
        return len(self._pending) > 0

    async def request_missing_keys(self) -> list[PendingEvent]:
        """Request keys that are overdue. Returns events that will not be decrypted any more, one per key."""
        overdue = self._pending.overdue(REQUEST_AFTER_S, asked=False)
        # An event whose key is here waits for an earlier one.
        late = [pending for pending in overdue if not self._inbound.can_decrypt(pending.room, pending.event)]
        if late:
            await self._requests.request(late)
            self._pending.mark(late)
        lost = self._pending.overdue(NOTIFY_AFTER_S, asked=True)
        return list({(pending.room, pending.session): pending for pending in lost}.values())

    def mark_notified(self, lost: PendingEvent) -> None:
        """Its sender was notified that we cannot read the events of this key."""
        self._pending.mark(self._pending.for_sessions([(lost.room, lost.session)]), notified=True)

    async def _receive_to_device(self, event: ToDeviceEvent) -> None:
        sender = event.sender
        if event.type == KEY_REQUEST:
            request = KeyRequest.model_validate(event.content)
            if sender != self.own.user or request.requesting_device_id != self.own.device:
                await self._requests.answer(sender, request)
            return
        if event.type.startswith(VERIFICATION):
            await self.verifications.receive(sender, event.type, event.content)
            return
        if event.type != ENCRYPTED or event.content.get("algorithm") != OLM:
            return
        content = OlmContent.model_validate(event.content)
        if self.own.curve25519 not in content.ciphertext:
            return  # for another device
        message = OlmMessage.model_validate(content.ciphertext[self.own.curve25519])
        device = await self.devices.with_key(sender, content.sender_key)
        if device is None:
            raise Undecryptable("from an unknown device")
        try:
            decrypted = self._pairwise.decrypt(content.sender_key, message)
        except Undecryptable:
            await self._renew_session(sender, content.sender_key)
            raise
        if decrypted is None:
            return
        plain, changes = decrypted
        try:
            changes |= self._accept_payload(device, OlmPayload.model_validate(plain))
        finally:
            # The step of the cipher is stored even if its content is nonsense: it cannot be decrypted twice.
            self._keystore.put(changes)

    def _accept_payload(self, device: Device, payload: OlmPayload) -> dict[KeyPath, str | None]:
        """The changes to store for a decrypted message, if it is from that device and for this one."""
        is_genuine = (
            payload.sender == device.user
            and payload.recipient == self.own.user
            and payload.recipient_keys.get("ed25519") == self.own.ed25519
            and payload.keys.get("ed25519") == device.ed25519
        )
        is_key = payload.type in ("m.room_key", "m.forwarded_room_key") and payload.content.get("algorithm") == MEGOLM
        if not is_genuine or not is_key:
            return {}
        key = RoomKey.model_validate(payload.content)
        exported = payload.type == "m.forwarded_room_key"
        if exported and not self._pending.for_sessions([(key.room_id, key.session_id)]):
            return {}  # it was not requested
        try:
            return self._inbound.add_key(
                key.room_id, device.user, device.curve25519, key.session_id, key.session_key, exported=exported
            )
        except Undecryptable as error:
            _log.warning("a room key was not accepted", sender=device.user, error=str(error))
            return {}

    async def _renew_session(self, sender: str, sender_key: str) -> None:
        """Replace the broken session with this device, once per run."""
        device = await self.devices.with_key(sender, sender_key)
        if device is None or sender_key in self._renewed:
            return
        self._renewed.add(sender_key)
        reached = await self._pairwise.ensure_sessions([device], new_session=True)
        await send_to_devices(self._keystore, self._server, self._pairwise, reached, "m.dummy", {})

    def close(self) -> None:
        self._keystore.close()


def discard_device_keys(keystore: KeyStore) -> None:
    """Remove the keys of this device. Received room keys are kept: a new device can use them."""
    sections = ("own", "olm", "heard", "speaking", "given", "sent")
    keystore.put({(section, name): None for section in sections for name in keystore.entries(section)})


def _log_undecryptable(room: str, event: Json, error: Undecryptable) -> None:
    _log.warning("an event was not decrypted", room=room, event_id=event["event_id"], error=str(error))
