"""Proposals and what became of them. F5, F7

A pending one is fresh, or stale since an edit took its words away. Its place is about one version of the document, and
moves with every event that says so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from coterie.base.clock import from_micros, to_micros
from coterie.kernel import Event, Projection, Rows, Store, on
from coterie.modes.draft.anchors import Anchor
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
)
from coterie.modes.draft.placing import MatchKind

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
