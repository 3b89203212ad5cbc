"""Detects that the open database file is no longer the one at its path, and saves what the open file holds.

On Unix a process can go on writing to a file that was deleted or replaced: every write succeeds, and all of it is gone
when the process ends. The writer therefore compares the files before each commit.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import apsw

from coterie.base.errors import StorageError
from coterie.base.logging import get_logger
from coterie.base.paths import publish_file
from coterie.eventstore.sqlite.database import Rows, connect, open_with_sqlite, translate_errors

_SUFFIXES = ("", "-wal", "-shm")
_NAMES = {"": "database", "-wal": "journal of the database", "-shm": "index of the database's journal"}
_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"
_PAGES_PER_STEP = 2_000
_log = get_logger(__name__)


class DatabaseLost(StorageError):
    """The database file was deleted, replaced or changed by something else while it was open."""


def rescued_databases(folder: Path) -> list[Path]:
    """Databases that were saved from an open file after it was lost, newest first."""
    return sorted(folder.glob("rescued-*.db"), reverse=True)


class FileGuard:
    """Remembers the identity, size and header of an open database. `check` raises `DatabaseLost` if they are wrong."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = {suffix: path.with_name(path.name + suffix) for suffix in _SUFFIXES}
        self._identities = {suffix: _identity(file.stat()) for suffix, file in self._files.items()}
        self._lock = threading.Lock()
        self._file = open_with_sqlite(path)
        self._size = self._file.xFileSize()
        self._header = self._file.xRead(_HEADER_BYTES, 0)
        self._damage = ""
        self._rescued: Path | None = None
        self._rescue_failed = ""

    def check(self, rows: Callable[[], Rows]) -> None:
        """`rows` gives a connection to the database, which is asked only after the file became smaller or changed."""
        with self._lock:
            if problem := self._damage or self._identity_problem() or self._content_problem(rows):
                raise DatabaseLost(f"{problem} while Coterie was running, so nothing more is written.", self._fix())

    def _identity_problem(self) -> str:
        for suffix, file in self._files.items():
            try:
                same = _identity(file.stat()) == self._identities[suffix]
            except OSError:
                return f"The {_NAMES[suffix]}, {file}, was deleted or moved"
            if not same:
                return f"The {_NAMES[suffix]}, {file}, was replaced"
        return ""

    def _content_problem(self, connection: Callable[[], Rows]) -> str:
        """Whether the file shrank below its content, or has a header that no checkpoint of ours wrote."""
        size = self._file.xFileSize()
        header = self._file.xRead(min(_HEADER_BYTES, size), 0) if size else b""
        if header == self._header and size >= self._size:
            self._size = size
            return ""
        try:
            rows = connection()
            ((pages,),), ((page_size,),) = rows.all("PRAGMA page_count"), rows.all("PRAGMA page_size")
            ((schema,),) = rows.all("PRAGMA schema_version")
        except (apsw.Error, StorageError) as error:
            return f"The database {self._path} was damaged ({error})"
        # Content that was lost does not return, so these two are remembered.
        if size < self._size and size < pages * page_size:
            self._damage = f"The database {self._path} was cut short"
        elif not _follows(self._header, header, schema):
            self._damage = f"The database {self._path} was overwritten"
        else:
            self._size, self._header = size, header
        return self._damage

    def _fix(self) -> str:
        if self._rescue_failed:
            return f"Stop the server, then restore a backup with `coterie restore`. ({self._rescue_failed})"
        if self._rescued is None:
            return "Stop the server, then restore what was saved, or a backup, with `coterie restore`."
        return (
            f"Everything up to then was saved: stop the server, run `coterie restore {self._rescued}` and start it"
            " again."
        )

    def rescue(self, connection: apsw.Connection, now: datetime, last_id: int) -> Path | None:
        """Copy what the open file holds to `rescued-<time>.db`. Returns None if that is not complete.

        Afterwards SQLite does not touch the files at the path any more, which may belong to another database.
        """
        target = self._path.with_name(f"rescued-{now:%Y%m%dT%H%M%S%f}.db")
        partial = target.with_name(target.name + ".partial")
        try:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with translate_errors(partial):
                copy_database(connection, partial)
            problem = _incomplete(partial, last_id)
            if not problem:
                publish_file(partial, target)
        except (OSError, StorageError) as error:
            problem = error.what if isinstance(error, StorageError) else str(error)
        with self._lock:
            if problem:
                partial.unlink(missing_ok=True)
                self._rescue_failed = f"What the open file held could not be saved: {problem}"
            else:
                self._rescued = target
        _log.error("the database was lost", path=str(self._path), saved=problem or str(target))
        return self._rescued

    def close(self) -> None:
        self._file.xClose()


def copy_database(source: apsw.Connection, target: Path) -> None:
    """Copy with SQLite's online backup, as of one moment, into a new file that only its owner can read."""
    target.unlink(missing_ok=True)
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    copy = apsw.Connection(str(target))
    try:
        with copy.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(_PAGES_PER_STEP)
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()
    finally:
        copy.close()


def _incomplete(copy: Path, last_id: int) -> str:
    """Why a copy does not hold everything; empty if it does."""
    connection = connect(copy, writable=False)
    try:
        with translate_errors(copy):
            rows = Rows(connection)
            ((damage,), *_) = rows.all("PRAGMA integrity_check(1)")
            if damage != "ok":
                return f"the copy is damaged ({damage})."
            ((last,),) = rows.all("SELECT coalesce(max(id), 0) FROM event")
            return "" if last == last_id else f"the copy ends at event {last} of {last_id}."
    finally:
        connection.close()


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _follows(before: bytes, after: bytes, schema_version: int) -> bool:
    """Whether a header can be a later state of another: the counters in it never decrease."""
    if len(after) < _HEADER_BYTES or not after.startswith(_MAGIC) or before[16:18] != after[16:18]:
        return False
    (changes_before,), (changes,) = struct.unpack(">I", before[24:28]), struct.unpack(">I", after[24:28])
    (schema_before,), (schema,) = struct.unpack(">I", before[40:44]), struct.unpack(">I", after[40:44])
    return bool(changes >= changes_before and schema_before <= schema <= schema_version)
