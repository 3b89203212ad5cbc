"""SQLite connections: one that writes, several that read, error translation, durable files and the process lock.

apsw includes a current SQLite, so the version is the same on every machine. Only this package imports it.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import apsw

from coterie.base.errors import Corrupt, CoterieError, DiskFull, InUse, ReadOnly, StorageError
from coterie.eventstore.sqlite.compression import decompress

Row = tuple[Any, ...]
Value = int | float | str | bytes | None
Params = Sequence[Value]

_STATEMENT_CACHE = 500
_BUSY_MS = 5_000
_CHECKPOINT_PAGES, _RESTART_PAGES, _MAX_PAGES = 1_000, 4_000, 10_000
"""Pages of 4 KB in the write-ahead log from which it is copied to the database, restarted, and restarted even if the
writer has to wait for readers."""
_RESTART_WAIT_MS = 20


class Rows:
    """SQL on one connection. This is what the handlers of projections are given."""

    __slots__ = ("_connection", "run")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.run = connection.execute
        """Execute one statement with parameters; iterate the result for rows."""

    def all(self, sql: str, params: Params = ()) -> list[Row]:
        return self.run(sql, params).fetchall()

    def one(self, sql: str, params: Params = ()) -> Row | None:
        row: Row | None = self.run(sql, params).fetchone()
        return row

    def many(self, sql: str, rows: Iterable[Params]) -> None:
        self._connection.executemany(sql, rows)

    def changes(self) -> int:
        """How many rows the last statement changed."""
        return self._connection.changes()


def connect(path: Path, *, writable: bool) -> apsw.Connection:
    """Open a connection with our pragmas. A reader never creates or changes the file."""
    if path.exists():
        check_database_file(path)
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE if writable else apsw.SQLITE_OPEN_READONLY
    with translate_errors(path):
        connection = apsw.Connection(str(path), flags=flags, statementcachesize=_STATEMENT_CACHE)
        connection.set_busy_timeout(_BUSY_MS)
        connection.execute("PRAGMA foreign_keys = OFF")
        if writable:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA recursive_triggers = ON")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA journal_size_limit = {_CHECKPOINT_PAGES * 4_096}")
            connection.set_wal_hook(_JournalLimit())
        connection.create_scalar_function("json_payload", _json_payload, 1, deterministic=True)
        # In memory, SQLite would walk through all that a savepoint has saved after each statement within it: the time
        # of a rewind would grow with the square of its turns. Small amounts stay in memory all the same.
        connection.execute("PRAGMA temp_store = FILE")
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        if not writable:
            alias_old_tables(connection)
    return connection


class _JournalLimit:
    """Checkpoints the write-ahead log after commits, so that it stays small although there are always readers.

    Each passive checkpoint copies what no reader needs any more. The log can be written from its beginning again only
    at a moment without readers: if it has grown large, the writer waits for one, first briefly, then longer.
    """

    def __init__(self) -> None:
        self._retry_at = 0

    def __call__(self, connection: apsw.Connection, database: str, pages: int) -> int:
        if pages < _CHECKPOINT_PAGES:
            self._retry_at = 0
            return apsw.SQLITE_OK
        try:
            if pages < max(_RESTART_PAGES, self._retry_at):
                connection.wal_checkpoint(database, apsw.SQLITE_CHECKPOINT_PASSIVE)
            else:
                self._retry_at = pages + _CHECKPOINT_PAGES
                connection.set_busy_timeout(_BUSY_MS if pages > _MAX_PAGES else _RESTART_WAIT_MS)
                connection.wal_checkpoint(database, apsw.SQLITE_CHECKPOINT_RESTART)
        except apsw.BusyError:
            pass  # a reader still needs it; tried again when more was written
        finally:
            connection.set_busy_timeout(_BUSY_MS)
        return apsw.SQLITE_OK


def _json_payload(*stored: Any) -> str:
    """The SQL function by which the view `event` reads payloads."""
    return decompress(stored[0])


_OLD_TABLE_NAMES = {"line": "stream_lineage", "counting": "active_ranges", "view": "projection"}


_OLD_LOG = """
    CREATE TEMP VIEW IF NOT EXISTS log AS SELECT * FROM main.event;
    CREATE TEMP VIEW IF NOT EXISTS shared_text AS SELECT 0 AS id, 0 AS hash, '' AS content WHERE 0;
    CREATE TEMP VIEW IF NOT EXISTS finished_job AS SELECT 0 AS key WHERE 0;
