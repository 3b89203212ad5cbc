"""Proposals and what became of them. F5, F7

A pending one is fresh, or stale since an edit took its words away. Its place is about one version of the document, and
moves with every event that says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from coterie.base.clock import from_micros, to_micros
from coterie.conversation.errors import NoSuchRoom
from coterie.eventstore import Event, NewEvent, Projection, Rows, Store, on
from coterie.modes.draft.diff import MatchKind
from coterie.modes.draft.errors import NoSuchDocument
from coterie.modes.draft.events import (
    AcceptUndone,
    AnchorData,
    ChangeAccepted,
    ChangeDeclined,
    ChangeProposed,
    ChangeRepaired,
    ChangesMoved,
    ChangeWithdrawn,
    DocumentWatched,
    Member,
    NoticeGiven,
    NoticeKind,
    NoticesRead,
    SelectionQuoted,
    ThreadKind,
    ThreadNoted,
    ThreadOpened,
    WorkspaceOpened,
)
from coterie.modes.draft.locate.anchors import Anchor

ProposalState = Literal["pending", "accepted", "declined", "edited-and-accepted", "withdrawn"]


@dataclass(frozen=True, slots=True)
class Proposal:
    id: str
    room: str
    reply: str
    author: str
    workspace: str
    document: str
    branch: str
    original: str
    proposed: str
    reason: str
    state: ProposalState
    stale_since: datetime | None
    placed: bool
    exact: str
    """The document's own words at the place."""
    prefix: str
    suffix: str
    start: int
    end: int
    inserts: bool
    how: MatchKind | None
    score: float
    missing: Literal["", "absent", "ambiguous"]
    repaired: bool
    """Whether the model was asked for a better quote."""
    commit: str
    blob: str
    """The version that the place is about."""
    accepted_commit: str
    """The commit that holds it, once accepted."""
    blob_before: str
    """The blob before it was accepted."""
    text: str
    """What was written, once accepted."""
    comment: str
    replaces: str

    @property
    def fresh(self) -> bool:
        return self.placed and self.stale_since is None

    @property
    def anchor(self) -> Anchor:
        fresh = self.stale_since is None
        return Anchor(self.exact, self.prefix, self.suffix, self.start, self.end, self.blob, fresh)

    def replacement(self, text: str | None = None) -> str:
        """What shall stand at the place."""
        proposed = self.proposed if text is None else text
        if not self.inserts:
            return proposed
        between = "" if self.exact.endswith("\n") or proposed.startswith("\n") else "\n\n"
        return self.exact + between + proposed


@dataclass(frozen=True, slots=True)
class PendingDocument:
    """A document about which something is proposed and not decided."""

    workspace: str
    branch: str
    document: str
    count: int
    authors: tuple[str, ...]
    latest: datetime


