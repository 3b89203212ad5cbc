"""Waiting for what comes of a message: the reply, or the certainty that there is none."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress

from coterie.conversation.events import AssistantTurn
from coterie.conversation.turns import Turn, TurnQueries
from coterie.eventstore import Job, Store, WhenSlow
from coterie.eventstore.bus import subject_token
from coterie.eventstore.worker import JobResult
from coterie.messaging.protocol import OutgoingMessage, RoomRef
from coterie.modes.desk.jobs import MESSAGE_JOB

_LOOK_EVERY_S = 0.5
"""For a message that nothing is said about: it was skipped, or answered with another."""


class ReplyWaiter:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._timeline = TurnQueries(store)

    async def wait(self, room: str, turn: str) -> Turn | None:
        """Until the message was looked at; None where it was skipped, answered with others, or given up."""
        # Only replies: a busy desk records fifty other things a second, and none of them is worth looking up for.
        subject = f"event.{subject_token(room)}.{AssistantTurn.kind}"
        async with self._store.bus.subscribe(subject, limit=1, when_slow=WhenSlow.DROP_OLDEST) as said:
            while not self.handled(turn):
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_EVERY_S):
                        await anext(said)
        return self.find(room, turn)

    def find(self, room: str, turn: str) -> Turn | None:
        return next((one for one in reversed(self._timeline.latest(room, 50)) if one.answers == turn), None)

    def handled(self, turn: str) -> bool:
        return self._state(turn) not in ("ready", "leased")

    def given_up(self, turn: str) -> bool:
        return self._state(turn) == "dead"

    def _state(self, turn: str) -> str:
        return self._store.reader.jobs.state_of(f"{MESSAGE_JOB}:{turn}") or ""


# Bringing what nobody asked for to the person, on every surface where the conversation is held. D3, D21
#
# It is a job, recorded with the words themselves, and its token comes from them: however often it is done, they are
# told once.


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
