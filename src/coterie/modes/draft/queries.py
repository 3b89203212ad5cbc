"""Queries over the projections of threads and proposals."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from coterie.base.clock import from_micros
from coterie.conversation import NoSuchRoom
from coterie.eventstore import Store
from coterie.modes.draft.errors import NoSuchDocument
from coterie.modes.draft.events import AnchorData, Member, ThreadKind
from coterie.modes.draft.locate import Anchor, MatchKind

ProposalState = Literal["pending", "accepted", "declined", "edited-and-accepted", "withdrawn"]


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation about a document; its messages are the turns of its room."""

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
    """A system note in a thread: shown to people, never sent to models."""

    seq: int
    text: str
    about: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed change and its state. A pending one is fresh, or stale since an edit removed its original text."""

    id: str
    room: str
    reply: str
    author: str
    workspace: str
    document: str
    branch: str
    original: str
    """The text to replace, as the model quoted it."""
    proposed: str
    reason: str
    state: ProposalState
    stale_since: datetime | None
    placed: bool
    """Whether its position in the document is known."""
    exact: str
    """The document's own text at the position."""
    prefix: str
    suffix: str
    start: int
    end: int
    inserts: bool
    """Insert after the position instead of replacing it."""
    how: MatchKind | None
    score: float
    missing: Literal["", "absent", "ambiguous"]
    repaired: bool
    """Whether the model was asked for a better quote."""
    commit: str
    blob: str
    """The version of the document that `start` and `end` refer to."""
    accepted_commit: str
    """The commit that contains it, once accepted."""
    blob_before: str
    """The blob before it was accepted."""
    text: str
    """The text that was written, once accepted."""
    comment: str
    replaces: str
    """The stale proposal that this one was made from."""

    @property
    def fresh(self) -> bool:
        return self.placed and self.stale_since is None

    @property
    def anchor(self) -> Anchor:
        fresh = self.stale_since is None
        return Anchor(self.exact, self.prefix, self.suffix, self.start, self.end, self.blob, fresh)

    def replacement(self, text: str | None = None) -> str:
        """The text to write at the position; `text` overrides the proposed one."""
        proposed = self.proposed if text is None else text
        if not self.inserts:
            return proposed
        separator = "" if self.exact.endswith("\n") or proposed.startswith("\n") else "\n\n"
        return self.exact + separator + proposed


@dataclass(frozen=True, slots=True)
class PendingDocument:
    """A document with pending proposals."""

    workspace: str
    branch: str
    document: str
    count: int
    authors: tuple[str, ...]
    latest: datetime


_THREAD_COLUMNS = "room, seq, workspace, document, branch, kind, title, members, place, blob, against"


