"""Outgoing messages: the outbox keeps them until the platform has them, and the worker delivers them in order per room.

A rate-limited delivery waits as long as the platform asks; an unreachable platform is retried with growing pauses for a
day; a message that the platform refuses is recorded as failed, and the room's next message follows.

Each message has a token derived from what it answers. After a crash, a message that may have been sent is sent again:
platforms that deduplicate by token show it once, elsewhere it is marked as possibly shown twice.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from pydantic import TypeAdapter

from coterie.base.clock import Clock, from_micros, to_micros
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.supervisor import SupervisedTask, Supervisor
from coterie.eventstore import Event, LogReader, NewEvent, Payload, Projection, Rows, Store, backoff_s, on
from coterie.messaging.errors import PlatformRateLimited, PlatformRefused, PlatformUnreachable
from coterie.messaging.inbox import room_stream
from coterie.messaging.ports import Surface
from coterie.messaging.protocol import AnyDeliverable, Deliverable, Incoming, OutgoingMessage, RoomRef

_MODEL: TypeAdapter[Deliverable] = TypeAdapter(AnyDeliverable)
_SELECT = (
    "SELECT o.token, o.outgoing, o.tried, p.message, o.state, o.at, o.message, o.perhaps_twice, o.error"
    " FROM outbox o LEFT JOIN outbox_opened p ON p.token = o.token"
)
DeliveryState = Literal["waiting", "delivered", "failed"]
Step = Callable[[RoomRef], Awaitable[bool]]
"""Processes the next item of a room; False if there is none."""
GIVE_UP_AFTER = timedelta(hours=24)
MAX_PAUSE_S = 60.0
_log = get_logger(__name__)


class MessageQueued(Payload, kind="message_queued"):
    """A message is to be delivered; it is kept until the platform has it."""

    token: str
    """The message's key, derived from what it answers: the same after a crash."""
    outgoing: AnyDeliverable
    """A message, a question with buttons, a notification or a reaction."""
    answers: int | None = None
    """The id of the `message_received` event it answers; None if it answers nothing."""


class MessageOpened(Payload, kind="message_opened"):
    """A message is shown while it is streamed. Without an id: it is about to be shown."""

    token: str
    """The message's key, derived from what it answers: the same after a crash."""
    message: str = ""
    """The platform's id of the shown message; empty while it is about to be shown."""


class DeliveryTried(Payload, kind="delivery_tried"):
    """The message is about to be sent to a platform that does not deduplicate: after a crash it may have been."""

    token: str
    """The message's key, derived from what it answers: the same after a crash."""
    not_taken: bool = False
    """The platform rejected this attempt, so it cannot have been shown."""


class MessageDelivered(Payload, kind="message_delivered"):
    """The platform has the message."""

    token: str
    """The message's key, derived from what it answers: the same after a crash."""
    message: str
    """The platform's id of the message."""
    perhaps_twice: bool = False
    """Whether an earlier attempt may be shown too; it cannot be known."""


class DeliveryFailed(Payload, kind="delivery_failed"):
    """The platform refused the message, or could not be reached for too long."""

    token: str
    """The message's key, derived from what it answers: the same after a crash."""
    error: str
    """The platform's error, or why it was not reached; secrets redacted."""


@dataclass(frozen=True)
class QueuedMessage:
    token: str
    outgoing: Deliverable
    tried: bool
    opened: str | None
    """The platform's id of the message shown while streaming; empty if one may be shown but its id is not known."""
    state: DeliveryState
    at: datetime
    message: str
    perhaps_twice: bool
    error: str


