"""Rooms on platforms and the chats behind them: whose room it is, which character answers, and its contexts.

A room points at a context, which is a chat of a mode. Starting over gives the room a new context; the old one is kept
and can be loaded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coterie.conversation import NoSuchRoom
from coterie.eventstore import Event, NewEvent, Payload, Projection, Rows, Store, on
from coterie.messaging.inbox import room_stream
from coterie.messaging.ports import NewChat
from coterie.messaging.protocol import RoomRef

_SELECT = "SELECT surface, room, person, mode, character, context, title, number, archived FROM surface_room"


class RoomBound(Payload, kind="room_bound"):
    """A room on a platform was assigned to a person and a character."""

    room: RoomRef
    """The room on the platform."""
    person: str
    """The id of the person whose room it is; `you` is the owner."""
    mode: str
    """The mode of the chat: `story`, `desk` or `remote`."""
    character: str
    """The id of the character who answers."""
    context: str
    """The stream of its chat (`room:…`)."""
    title: str
    """Its name; the character's if it was given none."""
    number: int
    """Its number in the list of `chats`, counted per person and surface."""


class RoomRenamed(Payload, kind="room_renamed"):
    """A room was renamed."""

    room: RoomRef
    """The room on the platform."""
    title: str
    """The new name."""


class RoomArchived(Payload, kind="room_archived"):
    """A room was archived, so that messages in it are not answered, or brought back."""

    room: RoomRef
    """The room on the platform."""
    archived: bool = True
    """False if it was brought back."""


class RoomShared(Payload, kind="room_shared"):
    """A person was invited to somebody else's chat, or removed from it."""

    room: RoomRef
    """The room on the platform."""
    person: str
    """The guest's id."""
    shared: bool = True
    """False if the guest was removed."""


class RoomListening(Payload, kind="room_listening"):
    """In a room with several people every message is answered, or again only those that address the character."""

    room: RoomRef
    """The room on the platform."""
    to_all: bool
    """Whether every message is answered."""


class RoomForgotten(Payload, kind="room_forgotten"):
    """The room is no longer assigned to anybody; its chats are kept."""

    room: RoomRef
    """The room on the platform."""


class RoomNumbersRestored(Payload, kind="room_numbers_restored"):
    """The highest number that a person's rooms on a surface had was read from the platform's records."""

    person: str
    """The person's id."""
    surface: str
    """The surface's name, such as `matrix`."""
    last: int
    """The number; later rooms get higher ones."""


class ContextChanged(Payload, kind="context_changed"):
    """The room has another chat from now on: a new one, or an earlier one."""

    room: RoomRef
    """The room on the platform."""
    context: str
    """The stream of the chat (`room:…`)."""
    mode: str
    """The mode of the chat: `story`, `desk` or `remote`."""
    character: str
    """The id of the character who answers."""


class ContextSaved(Payload, kind="context_saved"):
    """The context of a room was saved under a name."""

    room: RoomRef
    """The room on the platform."""
    context: str
    """The stream of the chat (`room:…`)."""
    name: str
    """The name that `load` lists."""


@dataclass(frozen=True)
class RoomBinding:
    room: RoomRef
    person: str
    mode: str
    character: str
    context: str
    title: str
    number: int
    archived: bool


@dataclass(frozen=True)
class RoomContext:
    """A context that a room has or had."""

    context: str
    mode: str
    character: str
    name: str


