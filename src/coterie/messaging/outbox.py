"""What goes out: kept until the platform has it, in order per room. P4

Each message has a token made from what it answers. Where a platform dedupes by such tokens, a message that was perhaps
sent before a crash is sent again and shown once; elsewhere it is sent again too, and marked as perhaps shown twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import TypeAdapter

from coterie.base.clock import from_micros, to_micros
from coterie.eventstore import Event, LogReader, NewEvent, Payload, Projection, Rows, Store, on
from coterie.messaging.inbox import room_stream
from coterie.messaging.protocol import AnyDeliverable, Deliverable, Incoming, RoomRef

_SHAPE: TypeAdapter[Deliverable] = TypeAdapter(AnyDeliverable)
_SELECT = (
    "SELECT o.token, o.outgoing, o.tried, p.message, o.state, o.at, o.message, o.perhaps_twice, o.error"
    " FROM outbox o LEFT JOIN outbox_opened p ON p.token = o.token"
)
DeliveryState = Literal["waiting", "delivered", "failed"]


class MessageQueued(Payload, kind="message_queued"):
    """Something is to go out; it is kept until the platform has it."""

    token: str
    """The message's key, made from what led to it: the same after a crash, too."""
    outgoing: AnyDeliverable
    """What is to be shown: a message, a question with buttons, a notice or a reaction."""
    answers: int | None = None
    """The event of what came in; None for what nobody asked for."""


class MessageOpened(Payload, kind="message_opened"):
    """A message is shown while it grows. Without an id: it is about to be."""

    token: str
    """The message's key, made from what led to it: the same after a crash, too."""
    message: str = ""
    """The platform's id of what is shown; empty while it is about to be."""


class DeliveryTried(Payload, kind="delivery_tried"):
    """About to be sent to a platform that does not dedupe: after a crash, it may have been."""

    token: str
    """The message's key, made from what led to it: the same after a crash, too."""
    not_taken: bool = False
    """The platform said so: that try cannot have been shown."""


class MessageDelivered(Payload, kind="message_delivered"):
    """The platform has it; `perhaps_twice` where an earlier try may be shown too."""

    token: str
    """The message's key, made from what led to it: the same after a crash, too."""
    message: str
    """The platform's id of it."""
    perhaps_twice: bool = False
    """Whether an earlier try may have been shown too: its fate cannot be known."""


class DeliveryFailed(Payload, kind="delivery_failed"):
    """The platform will not have it, or could not be reached for too long."""

    token: str
    """The message's key, made from what led to it: the same after a crash, too."""
    error: str
    """What the platform said, or why it was not reached; secrets masked."""


@dataclass(frozen=True)
class QueuedMessage:
    token: str
    outgoing: Deliverable
    tried: bool
    opened: str | None
    """The platform's id of what is shown of it already; empty if that may be, but is not known."""
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
        it = event.payload
        room, told = it.outgoing.room, it.outgoing.model_dump_json()
        rows.run(
            "INSERT INTO outbox(token, id, surface, room, outgoing, answers, state, at)"
            " VALUES (?, ?, ?, ?, ?, ?, 'waiting', ?)",
            (it.token, event.id, room.surface, room.id, told, it.answers, to_micros(event.ts)),
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
        it = event.payload
        rows.run(
            "UPDATE outbox SET state = 'delivered', message = ?, perhaps_twice = ? WHERE token = ?",
            (it.message, it.perhaps_twice, it.token),
        )

    @on(DeliveryFailed)
    def failed(self, rows: Rows, event: Event[DeliveryFailed]) -> None:
        it = event.payload
        rows.run("UPDATE outbox SET state = 'failed', error = ? WHERE token = ?", (it.error, it.token))


def message_token(incoming: Incoming) -> str:
    """From the platform's own id of what is answered: the same even if our database was lost in between."""
    told = f"{incoming.room.surface}\n{incoming.room.id}\n{incoming.key}"
    return hashlib.sha256(told.encode()).hexdigest()[:20]


def queued_event(token: str, outgoing: Deliverable, answers: int | None = None) -> NewEvent:
    payload = MessageQueued(token=token, outgoing=outgoing, answers=answers)
    return NewEvent(room_stream(outgoing.room), payload, cause=answers, key=f"out:{token}")


class Outbox:
    def __init__(self, store: Store | LogReader) -> None:
        self._store = store

    def next(self, room: RoomRef) -> QueuedMessage | None:
        """The oldest that waits: whatever comes after it in the room waits with it."""
        found = self._some("o.state = 'waiting' AND o.surface = ? AND o.room = ?", (room.surface, room.id), limit=1)
        return found[0] if found else None

    def answers_to(self, received: int) -> list[QueuedMessage]:
        return self._some("o.answers = ?", (received,))

    def uncertain(self) -> list[QueuedMessage]:
        """What a person may have seen twice, and what nobody got."""
        return self._some("o.perhaps_twice OR o.state = 'failed'", ())

    def waiting_rooms(self) -> list[RoomRef]:
        rows = self._store.query("SELECT DISTINCT surface, room FROM outbox WHERE state = 'waiting'")
        return [RoomRef(surface=surface, id=room) for surface, room in rows]

    def shown_message(self, token: str) -> str | None:
        rows = self._store.query("SELECT message FROM outbox_opened WHERE token = ?", (token,))
        return str(rows[0][0]) if rows else None

    def _some(self, where: str, bound: Sequence[str | int], limit: int = 1_000) -> list[QueuedMessage]:
        rows = self._store.query(f"{_SELECT} WHERE {where} ORDER BY o.id LIMIT ?", (*bound, limit))
        return [
            QueuedMessage(
                token, _SHAPE.validate_json(told), tried > 0, opened, state, from_micros(at), message, twice, error
            )
            for token, told, tried, opened, state, at, message, twice, error in rows
        ]
