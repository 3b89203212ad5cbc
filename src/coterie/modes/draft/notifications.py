"""Notifications of new messages: each message once per person, never to its author."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coterie.eventstore import NewEvent, Store
from coterie.modes.draft.events import DocumentWatched, NoticeGiven, NoticeKind, NoticesRead
from coterie.modes.draft.git.repository import Contributor
from coterie.modes.draft.queries import Thread

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
        """Whether it can wait for a digest."""
        return self.kind == WATCHED_DOCUMENT


class Notifications:
    def __init__(self, store: Store) -> None:
        self._store = store

    def of_person(self, person: str, *, unread: bool = False) -> list[Notification]:
        """A person's notifications, newest first."""
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

    async def watch(self, workspace: str, document: str, contributor: Contributor, watching: bool = True) -> None:
        """Start or stop notifying a person of all messages about a document."""
        watched = DocumentWatched(person=contributor.id, document=document, watching=watching)
        await self._store.append([NewEvent(f"draft:{workspace}", watched, contributor.id)])

    async def mark_read(self, contributor: Contributor) -> None:
        unread = tuple(notification.message for notification in self.of_person(contributor.id, unread=True))
        if unread:
            read = NoticesRead(person=contributor.id, messages=unread)
            await self._store.append([NewEvent(f"inbox:{contributor.id}", read)])

    def events_for(self, thread: Thread, message: str, author: str, participants: Iterable[str]) -> list[NewEvent]:
        """The events that notify of a new message: participants of the thread, and who watches the document."""
        in_thread = set(participants) - {author}
        watching = self.watchers(thread.workspace, thread.document) - in_thread - {author}
        recipients = [(person, OWN_THREAD) for person in sorted(in_thread)]
        recipients += [(person, WATCHED_DOCUMENT) for person in sorted(watching)]
        return [
            NewEvent(
                thread.room,
                NoticeGiven(person=person, notice=kind, message=message),
                author,
                key=f"notice:{person}:{message}",
            )
            for person, kind in recipients
        ]