class ProposalProjection(Projection):
    """Proposals of one document meet, whichever thread they come from: so no line of a room has its own."""

    name = "draft_changes"
    schema = """
        CREATE TABLE draft_change(id TEXT PRIMARY KEY, room TEXT NOT NULL, reply TEXT NOT NULL, author TEXT NOT NULL,
            workspace TEXT NOT NULL, document TEXT NOT NULL, branch TEXT NOT NULL, original TEXT NOT NULL,
            proposed TEXT NOT NULL, reason TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'pending', stale_since INTEGER,
            placed INTEGER NOT NULL DEFAULT 0, exact TEXT NOT NULL DEFAULT '', prefix TEXT NOT NULL DEFAULT '',
            suffix TEXT NOT NULL DEFAULT '', start INTEGER NOT NULL DEFAULT 0, "end" INTEGER NOT NULL DEFAULT 0,
            inserts INTEGER NOT NULL, how TEXT, score REAL NOT NULL DEFAULT 1, missing TEXT NOT NULL,
            repaired INTEGER NOT NULL DEFAULT 0, "commit" TEXT NOT NULL, blob TEXT NOT NULL,
            accepted TEXT NOT NULL DEFAULT '', before TEXT NOT NULL DEFAULT '', text TEXT NOT NULL DEFAULT '',
            comment TEXT NOT NULL DEFAULT '', again TEXT NOT NULL, seq INTEGER NOT NULL) WITHOUT ROWID;
        CREATE INDEX draft_change_room ON draft_change(room, seq);
        CREATE INDEX draft_change_document ON draft_change(workspace, branch, document, state);
    """

    @on(ChangeProposed)
    def proposed(self, rows: Rows, event: Event[ChangeProposed]) -> None:
        it = event.payload
        rows.run(
            "INSERT INTO draft_change(id, room, reply, author, workspace, document, branch, original, proposed, reason,"
            ' inserts, missing, "commit", blob, again, seq) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
            (
                it.change,
                event.stream,
                it.reply,
                it.author,
                it.workspace,
                it.document,
                it.branch,
                it.original,
                it.proposed,
                it.reason,
                it.inserts,
                it.missing,
                it.commit,
                it.blob,
                it.again,
                event.id,
            ),
        )
        if it.place is not None:
            _place(rows, it.change, it.place, it.how, it.score)

    @on(ChangeRepaired)
    def repaired(self, rows: Rows, event: Event[ChangeRepaired]) -> None:
        it = event.payload
        rows.run(
            'UPDATE draft_change SET repaired = 1, "commit" = ?, blob = ? WHERE id = ?', (it.commit, it.blob, it.change)
        )
        if it.place is not None:
            _place(rows, it.change, it.place, it.how, it.score)

    @on(ChangeAccepted)
    def accepted(self, rows: Rows, event: Event[ChangeAccepted]) -> None:
        it = event.payload
        rows.run(
            'UPDATE draft_change SET state = ?, accepted = ?, "commit" = ?, blob = ?, before = ?, text = ?,'
            " stale_since = NULL WHERE id = ?",
            (
                "edited-and-accepted" if it.edited else "accepted",
                it.commit,
                it.commit,
                it.blob,
                it.before,
                it.text,
                it.change,
            ),
        )

    @on(ChangeDeclined)
    def declined(self, rows: Rows, event: Event[ChangeDeclined]) -> None:
        it = event.payload
        rows.run("UPDATE draft_change SET state = 'declined', comment = ? WHERE id = ?", (it.comment, it.change))

    @on(ChangeWithdrawn)
    def withdrawn(self, rows: Rows, event: Event[ChangeWithdrawn]) -> None:
        rows.run("UPDATE draft_change SET state = 'withdrawn' WHERE id = ?", (event.payload.change,))

    @on(AcceptUndone)
    def undone(self, rows: Rows, event: Event[AcceptUndone]) -> None:
        """It is a proposal again, and can be decided anew."""
        it = event.payload
        rows.run(
            "UPDATE draft_change SET state = 'pending', accepted = '', before = '', text = '', stale_since = NULL,"
            ' "commit" = ?, blob = ? WHERE id = ?',
            (it.commit, it.blob, it.change),
        )
        _place(rows, it.change, it.place, None, None)

    @on(ChangesMoved)
    def moved(self, rows: Rows, event: Event[ChangesMoved]) -> None:
        it = event.payload
        when = to_micros(event.ts)
        rows.many(
            'UPDATE draft_change SET start = ?, "end" = ?, "commit" = ?, blob = ?,'
            " stale_since = CASE WHEN ? THEN NULL ELSE coalesce(stale_since, ?) END WHERE id = ?",
            [(one.start, one.end, it.commit, it.blob, one.fresh, when, one.change) for one in it.moved],
        )


def _place(rows: Rows, change: str, place: AnchorData, how: MatchKind | None, score: float | None) -> None:
    rows.run(
        "UPDATE draft_change SET placed = 1, missing = '', exact = ?, prefix = ?, suffix = ?, start = ?, \"end\" = ?,"
        " how = coalesce(?, how), score = coalesce(?, score) WHERE id = ?",
        (place.exact, place.prefix, place.suffix, place.start, place.end, how, score, change),
    )


_PROPOSAL_COLUMNS = (
    "id, room, reply, author, workspace, document, branch, original, proposed, reason, state, stale_since, placed,"
    ' exact, prefix, suffix, start, "end", inserts, how, score, missing, repaired, "commit", blob, accepted, before,'
    " text, comment, again"
)


class ProposalQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def proposal(self, change_id: str) -> Proposal:
        found = self._select("id = ?", (change_id,))
        if not found:
            raise NoSuchDocument("There is no such proposal.", "Reload the thread.")
        return found[0]

    def has(self, change_id: str) -> bool:
        return bool(self._store.query("SELECT 1 FROM draft_change WHERE id = ?", (change_id,)))

    def of_thread(self, room: str) -> list[Proposal]:
        return self._select("room = ? ORDER BY seq", (room,))

    def of_reply(self, room: str, reply: str) -> list[Proposal]:
        return self._select("room = ? AND reply = ? ORDER BY seq", (room, reply))

    def of_document(
        self, workspace: str, branch: str, document: str, state: ProposalState | None = None
    ) -> list[Proposal]:
        return self._select(
            "workspace = ?1 AND branch = ?2 AND document = ?3 AND state = coalesce(?4, state) ORDER BY start, seq",
            (workspace, branch, document, state),
        )

    def pending_documents(self) -> list[PendingDocument]:
        """In every workspace, the newest first."""
        rows = self._store.query(
            "SELECT workspace, branch, document, count(*), json_group_array(DISTINCT author), max(seq) AS newest"
            " FROM draft_change WHERE state = 'pending' GROUP BY workspace, branch, document ORDER BY newest DESC"
        )
        times = self._store.reader.times([newest for *_, newest in rows])
        return [
            PendingDocument(workspace, branch, document, count, tuple(json.loads(authors)), times[newest])
            for workspace, branch, document, count, authors, newest in rows
            if newest in times
        ]

    def accepted_by(self, commit: str) -> Proposal | None:
        found = self._select("accepted = ?", (commit,))
        return found[0] if found else None

    def _select(self, where: str, params: tuple[Any, ...]) -> list[Proposal]:
        rows = self._store.query(f"SELECT {_PROPOSAL_COLUMNS} FROM draft_change WHERE {where}", params)  # noqa: S608
        return [_change(row) for row in rows]


def _change(row: tuple[Any, ...]) -> Proposal:
    values = list(row)
    values[11] = from_micros(values[11]) if values[11] is not None else None
    for flag in (12, 18, 22):
        values[flag] = bool(values[flag])
    return Proposal(*values)


# Workspaces and the threads beside their documents. F1, F2


@dataclass(frozen=True, slots=True)
class Thread:
    room: str
    seq: int
    workspace: str
    document: str
    branch: str
    kind: ThreadKind
    title: str
    members: tuple[Member, ...]
    place: AnchorData | None
    blob: str
    against: str

    @property
    def id(self) -> str:
        return self.room.partition(":")[2]

    def member(self, character: str) -> Member:
        return next(member for member in self.members if member.bot == character)


@dataclass(frozen=True, slots=True)
class ThreadNote:
    seq: int
    text: str
    about: str


class ThreadProjection(Projection):
    name = "draft_threads"
    stream_column = "room"
    schema = """
        CREATE TABLE draft_workspace(room TEXT PRIMARY KEY, name TEXT NOT NULL, folder TEXT NOT NULL) WITHOUT ROWID;
        CREATE TABLE draft_thread(room TEXT PRIMARY KEY, seq INTEGER NOT NULL, workspace TEXT NOT NULL,
            document TEXT NOT NULL, branch TEXT NOT NULL, kind TEXT NOT NULL, title TEXT NOT NULL,
            members TEXT NOT NULL, place TEXT, blob TEXT NOT NULL, against TEXT NOT NULL) WITHOUT ROWID;
        CREATE INDEX draft_thread_of ON draft_thread(workspace, document, branch);
        CREATE TABLE draft_quote(room TEXT, turn TEXT, place TEXT NOT NULL, blob TEXT NOT NULL,
            PRIMARY KEY(room, turn)) WITHOUT ROWID;
        CREATE TABLE draft_note(room TEXT, seq INTEGER, text TEXT NOT NULL, about TEXT NOT NULL,
            PRIMARY KEY(room, seq)) WITHOUT ROWID;
    """

    @on(WorkspaceOpened)
    def workspace_opened(self, rows: Rows, event: Event[WorkspaceOpened]) -> None:
        it = event.payload
        rows.run("INSERT OR REPLACE INTO draft_workspace VALUES (?, ?, ?)", (event.stream, it.name, it.folder))

    @on(ThreadOpened)
    def thread_opened(self, rows: Rows, event: Event[ThreadOpened]) -> None:
        it = event.payload
        rows.run(
            "INSERT INTO draft_thread VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                event.stream,
                event.id,
                it.workspace,
                it.document,
                it.branch,
                it.thread_kind,
                it.title,
                json.dumps([member.model_dump() for member in it.members]),
                it.place.model_dump_json() if it.place else None,
                it.blob,
                it.against,
            ),
        )

    @on(SelectionQuoted)
    def quoted(self, rows: Rows, event: Event[SelectionQuoted]) -> None:
        it = event.payload
        place = it.place.model_dump_json()
        rows.run("INSERT INTO draft_quote VALUES (?, ?, ?, ?)", (event.stream, it.turn, place, it.blob))

    @on(ThreadNoted)
    def noted(self, rows: Rows, event: Event[ThreadNoted]) -> None:
        it = event.payload
        rows.run("INSERT INTO draft_note VALUES (?, ?, ?, ?)", (event.stream, event.seq, it.text, it.about))