class RoomsProjection(Projection):
    name = "surface_rooms"
    version = 2
    schema = """
        CREATE TABLE room_number(person TEXT, surface TEXT, last INTEGER NOT NULL,
            PRIMARY KEY(person, surface)) WITHOUT ROWID;
        CREATE TABLE room_listening(surface TEXT, room TEXT, PRIMARY KEY(surface, room)) WITHOUT ROWID;
        CREATE TABLE surface_room(surface TEXT, room TEXT, person TEXT NOT NULL, mode TEXT NOT NULL,
            character TEXT NOT NULL, context TEXT NOT NULL, title TEXT NOT NULL, number INTEGER NOT NULL,
            archived INTEGER NOT NULL DEFAULT 0, PRIMARY KEY(surface, room)) WITHOUT ROWID;
        CREATE INDEX surface_room_person ON surface_room(person, surface, number);
        CREATE TABLE room_context(surface TEXT, room TEXT, context TEXT, mode TEXT NOT NULL, character TEXT NOT NULL,
            name TEXT NOT NULL, since INTEGER NOT NULL, PRIMARY KEY(surface, room, context)) WITHOUT ROWID;
        CREATE INDEX room_context_context ON room_context(context, since);
        CREATE TABLE room_guest(surface TEXT, room TEXT, person TEXT, PRIMARY KEY(surface, room, person)) WITHOUT ROWID;
    """

    @on(RoomBound)
    def room_bound(self, rows: Rows, event: Event[RoomBound]) -> None:
        room, chat = event.payload.room, event.payload
        rows.run(
            "INSERT OR REPLACE INTO surface_room VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (room.surface, room.id, chat.person, chat.mode, chat.character, chat.context, chat.title, chat.number),
        )
        self._use_number(rows, chat.person, room.surface, chat.number)
        self._add_context(rows, room, chat.context, chat.mode, chat.character, event.id)

    @on(RoomNumbersRestored)
    def numbers_restored(self, rows: Rows, event: Event[RoomNumbersRestored]) -> None:
        self._use_number(rows, event.payload.person, event.payload.surface, event.payload.last)

    @on(RoomRenamed)
    def renamed(self, rows: Rows, event: Event[RoomRenamed]) -> None:
        room = event.payload.room
        params = (event.payload.title, room.surface, room.id)
        rows.run("UPDATE surface_room SET title = ? WHERE surface = ? AND room = ?", params)

    @on(RoomArchived)
    def archived(self, rows: Rows, event: Event[RoomArchived]) -> None:
        room = event.payload.room
        params = (event.payload.archived, room.surface, room.id)
        rows.run("UPDATE surface_room SET archived = ? WHERE surface = ? AND room = ?", params)

    @on(RoomShared)
    def shared(self, rows: Rows, event: Event[RoomShared]) -> None:
        payload = event.payload
        change = "INSERT OR REPLACE INTO room_guest VALUES (?, ?, ?)"
        if not payload.shared:
            change = "DELETE FROM room_guest WHERE surface = ? AND room = ? AND person = ?"
        rows.run(change, (payload.room.surface, payload.room.id, payload.person))

    @on(RoomListening)
    def listening(self, rows: Rows, event: Event[RoomListening]) -> None:
        change = "INSERT OR REPLACE INTO room_listening VALUES (?, ?)"
        if not event.payload.to_all:
            change = "DELETE FROM room_listening WHERE surface = ? AND room = ?"
        rows.run(change, (event.payload.room.surface, event.payload.room.id))

    @on(RoomForgotten)
    def forgotten(self, rows: Rows, event: Event[RoomForgotten]) -> None:
        room = event.payload.room
        rows.run("DELETE FROM surface_room WHERE surface = ? AND room = ?", (room.surface, room.id))
        rows.run("DELETE FROM room_guest WHERE surface = ? AND room = ?", (room.surface, room.id))
        rows.run("DELETE FROM room_listening WHERE surface = ? AND room = ?", (room.surface, room.id))

    @on(ContextChanged)
    def context_changed(self, rows: Rows, event: Event[ContextChanged]) -> None:
        payload = event.payload
        rows.run(
            "UPDATE surface_room SET context = ?, mode = ?, character = ? WHERE surface = ? AND room = ?",
            (payload.context, payload.mode, payload.character, payload.room.surface, payload.room.id),
        )
        self._add_context(rows, payload.room, payload.context, payload.mode, payload.character, event.id)

    @on(ContextSaved)
    def context_saved(self, rows: Rows, event: Event[ContextSaved]) -> None:
        payload = event.payload
        rows.run(
            "UPDATE room_context SET name = ? WHERE surface = ? AND room = ? AND context = ?",
            (payload.name, payload.room.surface, payload.room.id, payload.context),
        )

    def _use_number(self, rows: Rows, person: str, surface: str, number: int) -> None:
        rows.run(
            "INSERT INTO room_number VALUES (?, ?, ?)"
            " ON CONFLICT(person, surface) DO UPDATE SET last = max(last, excluded.last)",
            (person, surface, number),
        )

    def _add_context(self, rows: Rows, room: RoomRef, context: str, mode: str, character: str, since: int) -> None:
        rows.run(
            "INSERT INTO room_context VALUES (?, ?, ?, ?, ?, '', ?) ON CONFLICT DO NOTHING",
            (room.surface, room.id, context, mode, character, since),
        )


