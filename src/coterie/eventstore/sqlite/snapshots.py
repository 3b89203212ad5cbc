"""Snapshots: the contents of the projections in a file, so that a rebuild need not start at the first event.

A snapshot holds a hash of every table; one that is damaged, incomplete or made by another version is skipped. Without
a snapshot a rebuild only takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import apsw

from coterie.base.paths import publish_file
from coterie.eventstore.projection import Projection
from coterie.eventstore.sqlite.database import ReadConnections, Rows, translate_errors
from coterie.eventstore.sqlite.replay import table_hash

Warn = Callable[[str], None]


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
    with translate_errors(partial), connections.read_transaction() as source:
        target = apsw.Connection(str(partial))
        try:
            rows = Rows(target)
            rows.all("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")  # it is published when it is complete
            rows.run("BEGIN")
            rows.run(
                "CREATE TABLE contents(projection TEXT, fingerprint TEXT, position INTEGER, table_name TEXT, hash TEXT,"
                " PRIMARY KEY(projection, table_name))"
            )
            positions: dict[str, int] = dict(source.all("SELECT name, position FROM projection"))
            for projection in projections:
                rows.run(projection.schema)
                for table in projection.tables:
                    _copy_table(source, rows, table)
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

    def seed(projection: Projection, rows: Rows) -> int:
        for path in list_snapshots(folder):
            try:
                position = _read_tables(path, projection, rows)
            except (apsw.Error, _DamagedSnapshot) as error:
                warn(f"The snapshot {path.name} is damaged ({error}) and is skipped.")
                continue
            if position:
                return position
        return 0

    return seed


def list_snapshots(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.snapshot"), reverse=True)


def prune_snapshots(folder: Path, keep: int) -> list[Path]:
    """Remove all but the newest `keep` snapshots. Returns the removed ones."""
    old = list_snapshots(folder)[keep:]
    for path in old:
        path.unlink(missing_ok=True)
    return old


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
        last = rows.one("SELECT coalesce(max(id), 0) FROM event")
        position = int(contents[0][1])
        if last is None or position > last[0]:
            raise _DamagedSnapshot("it includes events that the log does not have")
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
