"""Chats with remote agents: events, projection and queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coterie.conversation import NoSuchRoom
from coterie.eventstore import Event, Payload, Projection, Rows, Store, on
from coterie.messaging import Attachment


class RemoteOpened(Payload, kind="remote_opened"):
    """A chat with a character of a remote agent was opened."""

    character: str
    """The character's id."""
    person: str
    """The id of the person whose chat it is; `you` is the owner."""
    title: str
    """The title that was given, else the character's name."""


class RemoteRenamed(Payload, kind="remote_renamed"):
    """A chat with a remote agent was renamed."""

    title: str
    """The new title."""


class AgentActed(Payload, kind="agent_acted"):
    """A step that an agent reported before it replied."""

    what: Literal["tool_call", "tool_result", "progress"]
    """The kind of step."""
    name: str = ""
    """The tool's name, at most 200 characters; empty for progress."""
    text: str = ""
    """The agent's text, redacted, at most 2,000 characters."""


class AgentSentFile(Payload, kind="agent_sent_file"):
    """An agent sent a file, which is stored in the character's workspace."""

    file: Attachment
    """Its name and path."""


@dataclass(frozen=True)
class RemoteChat:
    room: str
    character: str
    person: str
    """The id of the person whose chat it is."""
    title: str


class RemoteChatProjection(Projection):
    name = "remote_chats"
    schema = """
        CREATE TABLE remote_chat(room TEXT PRIMARY KEY, character TEXT NOT NULL, person TEXT NOT NULL,
            title TEXT NOT NULL) WITHOUT ROWID;
    """

    @on(RemoteOpened)
    def opened(self, rows: Rows, event: Event[RemoteOpened]) -> None:
        chat = event.payload
        rows.run("INSERT INTO remote_chat VALUES (?, ?, ?, ?)", (event.stream, chat.character, chat.person, chat.title))

    @on(RemoteRenamed)
    def renamed(self, rows: Rows, event: Event[RemoteRenamed]) -> None:
        rows.run("UPDATE remote_chat SET title = ? WHERE room = ?", (event.payload.title, event.stream))


class RemoteChatQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def chat(self, room: str) -> RemoteChat:
        rows = self._store.query("SELECT room, character, person, title FROM remote_chat WHERE room = ?", (room,))
        if not rows:
            raise NoSuchRoom("There is no such chat.", "Start a new one.")
        return RemoteChat(*rows[0])

    def character_of(self, room: str) -> str | None:
        rows = self._store.query("SELECT character FROM remote_chat WHERE room = ?", (room,))
        return str(rows[0][0]) if rows else None
