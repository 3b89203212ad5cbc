"""Delivers what the outbox holds: in order per room, again and again until the platform has it. P4

A platform that asks for patience is given it; one that cannot be reached is tried with growing pauses for a day; what
it will never take is recorded as failed, and the next message of the room goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from coterie.base.clock import Clock
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.eventstore import NewEvent, Payload, Store
from coterie.eventstore.jobs import backoff_s
from coterie.messaging.errors import PlatformRateLimited, PlatformRefused, PlatformUnreachable
from coterie.messaging.inbox import room_stream
from coterie.messaging.outbox import DeliveryFailed, DeliveryTried, MessageDelivered, Outbox, QueuedMessage
from coterie.messaging.ports import Surface
from coterie.messaging.protocol import OutgoingMessage, RoomRef
from coterie.messaging.room_queue import RoomQueue

GIVE_UP_AFTER = timedelta(hours=24)
MAX_PAUSE_S = 60.0
_log = get_logger(__name__)


class DeliveryWorker:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        surfaces: Mapping[str, Surface],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.outbox = Outbox(store)
        self.queue = RoomQueue("outbox", self._step)
        self._store = store
        self._clock = clock
        self._surfaces = surfaces
        self._sleep = sleep
        self._tries: dict[str, int] = {}

    def recover(self) -> None:
        for room in self.outbox.waiting_rooms():
            self.queue.schedule(room)

    async def _step(self, room: RoomRef) -> bool:
        queued, surface = self.outbox.next(room), self._surfaces.get(room.surface)
        if queued is None or surface is None:  # a surface that is switched off keeps its mail
            return False
        try:
            await self._deliver(surface, queued)
        except PlatformRateLimited as error:
            await self._not_taken(surface, queued)
            await self._sleep(error.retry_after_s)
        except PlatformUnreachable as error:
            if not error.ambiguous:
                await self._not_taken(surface, queued)
            await self._pause_after(queued, error)
        except PlatformRefused as error:
            await self._give_up(queued, str(error))
        except Exception as error:
            _log.exception("delivery failed", surface=room.surface, room=room.id)
            await self._pause_after(queued, PlatformUnreachable(f"{type(error).__name__}: {error}"))
        return True

    async def _deliver(self, surface: Surface, queued: QueuedMessage) -> None:
        outgoing, again = queued.outgoing, queued.tried
        if not surface.capabilities.deduplicates:
            await self._record(queued, DeliveryTried(token=queued.token))
        if isinstance(outgoing, OutgoingMessage) and outgoing.streamed and queued.opened is not None:
            message = queued.opened
            if not message and surface.capabilities.deduplicates:
                message = await surface.send(outgoing, queued.token)  # it dedupes: this only asks for the id
            if message:
                await surface.edit(outgoing, message, f"{queued.token}.last")
                again = False  # an edit that is made twice shows nothing twice
            else:
                message, again = await surface.send(outgoing, queued.token), True
        else:
            message = await surface.send(outgoing, queued.token)
        twice = again and not surface.capabilities.deduplicates
        if twice:
            _log.warning("perhaps shown twice", surface=surface.name, room=outgoing.room.id, token=queued.token)
        await self._record(queued, MessageDelivered(token=queued.token, message=message, perhaps_twice=twice))
        self._tries.pop(queued.token, None)

    async def _not_taken(self, surface: Surface, queued: QueuedMessage) -> None:
        if not surface.capabilities.deduplicates:
            await self._record(queued, DeliveryTried(token=queued.token, not_taken=True))

    async def _pause_after(self, queued: QueuedMessage, error: PlatformUnreachable) -> None:
        if self._clock.now() - queued.at > GIVE_UP_AFTER:
            await self._give_up(queued, str(error))
            return
        tries = self._tries[queued.token] = self._tries.get(queued.token, 0) + 1
        _log.warning("not delivered yet", token=queued.token, tries=tries, error=redact(str(error)))
        await self._sleep(backoff_s(tries, maximum=MAX_PAUSE_S))

    async def _give_up(self, queued: QueuedMessage, error: str) -> None:
        _log.error("not delivered", token=queued.token, error=redact(error))
        self._tries.pop(queued.token, None)
        await self._record(queued, DeliveryFailed(token=queued.token, error=redact(error)))

    async def _record(self, queued: QueuedMessage, payload: Payload) -> None:
        await self._store.append([NewEvent(room_stream(queued.outgoing.room), payload)])
