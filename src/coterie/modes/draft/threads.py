"""Workspaces and the threads beside their documents. F1, F2"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.engine.errors import NoSuchRoom
from coterie.kernel import Event, Projection, Rows, Store, on
from coterie.modes.draft.errors import NoSuchDocument
from coterie.modes.draft.events import (
    AnchorData,
    Member,
    SelectionQuoted,
    ThreadKind,
    ThreadNoted,
    ThreadOpened,
    WorkspaceOpened,
)


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
    line = "room"
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
