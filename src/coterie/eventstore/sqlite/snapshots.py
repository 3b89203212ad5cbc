"""Snapshots: the contents of the projections in a file, so that a rebuild need not start at the first event.

A snapshot holds a hash of every table; one that is damaged, incomplete or made by another version is skipped, one of
another database is set aside. Without a snapshot a rebuild only takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import apsw

from coterie.base.paths import publish_file
from coterie.eventstore.projection import Projection
from coterie.eventstore.sqlite.database import ReadConnections, Rows, translate_errors
from coterie.eventstore.sqlite.migrations import creation
from coterie.eventstore.sqlite.replay import table_hash

Warn = Callable[[str], None]
_SET_ASIDE = "set-aside"


def write_snapshot(connections: ReadConnections, projections: Sequence[Projection], path: Path) -> int:
    """Write the current contents of the projections atomically. Returns the id of the last event included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    try:
        last = _write_tables(connections, projections, partial)
        publish_file(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)  # on a full disk a half-written file would only take space
        raise
    return last


def _write_tables(connections: ReadConnections, projections: Sequence[Projection], partial: Path) -> int:
    with translate_errors(partial):
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        target = apsw.Connection(str(partial), flags=flags)
        try:
            rows = Rows(target)
            rows.all("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")  # it is published when it is complete
            # Attached, so that SQLite copies the rows: a long read would keep the write-ahead log from shrinking.
            rows.run("ATTACH ? AS source", (f"{connections.path.absolute().as_uri()}?mode=ro",))
            rows.run("BEGIN")
            rows.run(
                "CREATE TABLE contents(projection TEXT, fingerprint TEXT, position INTEGER, table_name TEXT, hash TEXT,"
                " PRIMARY KEY(projection, table_name))"
            )
            rows.run("CREATE TABLE origin(created INTEGER)")
            rows.run("INSERT INTO origin SELECT min(applied) FROM source.migration")
            positions: dict[str, int] = dict(rows.all("SELECT name, position FROM source.projection"))
            for projection in projections:
                rows.run(projection.schema)
                for table in projection.tables:
                    rows.run(f"INSERT INTO main.{table} SELECT * FROM source.{table}")
            rows.run("COMMIT; DETACH source; BEGIN")
            for projection in projections:
                for table in projection.tables:
                    params = (
                        projection.name,
                        projection.fingerprint,
                        positions[projection.name],
                        table,
                        table_hash(rows, table),
                    )
                    rows.run("INSERT INTO contents VALUES (?, ?, ?, ?, ?)", params)
            rows.run("COMMIT")
        finally:
            target.close()
    return max(positions.values(), default=0)


def seed_from_snapshots(folder: Path, warn: Warn) -> Callable[[Projection, Rows], int]:
    """A function that fills a projection from the newest usable snapshot in a folder, for `Store.open(seed=…)`."""
    usable: list[Path] | None = None

    def seed(projection: Projection, rows: Rows) -> int:
        nonlocal usable
        if usable is None:
            usable = _set_aside_foreign(folder, rows, warn)
        for path in list(usable):
            try:
                position = _read_tables(path, projection, rows)
            except (apsw.Error, _DamagedSnapshot) as error:
                usable.remove(path)
                warn(f"The snapshot {path.name} is damaged ({error}) and is skipped.")
                continue
            if position:
                return position
        return 0

    return seed


def list_snapshots(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.snapshot"), reverse=True)


def prune_snapshots(folder: Path, keep: int) -> list[Path]:
    """Remove all but the newest `keep` snapshots; with 0 also those that were set aside. Returns the removed ones."""
    old = list_snapshots(folder)[keep:] + (list_snapshots(folder / _SET_ASIDE) if keep == 0 else [])
    for path in old:
        path.unlink(missing_ok=True)
    return old


def _set_aside_foreign(folder: Path, rows: Rows, warn: Warn) -> list[Path]:
    """Move the snapshots away that were not made from this log. Returns the others, newest first."""
    usable: list[Path] = []
    foreign: dict[str, list[Path]] = {}
    for path in list_snapshots(folder):
        if reason := _foreign_reason(path, rows):
            foreign.setdefault(reason, []).append(path)
        else:
            usable.append(path)
    for reason, paths in foreign.items():
        what = "1 snapshot is" if len(paths) == 1 else f"{len(paths)} snapshots are"
        try:
            (folder / _SET_ASIDE).mkdir(exist_ok=True)
            for path in paths:
                path.replace(folder / _SET_ASIDE / path.name)
            warn(f"{what} not used: {reason}. Moved to {folder / _SET_ASIDE}.")
        except OSError as error:
            warn(f"{what} not used: {reason}. Remove them: {folder} cannot be written ({error.strerror}).")
    return usable


def _foreign_reason(path: Path, rows: Rows) -> str:
    """Why a snapshot was not made from this log; empty if it was, or cannot be read."""
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            source = Rows(connection)
            # Snapshots of earlier versions have no origin.
            created = None
            if source.one("SELECT 1 FROM sqlite_schema WHERE name = 'origin'"):
                created = (source.one("SELECT created FROM origin") or (None,))[0]
            position = (source.one("SELECT max(position) FROM contents") or (None,))[0]
        finally:
            connection.close()
    except apsw.Error:
        return ""
    if created is not None and created != creation(rows):
        return "made from another database"
    last = rows.one("SELECT coalesce(max(id), 0) FROM log") or (0,)
    if position is not None and int(position) > int(last[0]):
        return "with events that the log does not have, because they were made from another database or a longer log"
    return ""


class _DamagedSnapshot(Exception):
    pass


def _read_tables(path: Path, projection: Projection, rows: Rows) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        source = Rows(connection)
        if source.one("SELECT 1 FROM sqlite_schema WHERE name = 'held'"):
            return 0  # the format of an earlier version
        contents = source.all(
            "SELECT fingerprint, position, table_name, hash FROM contents WHERE projection = ?", (projection.name,)
        )
        if not contents or any(fingerprint != projection.fingerprint for fingerprint, *_ in contents):
            return 0
        if {table for _, _, table, _ in contents} != set(projection.tables):
            raise _DamagedSnapshot("a table is missing")
        for _, _, table, expected in contents:
            if table_hash(source, table) != expected:
                raise _DamagedSnapshot(f"the rows of {table} have changed")
        position = int(contents[0][1])
        for table in projection.tables:
            _copy_table(source, rows, table)
        return position
    finally:
        connection.close()


def _copy_table(source: Rows, target: Rows, table: str) -> None:
    columns = [name for (name,) in source.run("SELECT name FROM pragma_table_info(?)", (table,))]
    placeholders = ", ".join("?" * len(columns))
    target.run(f"DELETE FROM {table}")
    rows: Iterable[tuple[int | float | str | bytes | None, ...]] = source.run(f"SELECT * FROM {table}")
    target.many(f"INSERT INTO {table} VALUES ({placeholders})", rows)