"""


def alias_old_tables(connection: apsw.Connection) -> None:
    """Show the tables of a file that was not migrated yet under their current names, to this connection only.

    A backup of an older version is checked before it is restored, and a reader cannot migrate.
    """
    sql = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name IN ('line', 'counting', 'view')"
    for (old,) in connection.execute(sql).fetchall():
        connection.execute(f"CREATE TEMP VIEW IF NOT EXISTS {_OLD_TABLE_NAMES[str(old)]} AS SELECT * FROM main.{old}")
    if connection.execute("SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = 'event'").fetchone():
        connection.execute(_OLD_LOG)


def open_with_sqlite(path: Path) -> apsw.VFSFile:
    """Open a database file to read its bytes. Closing a descriptor of our own would release SQLite's locks on it."""
    return apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])


def check_database_file(path: Path) -> None:
    """Raise if a file is not a database or is shorter than its header says, which SQLite would notice only later."""
    try:
        file = open_with_sqlite(path)
        try:
            size = file.xFileSize()
            header = file.xRead(min(100, size), 0) if size else b""
        finally:
            file.xClose()
    except (apsw.Error, OSError) as error:
        raise ReadOnly(
            f"The database {path} cannot be opened ({error}).",
            "Check that it is a file you may read and write.",
        ) from error
    if size == 0:
        return
    if not header.startswith(b"SQLite format 3\0") or len(header) < 100:
        raise Corrupt(
            f"{path} is not a Coterie database.",
            "Point COTERIE_DB_PATH at the right file, or restore a backup with `coterie restore`.",
        )
    page_size = struct.unpack(">H", header[16:18])[0]
    page_size = 65536 if page_size == 1 else page_size
    pages = struct.unpack(">I", header[28:32])[0]
    journal = path.with_name(path.name + "-wal")
    recoverable = journal.exists() and journal.stat().st_size > 0  # a checkpoint may have been interrupted
    if size < pages * page_size and not recoverable:
        raise Corrupt(
            f"The database {path} is cut short: {size} bytes where its header says {pages * page_size}.",
            "Restore the latest good backup with `coterie restore`; the damaged file is kept beside it.",
        )


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate SQLite's errors into ours."""
    try:
        yield
    except apsw.Error as error:
        raise storage_error(error, path) from error


def storage_error(error: apsw.Error, path: Path) -> CoterieError:
    match error:
        case apsw.FullError():
            return DiskFull(
                f"There is no room left on the disk that holds {path}.",
                "Free some space and try again; nothing was changed.",
            )
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            return ReadOnly(
                f"The database {path} cannot be written ({error}).",
                "Check the permissions of the file and its folder, or choose another place with COTERIE_HOME.",
            )
        case apsw.CorruptError() | apsw.NotADBError():
            return Corrupt(
                f"The database {path} is damaged ({error}).",
                "Run `coterie verify`; if it fails, restore the latest good backup with `coterie restore`.",
            )
        case apsw.BusyError() | apsw.LockedError():
            return InUse(
                f"Another program keeps the database {path} locked.",
                "Stop it and try again; nothing was changed.",
            )
        case _:
            return StorageError(
                f"The database {path} refused a read or write ({type(error).__name__}: {error}).",
                "Run `coterie doctor` to see what is wrong; nothing was changed.",
            )


def sqlite_version() -> str:
    return apsw.sqlite_lib_version()


