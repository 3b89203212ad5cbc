"""Projections of the draft mode: workspaces and threads, proposals, notifications."""

from __future__ import annotations

import json

from coterie.base.clock import to_micros
from coterie.eventstore import Event, Projection, Rows, on
from coterie.modes.draft.events import (
    AcceptUndone,
    AnchorData,
    ChangeAccepted,
    ChangeDeclined,
    ChangeProposed,
    ChangeRepaired,
    ChangesMoved,
    ChangeWithdrawn,
    DocumentShared,
    DocumentWatched,
    NoticeGiven,
    NoticesRead,
    SelectionQuoted,
    ShareRevoked,
    ThreadNoted,
    ThreadOpened,
    WorkspaceMoved,
    WorkspaceOpened,
)
from coterie.modes.draft.locate import MatchKind


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
        payload = event.payload
        rows.run(
            "INSERT OR REPLACE INTO draft_workspace VALUES (?, ?, ?)", (event.stream, payload.name, payload.folder)
        )

    @on(WorkspaceMoved)
    def workspace_moved(self, rows: Rows, event: Event[WorkspaceMoved]) -> None:
        rows.run("UPDATE draft_workspace SET folder = ? WHERE room = ?", (event.payload.folder, event.stream))

    @on(ThreadOpened)
    def thread_opened(self, rows: Rows, event: Event[ThreadOpened]) -> None:
        payload = event.payload
        rows.run(
            "INSERT INTO draft_thread VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                event.stream,
                event.id,
                payload.workspace,
                payload.document,
                payload.branch,
                payload.thread_kind,
                payload.title,
                json.dumps([member.model_dump() for member in payload.members]),
                payload.place.model_dump_json() if payload.place else None,
                payload.blob,
                payload.against,
            ),
        )

    @on(SelectionQuoted)
    def selection_quoted(self, rows: Rows, event: Event[SelectionQuoted]) -> None:
        payload = event.payload
        place = payload.place.model_dump_json()
        rows.run("INSERT INTO draft_quote VALUES (?, ?, ?, ?)", (event.stream, payload.turn, place, payload.blob))

    @on(ThreadNoted)
    def thread_noted(self, rows: Rows, event: Event[ThreadNoted]) -> None:
        payload = event.payload
        rows.run("INSERT INTO draft_note VALUES (?, ?, ?, ?)", (event.stream, event.seq, payload.text, payload.about))


class ProposalProjection(Projection):
    """Proposals of a document, from all of its threads: an edit moves them all, so they have no stream column."""

    name = "draft_changes"
    schema = """
        CREATE TABLE draft_change(id TEXT PRIMARY KEY, room TEXT NOT NULL, reply TEXT NOT NULL, author TEXT NOT NULL,
            workspace TEXT NOT NULL, document TEXT NOT NULL, branch TEXT NOT NULL, original TEXT NOT NULL,
            proposed TEXT NOT NULL, reason TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'pending', stale_since INTEGER,
            placed INTEGER NOT NULL DEFAULT 0, exact TEXT NOT NULL DEFAULT '', prefix TEXT NOT NULL DEFAULT '',
            suffix TEXT NOT NULL DEFAULT '', start INTEGER NOT NULL DEFAULT 0, "end" INTEGER NOT NULL DEFAULT 0,
            inserts INTEGER NOT NULL, how TEXT, score REAL NOT NULL DEFAULT 1, missing TEXT NOT NULL,
            repaired INTEGER NOT NULL DEFAULT 0, "commit" TEXT NOT NULL, blob TEXT NOT NULL,
            accepted_commit TEXT NOT NULL DEFAULT '', blob_before TEXT NOT NULL DEFAULT '',
            text TEXT NOT NULL DEFAULT '', comment TEXT NOT NULL DEFAULT '', replaces TEXT NOT NULL,
            seq INTEGER NOT NULL) WITHOUT ROWID;
        CREATE INDEX draft_change_room ON draft_change(room, seq);
        CREATE INDEX draft_change_document ON draft_change(workspace, branch, document, state);
    """

    @on(ChangeProposed)
    def proposed(self, rows: Rows, event: Event[ChangeProposed]) -> None:
        payload = event.payload
        rows.run(
            "INSERT INTO draft_change(id, room, reply, author, workspace, document, branch, original, proposed, reason,"
            ' inserts, missing, "commit", blob, replaces, seq)'
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                payload.change,
                event.stream,
                payload.reply,
                payload.author,
                payload.workspace,
                payload.document,
                payload.branch,
                payload.original,
                payload.proposed,
                payload.reason,
                payload.inserts,
                payload.missing,
                payload.commit,
                payload.blob,
                payload.again,
                event.id,
            ),
        )
        if payload.place is not None:
            _set_position(rows, payload.change, payload.place, payload.how, payload.score)

    @on(ChangeRepaired)
    def repaired(self, rows: Rows, event: Event[ChangeRepaired]) -> None:
        payload = event.payload
        rows.run(
            'UPDATE draft_change SET repaired = 1, "commit" = ?, blob = ? WHERE id = ?',
            (payload.commit, payload.blob, payload.change),
        )
        if payload.place is not None:
            _set_position(rows, payload.change, payload.place, payload.how, payload.score)

    @on(ChangeAccepted)
    def accepted(self, rows: Rows, event: Event[ChangeAccepted]) -> None:
        payload = event.payload
        rows.run(
            'UPDATE draft_change SET state = ?, accepted_commit = ?, "commit" = ?, blob = ?, blob_before = ?,'
            " text = ?, stale_since = NULL WHERE id = ?",
            (
                "edited-and-accepted" if payload.edited else "accepted",
                payload.commit,
                payload.commit,
                payload.blob,
                payload.before,
                payload.text,
                payload.change,
            ),
        )

    @on(ChangeDeclined)
    def declined(self, rows: Rows, event: Event[ChangeDeclined]) -> None:
        payload = event.payload
        rows.run(
            "UPDATE draft_change SET state = 'declined', comment = ? WHERE id = ?", (payload.comment, payload.change)
        )

    @on(ChangeWithdrawn)
    def withdrawn(self, rows: Rows, event: Event[ChangeWithdrawn]) -> None:
        rows.run("UPDATE draft_change SET state = 'withdrawn' WHERE id = ?", (event.payload.change,))

    @on(AcceptUndone)
    def accept_undone(self, rows: Rows, event: Event[AcceptUndone]) -> None:
        payload = event.payload
        rows.run(
            "UPDATE draft_change SET state = 'pending', accepted_commit = '', blob_before = '', text = '',"
            ' stale_since = NULL, "commit" = ?, blob = ? WHERE id = ?',
            (payload.commit, payload.blob, payload.change),
        )
        _set_position(rows, payload.change, payload.place, None, None)

    @on(ChangesMoved)
    def moved(self, rows: Rows, event: Event[ChangesMoved]) -> None:
        payload = event.payload
        when = to_micros(event.ts)
        rows.many(
            'UPDATE draft_change SET start = ?, "end" = ?, "commit" = ?, blob = ?,'
            " stale_since = CASE WHEN ? THEN NULL ELSE coalesce(stale_since, ?) END WHERE id = ?",
            [
                (moved.start, moved.end, payload.commit, payload.blob, moved.fresh, when, moved.change)
                for moved in payload.moved
            ],
        )