class OutboxProjection(Projection):
    name = "outbox"
    schema = """
        CREATE TABLE outbox(token TEXT PRIMARY KEY, id INTEGER NOT NULL, surface TEXT NOT NULL, room TEXT NOT NULL,
            outgoing TEXT NOT NULL, answers INTEGER, state TEXT NOT NULL, tried INTEGER NOT NULL DEFAULT 0,
            message TEXT NOT NULL DEFAULT '', perhaps_twice INTEGER NOT NULL DEFAULT 0,
            error TEXT NOT NULL DEFAULT '', at INTEGER NOT NULL);
        CREATE INDEX outbox_waiting ON outbox(surface, room, id) WHERE state = 'waiting';
        CREATE INDEX outbox_answers ON outbox(answers, id);
        CREATE TABLE outbox_opened(token TEXT PRIMARY KEY, message TEXT NOT NULL) WITHOUT ROWID;
    """

    @on(MessageQueued)
    def queued(self, rows: Rows, event: Event[MessageQueued]) -> None:
        payload = event.payload
        outgoing, room, at = payload.outgoing, payload.outgoing.room, to_micros(event.ts)
        rows.run(
            "INSERT INTO outbox(token, id, surface, room, outgoing, answers, state, at)"
            " VALUES (?, ?, ?, ?, ?, ?, 'waiting', ?)",
            (payload.token, event.id, room.surface, room.id, outgoing.model_dump_json(), payload.answers, at),
        )

    @on(MessageOpened)
    def opened(self, rows: Rows, event: Event[MessageOpened]) -> None:
        rows.run("INSERT OR REPLACE INTO outbox_opened VALUES (?, ?)", (event.payload.token, event.payload.message))

    @on(DeliveryTried)
    def tried(self, rows: Rows, event: Event[DeliveryTried]) -> None:
        step = -1 if event.payload.not_taken else 1
        rows.run("UPDATE outbox SET tried = tried + ? WHERE token = ?", (step, event.payload.token))

    @on(MessageDelivered)
    def delivered(self, rows: Rows, event: Event[MessageDelivered]) -> None:
        payload = event.payload
        rows.run(
            "UPDATE outbox SET state = 'delivered', message = ?, perhaps_twice = ? WHERE token = ?",
            (payload.message, payload.perhaps_twice, payload.token),
        )

    @on(DeliveryFailed)
    def failed(self, rows: Rows, event: Event[DeliveryFailed]) -> None:
        payload = event.payload
        rows.run("UPDATE outbox SET state = 'failed', error = ? WHERE token = ?", (payload.error, payload.token))


def message_token(incoming: Incoming) -> str:
    """Derived from the platform's own id of what is answered: the same even if our database was lost in between."""
    identity = f"{incoming.room.surface}\n{incoming.room.id}\n{incoming.key}"
    return hashlib.sha256(identity.encode()).hexdigest()[:20]


def queued_event(token: str, outgoing: Deliverable, answers: int | None = None) -> NewEvent:
    payload = MessageQueued(token=token, outgoing=outgoing, answers=answers)
    return NewEvent(room_stream(outgoing.room), payload, cause=answers, key=f"out:{token}")


class Outbox:
    def __init__(self, store: Store | LogReader) -> None:
        self._store = store

    def next(self, room: RoomRef) -> QueuedMessage | None:
        """The oldest undelivered message of a room; later ones wait for it."""
        items = self._select("o.state = 'waiting' AND o.surface = ? AND o.room = ?", (room.surface, room.id), limit=1)
        return items[0] if items else None

    def answers_to(self, received_id: int) -> list[QueuedMessage]:
        return self._select("o.answers = ?", (received_id,))

    def uncertain(self) -> list[QueuedMessage]:
        """Messages that were possibly shown twice, and those that failed."""
        return self._select("o.perhaps_twice OR o.state = 'failed'", ())

    def waiting_rooms(self) -> list[RoomRef]:
        rows = self._store.query("SELECT DISTINCT surface, room FROM outbox WHERE state = 'waiting'")
        return [RoomRef(surface=surface, id=room) for surface, room in rows]

    def shown_message(self, token: str) -> str | None:
        rows = self._store.query("SELECT message FROM outbox_opened WHERE token = ?", (token,))
        return str(rows[0][0]) if rows else None

    def _select(self, where: str, params: Sequence[str | int], limit: int = 1_000) -> list[QueuedMessage]:
        rows = self._store.query(f"{_SELECT} WHERE {where} ORDER BY o.id LIMIT ?", (*params, limit))
        return [
            QueuedMessage(
                token, _MODEL.validate_json(outgoing), tried > 0, opened, state, from_micros(at), message, twice, error
            )
            for token, outgoing, tried, opened, state, at, message, twice, error in rows
        ]