class ReadConnections:
    """One read-only connection per thread, opened on first use. Readers never block the writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = threading.local()
        self._open: list[apsw.Connection] = []
        self._lock = threading.Lock()

    def rows(self) -> Rows:
        rows: Rows | None = getattr(self._local, "rows", None)
        if rows is None:
            connection = connect(self.path, writable=False)
            rows = self._local.rows = Rows(connection)
            with self._lock:
                self._open.append(connection)
        return rows

    @contextmanager
    def read_transaction(self) -> Iterator[Rows]:
        """Several reads of the same state."""
        rows = self.rows()
        rows.run("BEGIN")
        try:
            yield rows
        finally:
            rows.run("COMMIT")

    def close(self) -> None:
        with self._lock:
            for connection in self._open:
                connection.close()
            self._open.clear()
            self._local = threading.local()


class ProcessLock:
    """One process owns a database at a time. The operating system releases the lock if that process dies."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        try:
            file = self._path.open("a+")
        except OSError as error:
            raise ReadOnly(
                f"The folder {self._path.parent} cannot be written to ({error.strerror}).",
                "Give yourself write access to it, or choose another place with COTERIE_HOME.",
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise InUse(
                f"Another Coterie (process {holder}) is using {self._path.with_suffix('')}.",
                "Stop it first, or give this one its own folder with COTERIE_HOME.",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            # Closing is not enough: a child process that another thread is starting has the file open until its exec.
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._file.close()
            self._file = None


# A small transactional key-value file for secrets that must not be in the event log, such as encryption keys.
#
# Values are texts, addressed by a namespace and a name. Everything handed to one `put` becomes durable together, so a
# crash cannot separate a step of a cipher from its result.


KeyPath = tuple[str, str]
"""A namespace and the name in it."""


class KeyStore:
    def __init__(self, path: Path) -> None:
        """Open the file; create it, readable by its owner only, if it does not exist."""
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        self._connection = connect(path, writable=True)
        with translate_errors(path), self._connection:
            if self._connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'kept'").fetchone():
                self._connection.execute(
                    "ALTER TABLE kept RENAME TO entry; ALTER TABLE entry RENAME COLUMN drawer TO namespace;"
                    " ALTER TABLE entry RENAME COLUMN told TO value"
                )
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS entry(namespace TEXT, name TEXT, value TEXT NOT NULL,"
                " PRIMARY KEY(namespace, name)) WITHOUT ROWID"
            )

    @staticmethod
    def check(path: Path) -> None:
        """`Corrupt` if a file is not a sound key store, or has anything else in it, such as a trigger."""
        connection = connect(path, writable=False)
        try:
            with translate_errors(path):
                rows = connection.execute("SELECT type, name FROM main.sqlite_schema").fetchall()
                sound = connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
        finally:
            connection.close()
        if not sound or rows not in ([("table", "entry")], [("table", "kept")]):
            raise Corrupt(f"{path.name} is not a sound key store.", "Restore another backup.")

    def get(self, namespace: str, name: str) -> str | None:
        with translate_errors(self._path):
            row = self._connection.execute(
                "SELECT value FROM entry WHERE namespace = ? AND name = ?", (namespace, name)
            ).fetchone()
        return None if row is None else str(row[0])

    def entries(self, namespace: str, prefix: str = "") -> dict[str, str]:
        """Name → value of every entry in a namespace whose name starts with `prefix`."""
        with translate_errors(self._path):
            rows = self._connection.execute(
                "SELECT name, value FROM entry WHERE namespace = ? AND substr(name, 1, ?) = ? ORDER BY name",
                (namespace, len(prefix), prefix),
            ).fetchall()
        return {str(name): str(value) for name, value in rows}

    def put(self, changes: Mapping[KeyPath, str | None]) -> None:
        """Write all changes in one transaction; None removes an entry."""
        if not changes:
            return
        with translate_errors(self._path), self._connection:
            for (namespace, name), value in changes.items():
                if value is None:
                    self._connection.execute("DELETE FROM entry WHERE namespace = ? AND name = ?", (namespace, name))
                else:
                    self._connection.execute("INSERT OR REPLACE INTO entry VALUES (?, ?, ?)", (namespace, name, value))

    def close(self) -> None:
        self._connection.close()
