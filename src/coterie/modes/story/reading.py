"""How far a person has read in each chat, and what is new since. S17

Reading is no part of the story: a mark stands in a stream of its own, so that it neither is rewound with a chat nor
keeps a rewind from being undone.
"""

from __future__ import annotations

from coterie.cast.roster import OWNER
from coterie.kernel import Event, NewEvent, Payload, Projection, Rows, Store, on

READ_MARKS_STREAM = "reading"


class ChatRead(Payload, kind="chat_read"):
    """A person has read a chat up to a turn."""

    chat: str
    """The chat's stream."""
    seq: int
    """The number of the last turn that was read, in the chat's stream."""


class ReadMarkProjection(Projection):
    name = "story_reading"
    schema = "CREATE TABLE chat_read(room TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;"

    @on(ChatRead)
    def read(self, rows: Rows, event: Event[ChatRead]) -> None:
        rows.run("INSERT OR REPLACE INTO chat_read VALUES (?, ?)", (event.payload.chat, event.payload.seq))


class ReadMarks:
    def __init__(self, store: Store) -> None:
        self._store = store

    def unread(self, room: str) -> int:
        """Replies that came after what was read. Who says something has read what came before."""
        origin = self._store.reader.fork_origin(room)
        return int(
            self._store.query(
                "SELECT count(*) FROM turn WHERE room = ?1 AND segments IS NULL AND state <> 'open' AND seq > max(?2,"
                " coalesce((SELECT seq FROM chat_read WHERE room = ?1), 0),"
                " coalesce((SELECT max(seq) FROM turn WHERE room = ?1 AND segments IS NOT NULL), 0))",
                (room, origin[1] if origin is not None else 0),
            )[0][0]
        )

    async def mark_read(self, room: str) -> None:
        """Everything there is. A chat without anything new gets no event."""
        if self.unread(room):
            last = self._store.query("SELECT max(seq) FROM turn WHERE room = ?", (room,))[0][0]
            await self._store.append([NewEvent(READ_MARKS_STREAM, ChatRead(chat=room, seq=last), OWNER)])
