"""Events that cannot be decrypted yet, and requests for their keys.

A device gets a key again only if it was sent to it before: members who join later cannot request earlier keys. A
forwarded key is used only for events of the user who forwarded it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from coterie.base.logging import get_logger
from coterie.eventstore import KeyPath, KeyStore
from coterie.surfaces.matrix.crypto.devices import MEGOLM, DeviceList, OwnDevice
from coterie.surfaces.matrix.crypto.megolm import OutboundSessions, send_to_devices
from coterie.surfaces.matrix.crypto.olm import OlmSessions
from coterie.surfaces.matrix.homeserver import Homeserver, Json
from coterie.surfaces.matrix.schemas import KeyRequest, object_at

_PENDING = "held"
_MAX_PENDING = 2_000
"""A limit against floods of events that nothing decrypts."""
_log = get_logger(__name__)


@dataclass
class PendingEvent:
    room: str
    event: Json
    since: float
    asked: bool = False
    notified: bool = False
    """Whether its sender was notified that we cannot read it."""

    @classmethod
    def from_json(cls, row: str) -> PendingEvent:
        """Ignores fields of other versions; a sender is notified once all the same, by the notification's key."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in json.loads(row).items() if name in names})

    def delays_later(self, seconds: float) -> bool:
        """Whether later events of its sender wait for it."""
        return not self.notified and time.time() - self.since < seconds

    @property
    def sender(self) -> str:
        return str(self.event.get("sender", ""))

    @property
    def session(self) -> str:
        return str(object_at(self.event, "content").get("session_id", ""))

    @property
    def sent_at(self) -> int:
        """By the clock of its sender's homeserver, in milliseconds."""
        sent_at = self.event.get("origin_server_ts")
        return sent_at if isinstance(sent_at, int) else 0


class PendingEvents:
    """Stored events that wait for their keys. Later events of the same sender wait behind them for a while, so that
    they are answered in order.
    """

    def __init__(self, keystore: KeyStore) -> None:
        self._keystore = keystore
        self._events = {name: PendingEvent.from_json(row) for name, row in keystore.entries(_PENDING).items()}
        self._leaving: set[str] = set()

    def __len__(self) -> int:
        return sum(1 for event in self._events.values() if not event.notified)

    def add(self, room: str, event: Json) -> None:
        name = _name(room, event)
        if name in self._events:
            return
        if len(self._events) >= _MAX_PENDING:
            oldest = min(self._events, key=lambda name: self._events[name].since)
            self._keystore.put(self.remove([self._events[oldest]]))
        self._events[name] = PendingEvent(room, event, time.time())
        self._keystore.put(self._row(name))

    def delays(self, room: str, event: Json, seconds: float) -> bool:
        """Whether an earlier event of its sender still waits."""
        sender = (room, event.get("sender"))
        return any(
            (pending.room, pending.sender) == sender and name not in self._leaving and pending.delays_later(seconds)
            for name, pending in self._events.items()
        )

    def mark_decrypted(self, pending: PendingEvent) -> None:
        """It is on its way to the inbox, so nothing waits for it any more."""
        self._leaving.add(_name(pending.room, pending.event))

    def for_sessions(self, sessions: Iterable[tuple[str, str]]) -> list[PendingEvent]:
        """The events of these keys, in order."""
        keys = set(sessions)
        return [event for event in self.all() if (event.room, event.session) in keys]

    def all(self) -> list[PendingEvent]:
        return sorted(self._events.values(), key=lambda pending: pending.sent_at)

    def overdue(self, seconds: float, *, asked: bool) -> list[PendingEvent]:
        """Events that have waited longer and whose key was (or was not) requested."""
        limit = time.time() - seconds
        return [
            event
            for event in self._events.values()
            if event.asked is asked and not event.notified and event.since < limit
        ]

    def mark(self, events: Iterable[PendingEvent], *, notified: bool = False) -> None:
        """Their key was requested, or their sender notified."""
        changes: dict[KeyPath, str | None] = {}
        for pending in events:
            pending.asked, pending.notified = True, pending.notified or notified
            changes |= self._row(_name(pending.room, pending.event))
        self._keystore.put(changes)

    def remove(self, events: Iterable[PendingEvent]) -> dict[KeyPath, str | None]:
        """The changes to store when these events no longer wait."""
        names = [_name(pending.room, pending.event) for pending in events]
        for name in names:
            self._events.pop(name, None)
        self._leaving.difference_update(names)
        return {(_PENDING, name): None for name in names}

    def _row(self, name: str) -> dict[KeyPath, str | None]:
        return {(_PENDING, name): json.dumps(asdict(self._events[name]))}


def _name(room: str, event: Json) -> str:
    return f"{room} {event['event_id']}"


KEY_REQUEST = "m.room_key_request"


class KeyRequests:
    def __init__(
        self,
        keystore: KeyStore,
        server: Homeserver,
        own: OwnDevice,
        devices: DeviceList,
        pairwise: OlmSessions,
        outbound: OutboundSessions,
    ) -> None:
        self._keystore = keystore
        self._server = server
        self._own = own
        self._devices = devices
        self._pairwise = pairwise
        self._outbound = outbound

    async def request(self, events: list[PendingEvent]) -> None:
        """Request each missing key once, from all devices of the sender and from our other devices."""
        for pending in {(event.room, event.session): event for event in events}.values():
            body = {"algorithm": MEGOLM, "room_id": pending.room, "session_id": pending.session}
            body["sender_key"] = str(object_at(pending.event, "content").get("sender_key", ""))
            key = f"{pending.room} {pending.session} {self._own.device}"
            request_id = hashlib.sha256(key.encode()).hexdigest()[:24]
            request = {
                "action": "request",
                "body": body,
                "request_id": request_id,
                "requesting_device_id": self._own.device,
            }
            messages = {user: {"*": request} for user in {pending.sender, self._own.user}}
            await self._server.send_to_device(KEY_REQUEST, messages, f"ask.{request_id}")

    async def answer(self, sender: str, request: KeyRequest) -> None:
        """Send the key again, over a new session: a broken one is the usual reason for a request."""
        if request.action != "request" or request.body is None or request.body.algorithm != MEGOLM:
            return
        room, session, name = request.body.room_id, request.body.session_id, request.requesting_device_id
        device = next((device for device in await self._devices.for_users([sender]) if device.device == name), None)
        key = self._outbound.key_shared_with(room, session, device) if device is not None else None
        if device is None or key is None:
            _log.info("a key request was refused", user=sender, device=name)
            return
        reached = await self._pairwise.ensure_sessions([device], new_session=True)
        room_key = {"algorithm": MEGOLM, "room_id": room, "session_id": session, "session_key": key}
        await send_to_devices(self._keystore, self._server, self._pairwise, reached, "m.room_key", room_key)
