"""Chats that agents hold, as they stand."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.conversation.errors import NoSuchRoom
from coterie.eventstore import Event, Projection, Rows, Store, on
from coterie.modes.remote.events import RemoteOpened, RemoteRenamed


@dataclass(frozen=True)
class RemoteChat:
    room: str
    character: str
    person: str
    """Whose chat it is."""
    title: str


class RemoteChatProjection(Projection):
    name = "remote_chats"
    schema = """
        CREATE TABLE remote_chat(room TEXT PRIMARY KEY, character TEXT NOT NULL, person TEXT NOT NULL,
            title TEXT NOT NULL) WITHOUT ROWID;
    """

    @on(RemoteOpened)
    def opened(self, rows: Rows, event: Event[RemoteOpened]) -> None:
        it = event.payload
        rows.run("INSERT INTO remote_chat VALUES (?, ?, ?, ?)", (event.stream, it.character, it.person, it.title))

    @on(RemoteRenamed)
    def renamed(self, rows: Rows, event: Event[RemoteRenamed]) -> None:
        rows.run("UPDATE remote_chat SET title = ? WHERE room = ?", (event.payload.title, event.stream))


class RemoteChatQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def chat(self, room: str) -> RemoteChat:
        rows = self._store.query("SELECT room, character, person, title FROM remote_chat WHERE room = ?", (room,))
        if not rows:
            raise NoSuchRoom("There is no such chat.", "Begin another one.")
        return RemoteChat(*rows[0])

    def character_of(self, room: str) -> str | None:
        rows = self._store.query("SELECT character FROM remote_chat WHERE room = ?", (room,))
        return str(rows[0][0]) if rows else None
