"""Incoming events: durable before the platform is acknowledged, known until they are answered, and batched.

The key of an event is the platform's own id, so that an event that is delivered twice is handled once. A surface that
follows a cursor records it in the same transaction as what it has read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pydantic import TypeAdapter

from coterie.base.clock import Clock, from_micros, to_micros
from coterie.eventstore import Event, NewEvent, Payload, Projection, Rows, Store, on, upcaster
from coterie.messaging.protocol import AnyIncoming, Incoming, IncomingMessage, MemberChange, RoomRef
from coterie.messaging.quarantine import InputSkipped, skipped_events
from coterie.messaging.settings import SurfacesSettings

_MODEL: TypeAdapter[Incoming] = TypeAdapter(AnyIncoming)
_PAGE_SIZE = 200
_MAX_LINES = 40
"""A merged message has at most this many lines."""


class MessageReceived(Payload, kind="message_received", version=2):
    """An event arrived on a surface; durable before the platform is acknowledged."""

    incoming: AnyIncoming
    """A message, a command, a pressed button, a change of membership, or a new name of the room."""


@upcaster("message_received", 1)
def _without_new_names(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had no new names of rooms; everything else is as it was."""
    return fields


class MessagesBatched(Payload, kind="messages_gathered"):
    """These are answered together: a burst, or a backlog."""

    received: tuple[int, ...]
    """The ids of their `message_received` events; the first identifies the batch."""


class MessageAnswered(Payload, kind="message_answered"):
    """Every answer is in the outbox."""

    received: tuple[int, ...]
    """The ids of the `message_received` events that were answered together."""


class SurfaceSynced(Payload, kind="surface_synced"):
    """How far a surface has read its platform."""

    surface: str
    """The surface's name, such as `matrix`."""
    cursor: str
    """The platform's own position; empty to start over."""


@dataclass(frozen=True)
class ReceivedMessage:
    id: int
    """The id of its event."""
    incoming: Incoming
    batch: int | None
    """The first message of its batch, once it is in one."""
    ts: datetime

    @property
    def at(self) -> datetime:
        return self.incoming.at or self.ts


class InboxProjection(Projection):
    name = "inbox"
    version = 2
    schema = """
        CREATE TABLE inbox(id INTEGER PRIMARY KEY, surface TEXT NOT NULL, room TEXT NOT NULL, account TEXT NOT NULL,
            incoming TEXT NOT NULL, state TEXT NOT NULL, batch INTEGER, ts INTEGER NOT NULL);
        CREATE INDEX inbox_waiting ON inbox(surface, room, id) WHERE state = 'waiting';
        CREATE TABLE surface_cursor(surface TEXT PRIMARY KEY, cursor TEXT NOT NULL) WITHOUT ROWID;
    """

    @on(MessageReceived)
    def received(self, rows: Rows, event: Event[MessageReceived]) -> None:
        incoming, room = event.payload.incoming, event.payload.incoming.room
        rows.run(
            "INSERT INTO inbox VALUES (?, ?, ?, ?, ?, 'waiting', NULL, ?)",
            (event.id, room.surface, room.id, incoming.account.id, incoming.model_dump_json(), to_micros(event.ts)),
        )

    @on(MessagesBatched)
    def batched(self, rows: Rows, event: Event[MessagesBatched]) -> None:
        first = event.payload.received[0]
        rows.many("UPDATE inbox SET batch = ? WHERE id = ?", [(first, message) for message in event.payload.received])

    @on(MessageAnswered)
    def answered(self, rows: Rows, event: Event[MessageAnswered]) -> None:
        rows.many(
            "UPDATE inbox SET state = 'answered' WHERE id = ?", [(message,) for message in event.payload.received]
        )

    @on(SurfaceSynced)
    def synced(self, rows: Rows, event: Event[SurfaceSynced]) -> None:
        params = (event.payload.surface, event.payload.cursor)
        rows.run("INSERT OR REPLACE INTO surface_cursor VALUES (?, ?)", params)


