"""What came in: durable before the platform is told that we have it, and known until it is answered. P4

The key of an event is the platform's own id of what happened, so that a platform that delivers twice is heard once.
A surface that follows a cursor records it in the same transaction as what it has read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import TypeAdapter

from coterie.base.clock import from_micros, to_micros
from coterie.eventstore import Event, NewEvent, Payload, Projection, Rows, Store, on
from coterie.messaging.protocol import AnyIncoming, Incoming, RoomRef

_SHAPE: TypeAdapter[Incoming] = TypeAdapter(AnyIncoming)
_MOST_AT_ONCE = 200


class MessageReceived(Payload, kind="message_received"):
    """Something came in on a surface; durable before the platform is told so."""

    incoming: AnyIncoming
    """A message, a command, a pressed button, or that somebody came or went."""


class MessagesBatched(Payload, kind="messages_gathered"):
    """These are answered together: a burst, or what piled up while we were away. D14"""

    received: tuple[int, ...]
    """The ids of their `message_received` events; the first stands for all of them."""


class MessageAnswered(Payload, kind="message_answered"):
    """Everything there was to say about it is in the outbox."""

    received: tuple[int, ...]
    """The ids of the `message_received` events that were answered together."""


class SurfaceSynced(Payload, kind="surface_synced"):
    """How far a surface has read its platform."""

    surface: str
    """The surface's name, such as `matrix`."""
    cursor: str
    """The platform's own mark of what was read last; empty to begin anew."""


@dataclass(frozen=True)
class ReceivedMessage:
    id: int
    """Of its event."""
    incoming: Incoming
    batch: int | None
    """The first of those it is answered together with, once that is settled."""
    ts: datetime

    @property
    def at(self) -> datetime:
        return self.incoming.at or self.ts


class InboxProjection(Projection):
    name = "inbox"
    schema = """
        CREATE TABLE inbox(id INTEGER PRIMARY KEY, surface TEXT NOT NULL, room TEXT NOT NULL, account TEXT NOT NULL,
            incoming TEXT NOT NULL, state TEXT NOT NULL, batch INTEGER, ts INTEGER NOT NULL);
        CREATE INDEX inbox_waiting ON inbox(surface, room, id) WHERE state = 'waiting';
        CREATE TABLE surface_cursor(surface TEXT PRIMARY KEY, cursor TEXT NOT NULL) WITHOUT ROWID;
    """

    @on(MessageReceived)
    def received(self, rows: Rows, event: Event[MessageReceived]) -> None:
        it = event.payload.incoming
        rows.run(
            "INSERT INTO inbox VALUES (?, ?, ?, ?, ?, 'waiting', NULL, ?)",
            (event.id, it.room.surface, it.room.id, it.account.id, it.model_dump_json(), to_micros(event.ts)),
        )

    @on(MessagesBatched)
    def gathered(self, rows: Rows, event: Event[MessagesBatched]) -> None:
        first = event.payload.received[0]
        rows.many("UPDATE inbox SET batch = ? WHERE id = ?", [(first, one) for one in event.payload.received])

    @on(MessageAnswered)
    def answered(self, rows: Rows, event: Event[MessageAnswered]) -> None:
        rows.many("UPDATE inbox SET state = 'answered' WHERE id = ?", [(one,) for one in event.payload.received])

    @on(SurfaceSynced)
    def synced(self, rows: Rows, event: Event[SurfaceSynced]) -> None:
        told = (event.payload.surface, event.payload.cursor)
        rows.run("INSERT OR REPLACE INTO surface_cursor VALUES (?, ?)", told)


def room_stream(room: RoomRef) -> str:
    return f"post:{room.surface}/{room.id}"


def received_key(incoming: Incoming) -> str:
    return f"in:{incoming.room.surface}/{incoming.room.id}:{incoming.key}"


class Inbox:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def accept(self, incoming: Sequence[Incoming], cursor: SurfaceSynced | None = None) -> list[int]:
        """Record what is new of it, and the cursor with it. Returns the event of each, known before or not."""
        fresh = {received_key(one): one for one in incoming if self.find(one) is None}
        drafts = [NewEvent(room_stream(it.room), MessageReceived(incoming=it), key=key) for key, it in fresh.items()]
        if cursor is not None and cursor.cursor != self.cursor(cursor.surface):
            drafts.append(NewEvent(f"surface:{cursor.surface}", cursor))
        if drafts:
            await self._store.append(drafts)
        return [self.find(one) or 0 for one in incoming]

    def find(self, incoming: Incoming) -> int | None:
        return self._store.reader.id_by_key(received_key(incoming))

    def cursor(self, surface: str) -> str | None:
        rows = self._store.query("SELECT cursor FROM surface_cursor WHERE surface = ?", (surface,))
        return (str(rows[0][0]) or None) if rows else None

    def waiting(self, room: RoomRef) -> list[ReceivedMessage]:
        """The oldest of what nobody has answered yet."""
        rows = self._store.query(
            "SELECT id, incoming, batch, ts FROM inbox WHERE state = 'waiting' AND surface = ? AND room = ?"
            " ORDER BY id LIMIT ?",
            (room.surface, room.id, _MOST_AT_ONCE),
        )
        return [
            ReceivedMessage(one, _SHAPE.validate_json(told), batch, from_micros(ts)) for one, told, batch, ts in rows
        ]

    def waiting_rooms(self) -> list[RoomRef]:
        rows = self._store.query("SELECT DISTINCT surface, room FROM inbox WHERE state = 'waiting'")
        return [RoomRef(surface=surface, id=room) for surface, room in rows]

    def state(self, received: int) -> Literal["waiting", "answered"] | None:
        rows = self._store.query("SELECT state FROM inbox WHERE id = ?", (received,))
        return rows[0][0] if rows else None

    def batch_first(self, received: int) -> int:
        """The message whose answer is the answer to this one too: itself, or the first of a burst."""
        rows = self._store.query("SELECT coalesce(batch, id) FROM inbox WHERE id = ?", (received,))
        return int(rows[0][0]) if rows else received

    def several_people(self, room: RoomRef, before: int, among: int = 20) -> bool:
        """Whether more than one person wrote lately."""
        rows = self._store.query(
            "SELECT count(DISTINCT account) FROM (SELECT account FROM inbox WHERE surface = ? AND room = ? AND id <= ?"
            " ORDER BY id DESC LIMIT ?)",
            (room.surface, room.id, before, among),
        )
        return int(rows[0][0]) > 1
