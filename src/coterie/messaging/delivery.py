"""Outgoing messages: the outbox keeps them until the platform has them, and the worker delivers them in order per room.

A rate-limited delivery waits as long as the platform asks; an unreachable platform is retried with growing pauses for a
day; a message that the platform refuses is recorded as failed, and the room's next message follows.

Each message has a token derived from what it answers. After a crash, a message that may have been sent is sent again:
platforms that deduplicate by token show it once. Elsewhere, and once the platform has forgotten the token, it is
marked as possibly shown twice.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from pydantic import TypeAdapter

from coterie.base.clock import Clock, from_micros, to_micros
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.supervisor import SupervisedTask, Supervisor
from coterie.eventstore import Event, LogReader, NewEvent, Payload, Projection, Rows, Store, backoff_s, on
from coterie.messaging.errors import BadFile, PlatformRateLimited, PlatformRefused, PlatformUnreachable
from coterie.messaging.inbox import room_stream
from coterie.messaging.ports import Surface
from coterie.messaging.protocol import (
    AnyDeliverable,
    Deliverable,
    Incoming,
    OutgoingMessage,
    OutgoingNotification,
    OutgoingReaction,
    RoomRef,
)

_MODEL: TypeAdapter[Deliverable] = TypeAdapter(AnyDeliverable)
_SELECT = (
    "SELECT o.token, o.outgoing, o.tried, p.message, o.state, o.at, o.message, o.perhaps_twice, o.error,"
    " min(coalesce(o.first_tried, p.at), coalesce(p.at, o.first_tried))"
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
    """The message is about to be sent to a platform that does not deduplicate, or not for long: after a crash it may
    have been."""

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
    first_tried: datetime | None
    """When it was sent first, if it was."""


@dataclass(frozen=True)
class ShownMessage:
    """A message that is shown while it is streamed."""

    id: str
    """The platform's id; empty if it may be shown, but its id is not known."""
    since: datetime