def room_stream(room: RoomRef) -> str:
    return f"post:{room.surface}/{room.id}"


def received_key(incoming: Incoming) -> str:
    return f"in:{incoming.room.surface}/{incoming.room.id}:{incoming.key}"


class Inbox:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def accept(
        self,
        incoming: Sequence[Incoming],
        cursor: SurfaceSynced | None = None,
        skipped: Sequence[InputSkipped] = (),
    ) -> list[int]:
        """Record the new events, what was skipped, and the cursor with them. Returns the id of each event, new or
        received before."""
        new = {received_key(event): event for event in incoming if self.find(event) is None}
        payloads = {key: MessageReceived(incoming=event) for key, event in new.items()}
        events = [NewEvent(room_stream(new[key].room), payload, key=key) for key, payload in payloads.items()]
        events += skipped_events(self._store, skipped)
        if cursor is not None and cursor.cursor != self.cursor(cursor.surface):
            events.append(NewEvent(f"surface:{cursor.surface}", cursor))
        if events:
            await self._store.append(events)
        return [self.find(event) or 0 for event in incoming]

    def find(self, incoming: Incoming) -> int | None:
        return self._store.reader.id_by_key(received_key(incoming))

    def cursor(self, surface: str) -> str | None:
        rows = self._store.query("SELECT cursor FROM surface_cursor WHERE surface = ?", (surface,))
        return (str(rows[0][0]) or None) if rows else None

    def waiting(self, room: RoomRef) -> list[ReceivedMessage]:
        """The oldest unanswered messages of a room."""
        rows = self._store.query(
            "SELECT id, incoming, batch, ts FROM inbox WHERE state = 'waiting' AND surface = ? AND room = ?"
            " ORDER BY id LIMIT ?",
            (room.surface, room.id, _PAGE_SIZE),
        )
        return [
            ReceivedMessage(event, _MODEL.validate_json(incoming), batch, from_micros(ts))
            for event, incoming, batch, ts in rows
        ]

    def text_of(self, room: RoomRef, key: str) -> str | None:
        """The text of a received message by the platform's id."""
        received = self._store.reader.id_by_key(f"in:{room.surface}/{room.id}:{key}")
        rows = self._store.query("SELECT incoming FROM inbox WHERE id = ?", (received,)) if received else []
        incoming = _MODEL.validate_json(rows[0][0]) if rows else None
        return incoming.text if isinstance(incoming, IncomingMessage) else None

    def waiting_rooms(self) -> list[RoomRef]:
        rows = self._store.query("SELECT DISTINCT surface, room FROM inbox WHERE state = 'waiting'")
        return [RoomRef(surface=surface, id=room) for surface, room in rows]

    def state(self, received_id: int) -> Literal["waiting", "answered"] | None:
        rows = self._store.query("SELECT state FROM inbox WHERE id = ?", (received_id,))
        return rows[0][0] if rows else None

    def last_received(self, surface: str) -> datetime | None:
        """When the last event arrived on a surface."""
        rows = self._store.query("SELECT ts FROM inbox WHERE surface = ? ORDER BY id DESC LIMIT 1", (surface,))
        return from_micros(rows[0][0]) if rows else None

    def last_invite(self, surface: str, account: str) -> MemberChange | None:
        """The last invitation by an account."""
        rows = self._store.query(
            "SELECT incoming FROM inbox WHERE surface = ? AND account = ? ORDER BY id DESC LIMIT 100",
            (surface, account),
        )
        events = (_MODEL.validate_json(incoming) for (incoming,) in rows)
        return next((one for one in events if isinstance(one, MemberChange) and one.change == "invited"), None)

    def last_private_room(self, surface: str, account: str) -> RoomRef | None:
        """The room where an account last wrote to us, and nobody else read it then."""
        rows = self._store.query(
            "SELECT room FROM inbox WHERE surface = ? AND account = ?"
            " AND NOT coalesce(json_extract(incoming, '$.group'), 0) ORDER BY id DESC LIMIT 1",
            (surface, account),
        )
        return RoomRef(surface=surface, id=rows[0][0]) if rows else None

    def first_of_batch(self, received_id: int) -> int:
        """The message whose answer also answers this one: itself, or the first of its batch."""
        rows = self._store.query("SELECT coalesce(batch, id) FROM inbox WHERE id = ?", (received_id,))
        return int(rows[0][0]) if rows else received_id

    def has_several_people(self, room: RoomRef, before: int, among: int = 20) -> bool:
        """Whether more than one account wrote recently."""
        rows = self._store.query(
            "SELECT count(DISTINCT account) FROM (SELECT account FROM inbox WHERE surface = ? AND room = ? AND id <= ?"
            " ORDER BY id DESC LIMIT ?)",
            (room.surface, room.id, before, among),
        )
        return int(rows[0][0]) > 1