class Rooms:
    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, room: RoomRef) -> RoomBinding | None:
        bindings = self._select("surface = ? AND room = ?", (room.surface, room.id))
        return bindings[0] if bindings else None

    def get(self, room: RoomRef) -> RoomBinding:
        binding = self.find(room)
        if binding is None:
            raise NoSuchRoom("This room has no chat yet.", "Write something, and a chat begins.")
        return binding

    def of_person(self, person: str, surface: str) -> list[RoomBinding]:
        return self._select("person = ? AND surface = ? AND NOT archived", (person, surface))

    def is_guest(self, room: RoomRef, person: str) -> bool:
        sql = "SELECT 1 FROM room_guest WHERE surface = ? AND room = ? AND person = ?"
        return bool(self._store.query(sql, (room.surface, room.id, person)))

    def listens_to_all(self, room: RoomRef) -> bool:
        sql = "SELECT 1 FROM room_listening WHERE surface = ? AND room = ?"
        return bool(self._store.query(sql, (room.surface, room.id)))

    def guests(self, room: RoomRef) -> list[str]:
        sql = "SELECT person FROM room_guest WHERE surface = ? AND room = ? ORDER BY person"
        return [person for (person,) in self._store.query(sql, (room.surface, room.id))]

    def room_of(self, context: str) -> RoomRef | None:
        """The room of a chat: where it is now, or where it was last."""
        rows = self._store.query(
            "SELECT c.surface, c.room FROM room_context c LEFT JOIN surface_room r USING (surface, room)"
            " WHERE c.context = ? ORDER BY r.context IS c.context DESC, c.since DESC LIMIT 1",
            (context,),
        )
        return RoomRef(surface=rows[0][0], id=rows[0][1]) if rows else None

    def on_surface(self, surface: str) -> list[RoomBinding]:
        return self._select("surface = ?", (surface,))

    def contexts(self, room: RoomRef) -> list[RoomContext]:
        """All contexts of the room, newest last."""
        rows = self._store.query(
            "SELECT context, mode, character, name FROM room_context WHERE surface = ? AND room = ? ORDER BY since",
            (room.surface, room.id),
        )
        return [RoomContext(*row) for row in rows]

    def next_number(self, person: str, surface: str) -> int:
        """One more than any room of this person had, also those that were forgotten since."""
        return self.last_number(person, surface) + 1

    def last_number(self, person: str, surface: str) -> int:
        """The highest number that a room of this person had; 0 before the first."""
        sql = "SELECT last FROM room_number WHERE person = ? AND surface = ?"
        rows = self._store.query(sql, (person, surface))
        return int(rows[0][0]) if rows else 0

    def has_number(self, person: str, surface: str, number: int) -> bool:
        sql = "SELECT 1 FROM surface_room WHERE person = ? AND surface = ? AND number = ?"
        return bool(self._store.query(sql, (person, surface, number)))

    async def bind(
        self,
        room: RoomRef,
        person: str,
        mode: str,
        character: str,
        chat: NewChat,
        title: str,
        number: int | None = None,
    ) -> RoomBinding:
        """Assign a room, in one transaction with the start of its chat. A room that is bound already stays so."""
        payload = RoomBound(
            room=room,
            person=person,
            mode=mode,
            character=character,
            context=chat.context,
            title=title,
            number=number or self.next_number(person, room.surface),
        )
        if self.find(room) is None:
            # The key binds the same chat to a room once; a forgotten room can be bound again, to another chat.
            key = f"bound:{room.surface}/{room.id}:{payload.context}"
            await self._store.append([*chat.new_events, NewEvent(room_stream(room), payload, person, key=key)])
        return self.get(room)

    async def change_context(
        self, room: RoomRef, context: RoomContext, person: str, new_events: Sequence[NewEvent] = ()
    ) -> None:
        changed = ContextChanged(room=room, context=context.context, mode=context.mode, character=context.character)
        await self._store.append([*new_events, NewEvent(room_stream(room), changed, person)])

    async def record(
        self,
        payload: RoomRenamed | RoomArchived | RoomShared | RoomListening | RoomForgotten | ContextSaved,
        person: str,
    ) -> None:
        """Store a change of a room."""
        await self._store.append([NewEvent(room_stream(payload.room), payload, person)])

    async def restore_numbers(self, person: str, surface: str, last: int) -> None:
        """Rooms of this person get numbers above `last` from now on."""
        if last > self.last_number(person, surface):
            restored = RoomNumbersRestored(person=person, surface=surface, last=last)
            await self._store.append([NewEvent(f"surface:{surface}", restored)])

    def _select(self, where: str, params: Sequence[str]) -> list[RoomBinding]:
        rows = self._store.query(f"{_SELECT} WHERE {where} ORDER BY number", tuple(params))
        return [
            RoomBinding(
                RoomRef(surface=surface, id=room), person, mode, character, context, title, number, bool(archived)
            )
            for surface, room, person, mode, character, context, title, number, archived in rows
        ]