class RoomQueue:
    """Processes one item after the other in each room, all rooms concurrently.

    The pending work is in the projections, so a crash loses nothing. A room's task ends when its work is done. If it
    fails, because of a full disk for example, it is started again, and other rooms go on.
    """

    def __init__(self, name: str, step: Step, supervisor: Supervisor | None = None) -> None:
        self._name = name
        self._step = step
        self._supervisor = supervisor or Supervisor()
        self._running: dict[RoomRef, SupervisedTask] = {}
        self._again: set[RoomRef] = set()
        self._closed = False

    def schedule(self, room: RoomRef) -> None:
        """There may be work in this room."""
        self._again.add(room)
        if room not in self._running and not self._closed:
            name = f"{self._name}: {room.surface}/{room.id}"
            self._running[room] = self._supervisor.start(name, partial(self._run, room))

    @property
    def is_running(self) -> bool:
        return bool(self._running)

    def is_busy(self, room: RoomRef) -> bool:
        return room in self._running

    async def wait_idle(self) -> None:
        """Wait until no room has work."""
        while self._running:
            await asyncio.gather(*(task.wait() for task in self._running.values()))

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(task.stop() for task in self._running.values()))
        self._running.clear()

    async def _run(self, room: RoomRef) -> None:
        try:
            while room in self._again:
                self._again.discard(room)
                while await self._step(room):
                    pass
        except BaseException as error:
            self._again.add(room)
            if not (self._closed and isinstance(error, Exception)):
                raise
            # The surface may be closed already; the work is in the log.
        # Nothing is awaited between the last check and this line, so a later `schedule` starts a new task.
        self._running.pop(room, None)


class DeliveryWorker:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        surfaces: Mapping[str, Surface],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.outbox = Outbox(store)
        self.queue = RoomQueue("outgoing messages", self._step, supervisor)
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
        if queued is None or surface is None:  # the messages of a detached surface wait
            return False
        try:
            await self._deliver(surface, queued)
        except PlatformRateLimited as error:
            await self._record_not_taken(surface, queued)
            await self._sleep(error.retry_after_s)
        except PlatformUnreachable as error:
            if not error.ambiguous:
                await self._record_not_taken(surface, queued)
            await self._pause_after(queued, error)
        except PlatformRefused as error:
            await self._give_up(queued, str(error))
        except Exception as error:
            _log.exception("delivery failed", surface=room.surface, room=room.id)
            await self._pause_after(queued, PlatformUnreachable(f"{type(error).__name__}: {error}"))
        return True

    async def _deliver(self, surface: Surface, queued: QueuedMessage) -> None:
        outgoing, maybe_sent = queued.outgoing, queued.tried
        if not surface.capabilities.deduplicates:
            await self._record(queued, DeliveryTried(token=queued.token))
        if isinstance(outgoing, OutgoingMessage) and outgoing.streamed and queued.opened is not None:
            message = queued.opened
            if not message and surface.capabilities.deduplicates:
                message = await surface.send(outgoing, queued.token)  # deduplicated: this only returns the id
            if message:
                await surface.edit(outgoing, message, f"{queued.token}.last")
                maybe_sent = False  # repeating an edit shows nothing twice
            else:
                message, maybe_sent = await surface.send(outgoing, queued.token), True
        else:
            message = await surface.send(outgoing, queued.token)
        perhaps_twice = maybe_sent and not surface.capabilities.deduplicates
        if perhaps_twice:
            _log.warning("possibly shown twice", surface=surface.name, room=outgoing.room.id, token=queued.token)
        await self._record(queued, MessageDelivered(token=queued.token, message=message, perhaps_twice=perhaps_twice))
        self._tries.pop(queued.token, None)

    async def _record_not_taken(self, surface: Surface, queued: QueuedMessage) -> None:
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
