"""Notices for people, sent to their private chats on messengers: what happened in a document or a crowd.

They are made from events of the log, each once: the position in the log is stored, and the delivery token of a notice
is derived from its event. A surface that is not connected is left out; the page shows every notice.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.supervisor import unless_stopped
from coterie.eventstore import AnyEvent, NewEvent, Store, WhenSlow
from coterie.messaging.errors import SurfaceError
from coterie.messaging.inbox import SurfaceSynced
from coterie.messaging.message_router import MessageRouter
from coterie.messaging.ports import KnowsPrivateRooms
from coterie.messaging.protocol import Account, OutgoingNotification, RoomRef
from coterie.messaging.settings import SurfacesSettings

DIGEST_S = 600.0
"""Of notices that can wait, a person gets at most one in this time."""
_CURSOR = "notices"
_PAGE = 100
_log = get_logger(__name__)


@dataclass(frozen=True)
class PersonalNotice:
    person: str
    text: str
    can_wait: bool = False
    """Whether it is one of many, of which a person gets only some."""


Describe = Callable[[AnyEvent], PersonalNotice | None]
"""The notice of an event; None if nobody is to be notified."""


class NoticeSender:
    def __init__(
        self, store: Store, router: MessageRouter, settings: SurfacesSettings, describe: Mapping[str, Describe]
    ) -> None:
        """`describe` has a function for each kind of event that leads to notices."""
        self._store = store
        self._router = router
        self._settings = settings
        self._describe = dict(describe)

    async def run(self, stop: asyncio.Event) -> None:
        """Send notices of new events until stopped. What happened before the first start is no news."""
        async with self._store.bus.subscribe("event.>", limit=1, when_slow=WhenSlow.DROP_OLDEST) as events:
            if self._router.inbound.inbox.cursor(_CURSOR) is None:
                await self._move_to(self._store.reader.last_id())
            while not stop.is_set():
                await self.send_new()
                await unless_stopped(stop, _wait_for(events))

    async def send_new(self) -> None:
        """Send the notices of the events since the last position."""
        while True:
            position = int(self._router.inbound.inbox.cursor(_CURSOR) or 0)
            events = self._store.reader.read(after=position, kinds=list(self._describe), limit=_PAGE)
            if not events:
                return
            for event in events:
                await self._send(event)
            await self._move_to(events[-1].id)

    async def _move_to(self, position: int) -> None:
        synced = SurfaceSynced(surface=_CURSOR, cursor=str(position))
        await self._store.append([NewEvent(f"surface:{_CURSOR}", synced)])

    async def _send(self, event: AnyEvent) -> None:
        try:
            notice = self._describe[event.kind](event) if self._settings.notices else None
        except CoterieError as error:  # what it is about is gone
            _log.info("a notice was left out", event_id=event.id, error=redact(str(error)))
            return
        if notice is None:
            return
        moment = f"{event.ts.timestamp() // DIGEST_S:.0f}" if notice.can_wait else str(event.id)
        for room in await self._private_rooms(notice.person):
            name = f"notice\n{notice.person}\n{moment}\n{room.surface}\n{room.id}"
            token = hashlib.sha256(name.encode()).hexdigest()[:20]
            await self._router.notify(OutgoingNotification(room=room, text=notice.text), token)

    async def _private_rooms(self, person: str) -> list[RoomRef]:
        """On each connected messenger, the room where the person last wrote to us alone."""
        found: dict[str, RoomRef] = {}
        for name, account, _ in self._router.people.identities(person):
            surface = self._router.surfaces.get(name)
            room = self._router.inbound.inbox.last_private_room(name, account)
            if room is None or name in found or surface is None:
                continue
            try:
                if isinstance(surface, KnowsPrivateRooms) and await surface.is_private(
                    room, Account(surface=name, id=account)
                ):
                    found[name] = room
            except SurfaceError as error:
                _log.info("a room was not asked who is in it", surface=name, error=redact(str(error)))
        return list(found.values())


async def _wait_for(events: AsyncIterator[object]) -> None:
    await anext(events)