_THREAD_COLUMNS = "room, seq, workspace, document, branch, kind, title, members, place, blob, against"


class ThreadQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def workspaces(self) -> dict[str, tuple[str, Path]]:
        """Name and folder of each, by id."""
        rows = self._store.query("SELECT room, name, folder FROM draft_workspace ORDER BY name")
        return {room.partition(":")[2]: (name, Path(folder)) for room, name, folder in rows}

    def folder(self, workspace: str) -> Path:
        found = self.workspaces().get(workspace)
        if found is None:
            raise NoSuchDocument("There is no such workspace.", "List the workspaces, or open a folder as one.")
        return found[1]

    def thread(self, room: str) -> Thread:
        rows = self._store.query(f"SELECT {_THREAD_COLUMNS} FROM draft_thread WHERE room = ?", (room,))  # noqa: S608
        if not rows:
            raise NoSuchRoom("There is no such thread.", "List the threads of the document.")
        return _thread(rows[0])

    def is_thread(self, room: str) -> bool:
        return bool(self._store.query("SELECT 1 FROM draft_thread WHERE room = ?", (room,)))

    def threads(self, workspace: str, document: str | None = None, branch: str | None = None) -> list[Thread]:
        rows = self._store.query(
            f"SELECT {_THREAD_COLUMNS} FROM draft_thread WHERE workspace = ?1 AND document = coalesce(?2, document)"  # noqa: S608
            " AND branch = coalesce(?3, branch) ORDER BY seq",
            (workspace, document, branch),
        )
        return [_thread(row) for row in rows]

    def of_character(self, character: str) -> list[Thread]:
        """Those in which a character answers, the newest first."""
        rows = self._store.query(
            f"SELECT {_THREAD_COLUMNS} FROM draft_thread WHERE EXISTS (SELECT 1 FROM json_each(members)"  # noqa: S608
            " WHERE json_extract(value, '$.bot') = ?) ORDER BY seq DESC",
            (character,),
        )
        return [_thread(row) for row in rows]

    def quote(self, room: str, turn: str) -> AnchorData | None:
        """The words that a message is about."""
        found = self.selection(room, turn)
        return found[0] if found else None

    def selection(self, room: str, turn: str) -> tuple[AnchorData, str] | None:
        """The same, with the version of the document that they were selected in."""
        rows = self._store.query("SELECT place, blob FROM draft_quote WHERE room = ? AND turn = ?", (room, turn))
        return (AnchorData.model_validate_json(rows[0][0]), rows[0][1]) if rows else None

    def notes(self, room: str) -> list[ThreadNote]:
        rows = self._store.query("SELECT seq, text, about FROM draft_note WHERE room = ? ORDER BY seq", (room,))
        return [ThreadNote(*row) for row in rows]


def _thread(row: tuple[Any, ...]) -> Thread:
    room, seq, workspace, document, branch, kind, title, members, place, blob, against = row
    read = tuple(Member.model_validate(member) for member in json.loads(members))
    where = AnchorData.model_validate_json(place) if place else None
    return Thread(room, seq, workspace, document, branch, kind, title, read, where, blob, against)


# Who is told of a message, exactly once each, and never of their own. F12


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


# What the draft mode brings to the house: its views.


def projections() -> list[Projection]:
    return [ThreadProjection(), ProposalProjection(), NotificationProjection()]
