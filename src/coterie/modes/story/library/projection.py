"""What was decided about chats in the list: events and projection. They are beside the chats: a rewind keeps them."""

from __future__ import annotations

from coterie.base.clock import to_micros
from coterie.eventstore import Event, Payload, Projection, Rows, on


class ChatArchived(Payload, kind="chat_archived"):
    """A chat was archived, or put back into the list."""

    chat: str
    """The chat's stream."""
    archived: bool = True
    """False if it was put back."""


class ChatPinned(Payload, kind="chat_pinned"):
    """A chat was pinned to the top of the list, or unpinned."""

    chat: str
    """The chat's stream."""
    pinned: bool = True
    """False if it was unpinned."""


class ChatTagged(Payload, kind="chat_tagged"):
    """A chat got other tags."""

    chat: str
    """The chat's stream."""
    tags: tuple[str, ...]
    """All its tags."""


class ChatDeleted(Payload, kind="chat_deleted"):
    """A chat was deleted, or restored."""

    chat: str
    """The chat's stream."""
    title: str = ""
    """Its title, for the list of deleted chats."""
    deleted: bool = True
    """False if it was restored."""


class ChatListProjection(Projection):
    name = "story_chat_list"
    journaled = False  # its events are in a stream of their own, which is never rewound
    schema = """
        CREATE TABLE chat_flag(room TEXT, flag TEXT, PRIMARY KEY(room, flag)) WITHOUT ROWID;
        CREATE TABLE chat_tag(room TEXT, tag TEXT, PRIMARY KEY(room, tag)) WITHOUT ROWID;
        CREATE TABLE deleted_chat(room TEXT PRIMARY KEY, title TEXT NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;
    """

    @on(ChatArchived)
    def archived(self, rows: Rows, event: Event[ChatArchived]) -> None:
        _flag(rows, event.payload.chat, "archived", event.payload.archived)

    @on(ChatPinned)
    def pinned(self, rows: Rows, event: Event[ChatPinned]) -> None:
        _flag(rows, event.payload.chat, "pinned", event.payload.pinned)

    @on(ChatTagged)
    def tagged(self, rows: Rows, event: Event[ChatTagged]) -> None:
        rows.run("DELETE FROM chat_tag WHERE room = ?", (event.payload.chat,))
        for tag in dict.fromkeys(event.payload.tags):
            rows.run("INSERT INTO chat_tag VALUES (?, ?)", (event.payload.chat, tag))

    @on(ChatDeleted)
    def deleted(self, rows: Rows, event: Event[ChatDeleted]) -> None:
        rows.run("DELETE FROM deleted_chat WHERE room = ?", (event.payload.chat,))
        if event.payload.deleted:
            rows.run(
                "INSERT INTO deleted_chat VALUES (?, ?, ?)",
                (event.payload.chat, event.payload.title, to_micros(event.ts)),
            )


def _flag(rows: Rows, room: str, flag: str, value: bool) -> None:
    change = "INSERT OR REPLACE INTO chat_flag VALUES (?, ?)"
    rows.run(change if value else "DELETE FROM chat_flag WHERE room = ? AND flag = ?", (room, flag))
