"""Everything about encryption that the rest of the surface needs: hear, open, and say, in rooms sealed or plain.

What changes in the key store is durable before the sync it came with counts as heard, and before anything that depends
on it leaves. A room that was sealed once is sealed for ever, whatever anybody says later.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from coterie.base.logging import get_logger
from coterie.kernel.cabinet import Cabinet, Place
from coterie.surfaces.matrix.crypto.cross_signing import vouch
from coterie.surfaces.matrix.crypto.devices import DeviceBook
from coterie.surfaces.matrix.crypto.held import Held, HeldEvents
from coterie.surfaces.matrix.crypto.key_requests import REQUEST, KeyRequests
from coterie.surfaces.matrix.crypto.own_device import MEGOLM, OLM, OwnDevice
from coterie.surfaces.matrix.crypto.pairwise import Pairwise, Unopenable
from coterie.surfaces.matrix.crypto.room_keys import NoKey, RoomKeys
from coterie.surfaces.matrix.crypto.signing import Json
from coterie.surfaces.matrix.crypto.speaking import SEALED, Speaking, give
from coterie.surfaces.matrix.errors import MatrixRefused
from coterie.surfaces.matrix.homeserver import Homeserver
from coterie.surfaces.matrix.topology import ENCRYPTION

ASK_AFTER_S, TELL_AFTER_S = 4.0, 60.0
HOLD_BACK_S = 10.0
"""How long what somebody said later waits for what they said before, whose key has not come."""
_SEALED_ROOMS = "sealed rooms"
_log = get_logger(__name__)


class Crypto:
    def __init__(self, cabinet: Cabinet, server: Homeserver, user: str, device: str) -> None:
        self._cabinet = cabinet
        self._server = server
        if (cabinet.get("own", "device") or device) != device:
            give_up_device(cabinet)
        cabinet.put({("own", "device"): device})
        self.own = OwnDevice(cabinet, user, device)
        self.devices = DeviceBook(cabinet, server, (user, device))
        self._pairwise = Pairwise(cabinet, server, self.own)
        self._keys = RoomKeys(cabinet)
        self._held = HeldEvents(cabinet)
        self.speaking = Speaking(cabinet, server, self.own, self.devices, self._pairwise, self._members_of)
        self._requests = KeyRequests(cabinet, server, self.own, self.devices, self._pairwise, self.speaking)
        self._rooms: dict[str, Json] = {room: json.loads(told) for room, told in cabinet.drawer(_SEALED_ROOMS).items()}
        self._plain: set[str] = set()
        self._members: dict[str, frozenset[str]] = {}
        self._renewed: set[str] = set()

    async def start(self, identity: Path, password: str | None) -> None:
        await self.own.publish(self._server)
        if self._cabinet.get("own", "vouched") != self.own.device:
            try:
                await vouch(self._server, self.own, identity, password)
                self._cabinet.put({("own", "vouched"): self.own.device})
            except MatrixRefused as error:  # messages go all the same; clients show a warning beside them
                _log.warning("this device is not vouched for", error=str(error))

    # --- which rooms are sealed --------------------------------------------------------------------------------

    def look_at(self, room: str, events: Iterable[Json]) -> None:
        """What a room's events say about it: whether it is sealed, and that its members changed."""
        for event in events:
            if event.get("type") == ENCRYPTION and event.get("state_key") == "":
                rules = event.get("content")
                self.seal_room(room, rules if isinstance(rules, dict) else {})
            elif event.get("type") == "m.room.member":
                self._members.pop(room, None)

    def forget_members(self, room: str) -> None:
        """We may have missed who came or went."""
        self._members.pop(room, None)

    def seal_room(self, room: str, rules: Json) -> None:
        if self._rooms.get(room) != rules:
            self._rooms[room] = rules
            self._cabinet.put({(_SEALED_ROOMS, room): json.dumps(rules)})

    async def is_sealed(self, room: str) -> bool:
        if room not in self._rooms and room not in self._plain:
            try:
                self.seal_room(room, await self._server.state_event(room, ENCRYPTION))
            except MatrixRefused as error:
                if error.code != "M_NOT_FOUND":
                    raise
                self._plain.add(room)
        return room in self._rooms

    # --- saying ------------------------------------------------------------------------------------------------

    async def send(self, room: str, kind: str, content: Json, token: str) -> str:
        if not await self.is_sealed(room):
            return await self._server.send(room, kind, content, token)
        return await self.speaking.send(room, kind, content, token, self._rooms[room])

    async def _members_of(self, room: str) -> frozenset[str]:
        if room not in self._members:
            self._members[room] = frozenset(await self._server.members(room))
        return self._members[room]

    # --- hearing -----------------------------------------------------------------------------------------------

    async def hear(self, told: Json, *, first: bool) -> list[tuple[str, Json]]:
        """What a sync brings for our device. Returns what waited and can be opened now, by room, in order."""
        changes = self.devices.changed(told.get("device_lists", {}))
        if first:
            changes |= self.devices.all_stale()
        self._cabinet.put(changes)
        for event in told.get("to_device", {}).get("events", []):
            try:
                await self._hear_one(event)
            except Unopenable as error:
                _log.warning("a message between devices was not opened", sender=event.get("sender"), error=str(error))
        await self.own.keep_filled(self._server, told)
        return self._no_longer_waiting()

    def _no_longer_waiting(self) -> list[tuple[str, Json]]:
        """Nobody's words overtake what they said before, unless that has waited for its key too long."""
        opened: list[tuple[str, Json]] = []
        holding_back: set[tuple[str, str]] = set()
        for held in self._held.all():
            try:
                if (held.room, held.sender) not in holding_back:
                    opened.append((held.room, self._keys.open(held.room, held.event)))
                    self._held.leaving(held)
            except NoKey:
                if held.holds_back(HOLD_BACK_S):
                    holding_back.add((held.room, held.sender))
            except Unopenable as error:
                self._give_up(held, error)
        return opened

    def _give_up(self, held: Held, error: Unopenable) -> None:
        self._cabinet.put(self._held.release([held]))
        _log.warning("an event was not opened", room=held.room, which=held.event.get("event_id"), error=str(error))

    def settle(self) -> None:
        """Note what was opened, before it counts as heard."""
        self._cabinet.put(self._keys.noted())

    def release(self, events: Iterable[tuple[str, Json]]) -> None:
        """These are in the inbox now: they need not wait here any more."""
        self._cabinet.put(self._held.release(Held(room, event, 0) for room, event in events))

    def open(self, room: str, event: Json) -> Json | None:
        """The event as it was meant. None if it cannot be opened yet: then it waits, for its key or for its turn."""
        if event.get("type") != SEALED or not isinstance(event.get("content"), dict):
            return event
        if event.get("sender") == self.own.user or event["content"].get("algorithm") != MEGOLM:
            return None
        try:
            if not self._held.holds_back(room, event, HOLD_BACK_S):
                return self._keys.open(room, event)
            self._held.hold(room, event)
        except NoKey:
            self._held.hold(room, event)
        except Unopenable as error:
            _log.warning("an event was not opened", room=room, which=event.get("event_id"), error=str(error))
        return None

    @property
    def waits(self) -> bool:
        return len(self._held) > 0

    async def ask(self) -> list[Held]:
        """Ask for keys that should be here by now. Returns what will not be opened any more, one event per key."""
        overdue = self._held.overdue(ASK_AFTER_S, asked=False)
        late = [one for one in overdue if not self._keys.opens(one.room, one.event)]  # else it waits for its turn
        if late:
            await self._requests.ask(late)
            self._held.mark(late)
        lost = self._held.overdue(TELL_AFTER_S, asked=True)
        return list({(one.room, one.session): one for one in lost}.values())

    def told(self, lost: Held) -> None:
        """Its sender knows now that we cannot read what this key is for."""
        self._held.mark(self._held.waiting_for([(lost.room, lost.session)]), told=True)

    async def _hear_one(self, event: Json) -> None:
        content, sender = event.get("content"), str(event.get("sender", ""))
        if not isinstance(content, dict):
            return
        if event.get("type") == REQUEST:
            if sender != self.own.user or content.get("requesting_device_id") != self.own.device:
                await self._requests.answer(sender, content)
            return
        if event.get("type") != SEALED or content.get("algorithm") != OLM:
            return
        sender_key = str(content.get("sender_key", ""))
        ciphertext = content.get("ciphertext")
        ours = ciphertext.get(self.own.curve25519) if isinstance(ciphertext, dict) else None
        if not isinstance(ours, dict):
            return
        device = await self.devices.with_key(sender, sender_key)
        if device is None:
            raise Unopenable("from a device nobody vouches for")
        try:
            opened = self._pairwise.open(sender_key, ours)
        except Unopenable:
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

    def _take(self, sender: str, sender_key: str, kind: str, content: Json) -> dict[Place, str | None]:
        if kind not in ("m.room_key", "m.forwarded_room_key") or content.get("algorithm") != MEGOLM:
            return {}
        room, session, key = (str(content.get(name, "")) for name in ("room_id", "session_id", "session_key"))
        exported = kind == "m.forwarded_room_key"
        if exported and not self._held.waiting_for([(room, session)]):
            return {}  # nobody asked for it
        try:
            return self._keys.take(room, sender, sender_key, session, key, exported=exported)
        except Unopenable as error:
            _log.warning("a key was not taken", sender=sender, error=str(error))
            return {}

    async def _renew(self, sender: str, sender_key: str) -> None:
        """The line to this device is broken: begin a new one and say so, once while we run."""
        device = await self.devices.with_key(sender, sender_key)
        if device is None or sender_key in self._renewed:
            return
        self._renewed.add(sender_key)
        reached = await self._pairwise.reach([device], anew=True)
        await give(self._cabinet, self._server, self._pairwise, reached, "m.dummy", {})

    def close(self) -> None:
        self._cabinet.close()


def give_up_device(cabinet: Cabinet) -> None:
    """Forget what only this device could do. The keys to what others wrote are kept: they open it for any device."""
    drawers = ("own", "olm", "heard", "speaking", "given", "sent")
    cabinet.put({(drawer, name): None for drawer in drawers for name in cabinet.drawer(drawer)})
