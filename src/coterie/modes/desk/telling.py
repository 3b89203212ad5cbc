"""Bringing what nobody asked for to the person, on every surface where the conversation is held. D3, D21

It is a job, recorded with the words themselves, and its token comes from them: however often it is done, they are
told once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

from coterie.engine.protocol import OutgoingMessage, RoomRef
from coterie.engine.turns import TurnQueries
from coterie.kernel import Job, Store
from coterie.kernel.worker import JobResult

Notify = Callable[[OutgoingMessage, str], Awaitable[None]]


class ReplyNotifications:
    def __init__(self, store: Store, notify: Notify | None) -> None:
        self._store = store
        self._timeline = TurnQueries(store)
        self._notify = notify

    async def notify(self, job: Job) -> JobResult | None:
        room, reply = str(job.payload["room"]), str(job.payload["reply"])
        words = self._timeline.turn(room, reply).text
        held_in = self._store.query(
            "SELECT surface, room FROM surface_room WHERE context = ? AND NOT archived ORDER BY surface, room", (room,)
        )
        if self._notify is None or not words:
            return None
        for surface, place in held_in:
            token = hashlib.sha256(f"{reply}\n{surface}\n{place}".encode()).hexdigest()[:20]
            told = RoomRef(surface=surface, id=place)
            await self._notify(OutgoingMessage(room=told, text=words, thread=self._last_thread(told)), token)
        return None

    def _last_thread(self, room: RoomRef) -> str | None:
        """Where somebody last spoke in the room: a thread, or the address that a program is called back at."""
        rows = self._store.query(
            "SELECT json_extract(incoming, '$.thread') FROM inbox WHERE surface = ? AND room = ?"
            " ORDER BY id DESC LIMIT 1",
            (room.surface, room.id),
        )
        return rows[0][0] if rows else None