class MessageBatcher:
    """Chooses what is answered together.

    One person's messages are answered one by one. Where several people write, the answer waits until they pause. A
    backlog older than a limit gets one answer.
    """

    def __init__(
        self, inbox: Inbox, clock: Clock, settings: SurfacesSettings, may_speak_in: Callable[[Incoming], bool]
    ) -> None:
        self._inbox = inbox
        self._clock = clock
        self._settings = settings
        self._may_speak_in = may_speak_in

    async def next_batch(self, room: RoomRef, waiting: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
        first = waiting[0]
        if first.batch is not None:  # recorded before a crash
            return [message for message in waiting if message.batch == first.batch]
        run = self._consecutive(waiting)
        limit = self._clock.now() - timedelta(seconds=self._settings.backlog_s)
        backlog = [message for message in run if message.at < limit]
        if len(backlog) > 1:
            return backlog
        if len(run) > 0 and self._inbox.has_several_people(room, run[-1].id):
            return await self._wait_for_pause(room, run)
        return waiting[:1]

    async def _wait_for_pause(self, room: RoomRef, run: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
        deadline = run[0].ts + timedelta(seconds=self._settings.burst_most_s)
        while True:
            pause = run[-1].ts + timedelta(seconds=self._settings.burst_quiet_s)
            wait = (min(pause, deadline) - self._clock.now()).total_seconds()
            if wait <= 0:
                return run
            await asyncio.sleep(wait)
            run = self._consecutive(self._inbox.waiting(room))

    def _consecutive(self, waiting: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        """The first consecutive messages that may be answered together: one thread, all from people who may speak."""
        run: list[ReceivedMessage] = []
        for message in waiting:
            incoming = message.incoming
            is_unbatched = isinstance(incoming, IncomingMessage) and message.batch is None
            is_same_thread = incoming.thread == waiting[0].incoming.thread
            if not (is_unbatched and is_same_thread and self._may_speak_in(incoming)):
                break
            run.append(message)
        return run


def merge_messages(batch: Sequence[ReceivedMessage]) -> Incoming:
    """A batch as one message, with the sender before each line if there are several; it has the key of the first."""
    first = batch[0].incoming
    if len(batch) == 1 or not isinstance(first, IncomingMessage):
        return first
    messages = [received.incoming for received in batch if isinstance(received.incoming, IncomingMessage)]
    lines = [message.text for message in messages]
    if len({message.account.id for message in messages}) > 1:
        lines = [f"{message.account.name or message.account.id}: {message.text}" for message in messages]
    if len(lines) > _MAX_LINES:
        lines = [f"({len(lines) - _MAX_LINES} earlier messages are left out.)", *lines[-_MAX_LINES:]]
    return first.model_copy(
        update={
            "text": "\n".join(lines),
            "attachments": tuple(file for message in messages for file in message.attachments),
            "reply_to": None,
        }
    )