class ThreadQueries:
    def __init__(self, store: Store, home: Path) -> None:
        """`home` is the data folder, to which the folders of workspaces may be relative."""
        self._store = store
        self._home = home.resolve()

    def workspaces(self) -> dict[str, tuple[str, Path]]:
        """Name and folder of each workspace, by id."""
        rows = self._store.query("SELECT room, name, folder FROM draft_workspace ORDER BY name")
        return {room.partition(":")[2]: (name, self._home / folder) for room, name, folder in rows}

    def stored_folders(self) -> list[tuple[str, str]]:
        """Id and folder of each workspace, as stored."""
        rows = self._store.query("SELECT room, folder FROM draft_workspace ORDER BY room")
        return [(room.partition(":")[2], folder) for room, folder in rows]

    def folder(self, workspace: str) -> Path:
        entry = self.workspaces().get(workspace)
        if entry is None:
            raise NoSuchDocument("There is no such workspace.", "List the workspaces, or open a folder as one.")
        return entry[1]

    def thread(self, room: str) -> Thread:
        rows = self._store.query(f"SELECT {_THREAD_COLUMNS} FROM draft_thread WHERE room = ?", (room,))  # noqa: S608
        if not rows:
            raise NoSuchRoom("There is no such thread.", "List the threads of the document.")
        return _thread(rows[0])

    def is_thread(self, room: str) -> bool:
        return bool(self._store.query("SELECT 1 FROM draft_thread WHERE room = ?", (room,)))

    def threads(self, workspace: str, document: str | None = None, branch: str | None = None) -> list[Thread]:
        rows = self._store.query(
            f"SELECT {_THREAD_COLUMNS} FROM draft_thread WHERE workspace = ?1"  # noqa: S608
            " AND document = coalesce(?2, document) AND branch = coalesce(?3, branch) ORDER BY seq",
            (workspace, document, branch),
        )
        return [_thread(row) for row in rows]

    def members(self, workspace: str, document: str, branch: str) -> list[Member]:
        """The characters in the threads of a document, each once."""
        threads = self.threads(workspace, document, branch)
        return list({member.bot: member for thread in threads for member in thread.members}.values())

    def of_character(self, character: str) -> list[Thread]:
        """The threads that a character is a member of, newest first."""
        rows = self._store.query(
            f"SELECT {_THREAD_COLUMNS} FROM draft_thread WHERE EXISTS (SELECT 1 FROM json_each(members)"  # noqa: S608
            " WHERE json_extract(value, '$.bot') = ?) ORDER BY seq DESC",
            (character,),
        )
        return [_thread(row) for row in rows]

    def quote(self, room: str, turn: str) -> AnchorData | None:
        """The selection that a message refers to."""
        selection = self.selection(room, turn)
        return selection[0] if selection else None

    def selection(self, room: str, turn: str) -> tuple[AnchorData, str] | None:
        """The selection that a message refers to, and the blob it was made in."""
        rows = self._store.query("SELECT place, blob FROM draft_quote WHERE room = ? AND turn = ?", (room, turn))
        return (AnchorData.model_validate_json(rows[0][0]), rows[0][1]) if rows else None

    def notes(self, room: str) -> list[ThreadNote]:
        rows = self._store.query("SELECT seq, text, about FROM draft_note WHERE room = ? ORDER BY seq", (room,))
        return [ThreadNote(*row) for row in rows]


def _thread(row: tuple[Any, ...]) -> Thread:
    room, seq, workspace, document, branch, kind, title, members, place, blob, against = row
    parsed = tuple(Member.model_validate(member) for member in json.loads(members))
    anchor = AnchorData.model_validate_json(place) if place else None
    return Thread(room, seq, workspace, document, branch, kind, title, parsed, anchor, blob, against)


_PROPOSAL_COLUMNS = (
    "id, room, reply, author, workspace, document, branch, original, proposed, reason, state, stale_since, placed,"
    ' exact, prefix, suffix, start, "end", inserts, how, score, missing, repaired, "commit", blob, accepted_commit,'
    " blob_before, text, comment, replaces"
)


class ProposalQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def proposal(self, proposal_id: str) -> Proposal:
        proposals = self._select("id = ?", (proposal_id,))
        if not proposals:
            raise NoSuchDocument("There is no such proposal.", "Reload the thread.")
        return proposals[0]

    def has(self, proposal_id: str) -> bool:
        return bool(self._store.query("SELECT 1 FROM draft_change WHERE id = ?", (proposal_id,)))

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
        """The documents of all workspaces that have pending proposals, newest proposal first."""
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

    def _select(self, where: str, params: tuple[Any, ...]) -> list[Proposal]:
        rows = self._store.query(f"SELECT {_PROPOSAL_COLUMNS} FROM draft_change WHERE {where}", params)  # noqa: S608
        return [_proposal(row) for row in rows]


def _proposal(row: tuple[Any, ...]) -> Proposal:
    values = list(row)
    values[11] = from_micros(values[11]) if values[11] is not None else None
    for flag in (12, 18, 22):
        values[flag] = bool(values[flag])
    return Proposal(*values)
