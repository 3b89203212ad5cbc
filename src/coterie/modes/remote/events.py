"""Chats with an agent, and what it did on the way to its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coterie.conversation.errors import NoSuchRoom
from coterie.eventstore import Event, Payload, Projection, Rows, Store, on
from coterie.messaging.protocol import Attachment


class RemoteOpened(Payload, kind="remote_opened"):
    """A chat with a character that an agent plays."""

    character: str
    """The character's id."""
    person: str
    """Whose chat it is: a person's id; `you` is the owner."""
    title: str
    """The name it was given, else the character's."""


class RemoteRenamed(Payload, kind="remote_renamed"):
    """A chat with a remote agent got another name."""

    title: str
    """What it is called from now on."""


class AgentActed(Payload, kind="agent_acted"):
    """What an agent says it did before it answered."""

    what: Literal["tool_call", "tool_result", "progress"]
    """It used a tool, got its result, or told how far it is."""
    name: str = ""
    """The tool's, cut after 200 characters; empty for progress."""
    text: str = ""
    """In the agent's words, secrets masked, cut after 2,000 characters."""


class AgentSentFile(Payload, kind="agent_sent_file"):
    """A file for the person, kept in the character's workspace."""

    file: Attachment
    """What it is called, and where it was put."""


# Chats that agents hold, as they stand.


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