class OutboxProjection(Projection):
    name = "outbox"
    version = 2
    schema = """
        CREATE TABLE outbox(token TEXT PRIMARY KEY, id INTEGER NOT NULL, surface TEXT NOT NULL, room TEXT NOT NULL,
            outgoing TEXT NOT NULL, answers INTEGER, state TEXT NOT NULL, tried INTEGER NOT NULL DEFAULT 0,
            message TEXT NOT NULL DEFAULT '', perhaps_twice INTEGER NOT NULL DEFAULT 0,
            error TEXT NOT NULL DEFAULT '', at INTEGER NOT NULL, first_tried INTEGER);
        CREATE INDEX outbox_waiting ON outbox(surface, room, id) WHERE state = 'waiting';
        CREATE INDEX outbox_answers ON outbox(answers, id);
        CREATE INDEX outbox_message ON outbox(message) WHERE message <> '';
        CREATE TABLE outbox_opened(token TEXT PRIMARY KEY, message TEXT NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;
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
        rows.run(
            "INSERT INTO outbox_opened VALUES (?, ?, ?) ON CONFLICT(token) DO UPDATE SET message = excluded.message",
            (event.payload.token, event.payload.message, to_micros(event.ts)),
        )

    @on(DeliveryTried)
    def tried(self, rows: Rows, event: Event[DeliveryTried]) -> None:
        if event.payload.not_taken:
            change = "tried = tried - 1, first_tried = CASE WHEN tried > 1 THEN first_tried END"
            rows.run(f"UPDATE outbox SET {change} WHERE token = ?", (event.payload.token,))  # noqa: S608
        else:
            change = "tried = tried + 1, first_tried = coalesce(first_tried, ?)"
            params = (to_micros(event.ts), event.payload.token)
            rows.run(f"UPDATE outbox SET {change} WHERE token = ?", params)  # noqa: S608

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

    def delivered(self, room: RoomRef) -> list[QueuedMessage]:
        """The messages that the platform has, oldest first."""
        return self._select("o.state = 'delivered' AND o.surface = ? AND o.room = ?", (room.surface, room.id))

    def waiting_rooms(self) -> list[RoomRef]:
        rows = self._store.query("SELECT DISTINCT surface, room FROM outbox WHERE state = 'waiting'")
        return [RoomRef(surface=surface, id=room) for surface, room in rows]

    def text_of(self, room: RoomRef, message: str) -> str | None:
        """The text of a message of ours by the platform's id; None if it is not one."""
        rows = self._store.query(
            "SELECT outgoing FROM outbox WHERE message = ? AND surface = ? AND room = ? AND state = 'delivered'"
            " ORDER BY id LIMIT 1",
            (message, room.surface, room.id),
        )
        outgoing = _MODEL.validate_json(rows[0][0]) if rows else None
        return "" if isinstance(outgoing, OutgoingReaction) else outgoing.text if outgoing is not None else None

    def shown_message(self, token: str) -> ShownMessage | None:
        rows = self._store.query("SELECT message, at FROM outbox_opened WHERE token = ?", (token,))
        return ShownMessage(str(rows[0][0]), from_micros(rows[0][1])) if rows else None

    def _select(self, where: str, params: Sequence[str | int], limit: int = 1_000) -> list[QueuedMessage]:
        rows = self._store.query(f"{_SELECT} WHERE {where} ORDER BY o.id LIMIT ?", (*params, limit))
        return [
            QueuedMessage(
                token,
                _MODEL.validate_json(outgoing),
                tried > 0,
                opened,
                state,
                from_micros(at),
                message,
                twice,
                error,
                from_micros(first_tried) if first_tried is not None else None,
            )
            for token, outgoing, tried, opened, state, at, message, twice, error, first_tried in rows
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
            try:
                await self._deliver(surface, queued)
            except BadFile as error:  # it was removed since, for example
                await self._deliver(surface, await self._without_files(queued, error))
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
        age = self._clock.now() - (queued.first_tried or self._clock.now())
        deduplicates = surface.capabilities.deduplicates_after(age.total_seconds())
        if _records_tries(surface):
            await self._record(queued, DeliveryTried(token=queued.token))
        if isinstance(outgoing, OutgoingMessage) and outgoing.streamed and queued.opened is not None:
            message = queued.opened
            if not message and deduplicates:
                message = await surface.send(outgoing, queued.token)  # deduplicated: this only returns the id
            if message and await self._edited(surface, queued, message):
                maybe_sent = False  # repeating an edit shows nothing twice
            elif message:
                # With a token of its own: the first one stands for the message that cannot be edited.
                message = await surface.send(outgoing, f"{queued.token}.new")
            else:
                message, maybe_sent = await surface.send(outgoing, queued.token), True
        else:
            message = await surface.send(outgoing, queued.token)
        perhaps_twice = maybe_sent and not deduplicates
        if perhaps_twice:
            _log.warning("possibly shown twice", surface=surface.name, room=outgoing.room.id, token=queued.token)
        await self._record(queued, MessageDelivered(token=queued.token, message=message, perhaps_twice=perhaps_twice))
        self._tries.pop(queued.token, None)

    async def _without_files(self, queued: QueuedMessage, error: BadFile) -> QueuedMessage:
        """The message alone. What is wrong with its files is said after it, or instead of it if it has no text."""
        outgoing, sentence = queued.outgoing, f"A file could not be sent: {error}"
        _log.warning("a file was not sent", token=queued.token, error=redact(error.what))
        if isinstance(outgoing, OutgoingMessage):
            if outgoing.text.strip():
                notice = OutgoingNotification(room=outgoing.room, thread=outgoing.thread, text=sentence)
                await self._store.append([queued_event(f"{queued.token}.file", notice)])
            outgoing = outgoing.model_copy(update={"text": outgoing.text or sentence, "attachments": ()})
        return replace(queued, outgoing=outgoing)

    async def _edited(self, surface: Surface, queued: QueuedMessage, message: str) -> bool:
        """Edit the message shown while streaming to its final form; False if the platform refuses to."""
        try:
            await surface.edit(queued.outgoing, message, f"{queued.token}.last")
        except PlatformRefused as error:
            _log.info("an edit was refused: sending anew", surface=surface.name, error=redact(str(error)))
            return False
        return True

    async def _record_not_taken(self, surface: Surface, queued: QueuedMessage) -> None:
        if _records_tries(surface):
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


def _records_tries(surface: Surface) -> bool:
    """Where a token counts for a time only, it must be known when it was sent first."""
    return not surface.capabilities.deduplicates or surface.capabilities.dedupe_window_s is not None
