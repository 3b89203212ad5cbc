"""One thing after the other in each room, all rooms at the same time.

Inbox and outbox both need it: what is to be done stands in the log's views, so a lane holds nothing that a crash could
lose. It runs while its room has work and is gone afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coterie.base.logging import get_logger
from coterie.messaging.protocol import RoomRef

Step = Callable[[RoomRef], Awaitable[bool]]
"""Does the next thing in a room; False when there is nothing (left) to do."""
_log = get_logger(__name__)
_PAUSE_S = 5.0


class RoomQueue:
    def __init__(self, name: str, step: Step) -> None:
        self._name = name
        self._step = step
        self._running: dict[RoomRef, asyncio.Task[None]] = {}
        self._again: set[RoomRef] = set()
        self._closed = False

    def schedule(self, room: RoomRef) -> None:
        """There may be something to do."""
        self._again.add(room)
        if room not in self._running and not self._closed:
            task = asyncio.create_task(self._run(room), name=f"{self._name} {room.surface}/{room.id}")
            self._running[room] = task

    @property
    def is_running(self) -> bool:
        return bool(self._running)

    def is_busy(self, room: RoomRef) -> bool:
        return room in self._running

    async def wait_idle(self) -> None:
        """Until no room has anything to do."""
        while self._running:
            await asyncio.wait(list(self._running.values()))

    async def close(self) -> None:
        self._closed = True
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, room: RoomRef) -> None:
        try:
            while room in self._again:
                self._again.discard(room)
                while await self._attempt(room):
                    pass
        finally:
            # Nothing is awaited between the last look and this line: whoever wakes the room later starts it anew.
            self._running.pop(room, None)

    async def _attempt(self, room: RoomRef) -> bool:
        try:
            return await self._step(room)
        except Exception:
            if self._closed:
                return False  # a surface may have gone first; the work stands in the log
            # A full disk, say: the work stands in the log, and one room's trouble is no other's.
            _log.exception("lane failed", lane=self._name, surface=room.surface, room=room.id)
            await asyncio.sleep(_PAUSE_S)
            return True