def _set_position(rows: Rows, change: str, place: AnchorData, how: MatchKind | None, score: float | None) -> None:
    rows.run(
        "UPDATE draft_change SET placed = 1, missing = '', exact = ?, prefix = ?, suffix = ?, start = ?, \"end\" = ?,"
        " how = coalesce(?, how), score = coalesce(?, score) WHERE id = ?",
        (place.exact, place.prefix, place.suffix, place.start, place.end, how, score, change),
    )


class NotificationProjection(Projection):
    """Notifications and watched documents by person, over all rooms."""

    name = "draft_notices"
    schema = """
        CREATE TABLE draft_notice(person TEXT, message TEXT, kind TEXT NOT NULL, room TEXT NOT NULL,
            read INTEGER NOT NULL DEFAULT 0, seq INTEGER NOT NULL, PRIMARY KEY(person, message)) WITHOUT ROWID;
        CREATE TABLE draft_watch(person TEXT, workspace TEXT, document TEXT,
            PRIMARY KEY(person, workspace, document)) WITHOUT ROWID;
    """

    @on(NoticeGiven)
    def notice_given(self, rows: Rows, event: Event[NoticeGiven]) -> None:
        payload = event.payload
        rows.run(
            "INSERT OR IGNORE INTO draft_notice(person, message, kind, room, seq) VALUES (?, ?, ?, ?, ?)",
            (payload.person, payload.message, payload.notice, event.stream, event.id),
        )

    @on(NoticesRead)
    def notices_read(self, rows: Rows, event: Event[NoticesRead]) -> None:
        payload = event.payload
        rows.many(
            "UPDATE draft_notice SET read = 1 WHERE person = ? AND message = ?",
            [(payload.person, message) for message in payload.messages],
        )

    @on(DocumentWatched)
    def document_watched(self, rows: Rows, event: Event[DocumentWatched]) -> None:
        payload = event.payload
        workspace = event.stream.partition(":")[2]
        sql = "INSERT OR IGNORE INTO draft_watch VALUES (?, ?, ?)"
        if not payload.watching:
            sql = "DELETE FROM draft_watch WHERE person = ? AND workspace = ? AND document = ?"
        rows.run(sql, (payload.person, workspace, payload.document))


class ShareProjection(Projection):
    """The links that open a document for a guest."""

    name = "draft_shares"
    schema = """
        CREATE TABLE draft_share(id TEXT PRIMARY KEY, digest TEXT NOT NULL, person TEXT NOT NULL,
            workspace TEXT NOT NULL, document TEXT NOT NULL, branch TEXT NOT NULL, role TEXT NOT NULL,
            expires INTEGER NOT NULL, seq INTEGER NOT NULL) WITHOUT ROWID;
        CREATE INDEX draft_share_digest ON draft_share(digest);
    """

    @on(DocumentShared)
    def shared(self, rows: Rows, event: Event[DocumentShared]) -> None:
        payload = event.payload
        rows.run(
            "INSERT OR REPLACE INTO draft_share VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                payload.link,
                payload.digest,
                payload.person,
                event.stream.partition(":")[2],
                payload.document,
                payload.branch,
                payload.role,
                to_micros(payload.expires),
                event.id,
            ),
        )

    @on(ShareRevoked)
    def revoked(self, rows: Rows, event: Event[ShareRevoked]) -> None:
        rows.run("DELETE FROM draft_share WHERE id = ?", (event.payload.link,))


def draft_projections() -> list[Projection]:
    return [ThreadProjection(), ProposalProjection(), NotificationProjection(), ShareProjection()]
