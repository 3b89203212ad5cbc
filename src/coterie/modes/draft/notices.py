"""Who is told of a message, exactly once each, and never of their own. F12"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coterie.kernel import Event, NewEvent, Projection, Rows, Store, on
from coterie.modes.draft.events import DocumentWatched, NoticeGiven, NoticeKind, NoticesRead
from coterie.modes.draft.threads import Thread

OWN_THREAD: NoticeKind = "chat_reply_to_my_message"
WATCHED_DOCUMENT: NoticeKind = "chat_message_in_participated_thread"


@dataclass(frozen=True, slots=True)
class Notification:
    person: str
    message: str
    kind: NoticeKind
    room: str
    read: bool

    @property
    def low_priority(self) -> bool:
        """Whether it may wait for a digest."""
        return self.kind == WATCHED_DOCUMENT


class NotificationProjection(Projection):
    """An inbox is a person's, not a room's."""

    name = "draft_notices"
    schema = """
        CREATE TABLE draft_notice(person TEXT, message TEXT, kind TEXT NOT NULL, room TEXT NOT NULL,
            read INTEGER NOT NULL DEFAULT 0, seq INTEGER NOT NULL, PRIMARY KEY(person, message)) WITHOUT ROWID;
        CREATE TABLE draft_watch(person TEXT, workspace TEXT, document TEXT,
            PRIMARY KEY(person, workspace, document)) WITHOUT ROWID;
    """

    @on(NoticeGiven)
    def given(self, rows: Rows, event: Event[NoticeGiven]) -> None:
        it = event.payload
        rows.run(
            "INSERT OR IGNORE INTO draft_notice(person, message, kind, room, seq) VALUES (?, ?, ?, ?, ?)",
            (it.person, it.message, it.notice, event.stream, event.id),
        )

    @on(NoticesRead)
    def read(self, rows: Rows, event: Event[NoticesRead]) -> None:
        it = event.payload
        rows.many(
            "UPDATE draft_notice SET read = 1 WHERE person = ? AND message = ?",
            [(it.person, one) for one in it.messages],
        )

    @on(DocumentWatched)
    def watched(self, rows: Rows, event: Event[DocumentWatched]) -> None:
        it = event.payload
        workspace = event.stream.partition(":")[2]
        sql = "INSERT OR IGNORE INTO draft_watch VALUES (?, ?, ?)"
        if not it.watching:
            sql = "DELETE FROM draft_watch WHERE person = ? AND workspace = ? AND document = ?"
        rows.run(sql, (it.person, workspace, it.document))


class NotificationQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def of_person(self, person: str, *, unread: bool = False) -> list[Notification]:
        """Newest first."""
        rows = self._store.query(
            "SELECT person, message, kind, room, read FROM draft_notice WHERE person = ?1 AND (NOT ?2 OR NOT read)"
            " ORDER BY seq DESC",
            (person, unread),
        )
        return [Notification(who, message, kind, room, bool(read)) for who, message, kind, room, read in rows]

    def watchers(self, workspace: str, document: str) -> set[str]:
        rows = self._store.query(
            "SELECT person FROM draft_watch WHERE workspace = ? AND document = ?", (workspace, document)
        )
        return {person for (person,) in rows}

    def events_for(self, thread: Thread, message: str, author: str, earlier: Iterable[str]) -> list[NewEvent]:
        """Notices of a new message: direct to who wrote in the thread before, churn to who watches the document."""
        direct = set(earlier) - {author}
        churn = self.watchers(thread.workspace, thread.document) - direct - {author}
        told = [(person, OWN_THREAD) for person in sorted(direct)] + [
            (person, WATCHED_DOCUMENT) for person in sorted(churn)
        ]
        return [
            NewEvent(
                thread.room,
                NoticeGiven(person=person, notice=kind, message=message),
                author,
                key=f"notice:{person}:{message}",
            )
            for person, kind in told
        ]
