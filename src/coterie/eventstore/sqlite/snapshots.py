"""Snapshots: what the views held at a moment, in a file of its own, so that a start need not fold a whole life.

A snapshot is never trusted: it carries a hash of every table, and one that is damaged, cut short or made by other
code is passed over. The log remains the truth; a missing snapshot costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import apsw

from coterie.eventstore.projection import Projection
from coterie.eventstore.sqlite.database import ReadConnections, Rows, publish_file, translating_errors
from coterie.eventstore.sqlite.replay import table_hash

Warn = Callable[[str], None]


def write_snapshot(connections: ReadConnections, projections: Sequence[Projection], path: Path) -> int:
    """Write what the views hold now, whole or not at all. Returns the id of the last event it includes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".partial")
    draft.unlink(missing_ok=True)
    try:
        last = _write(connections, projections, draft)
        publish_file(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)  # on a full disk a half-written file would only take room
        raise
    return last


def _write(readers: ReadConnections, views: Sequence[Projection], draft: Path) -> int:
    with translating_errors(draft), readers.snapshot() as source:
        target = apsw.Connection(str(draft))
        try:
            rows = Rows(target)
            rows.all("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")  # it gets its name when it is whole
            rows.run("BEGIN")
            rows.run(
                "CREATE TABLE held(view TEXT, fingerprint TEXT, position INTEGER, tbl TEXT, hash TEXT,"
                " PRIMARY KEY(view, tbl))"
            )
            positions: dict[str, int] = dict(source.all("SELECT name, position FROM projection"))
            for view in views:
                rows.run(view.schema)
                for table in view.tables:
                    _copy(source, rows, table)
                    told = (view.name, view.fingerprint, positions[view.name], table, table_hash(rows, table))
                    rows.run("INSERT INTO held VALUES (?, ?, ?, ?, ?)", told)
            rows.run("COMMIT")
        finally:
            target.close()
    return max(positions.values(), default=0)


def seed_from_snapshots(folder: Path, warn: Warn) -> Callable[[Projection, Rows], int]:
    """How a view begins from the newest good snapshot in a folder, for `Store.open(seed=…)`."""

    def seed(view: Projection, rows: Rows) -> int:
        for path in list_snapshots(folder):
            try:
                position = _read(path, view, rows)
            except (apsw.Error, _Damaged) as error:
                warn(f"The snapshot {path.name} is damaged ({error}) and is passed over.")
                continue
            if position:
                return position
        return 0

    return seed


def list_snapshots(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.snapshot"), reverse=True)


def prune_snapshots(folder: Path, keep: int) -> list[Path]:
    """Remove all but the newest; returns what was removed."""
    old = list_snapshots(folder)[keep:]
    for path in old:
        path.unlink(missing_ok=True)
    return old


class _Damaged(Exception):
    pass


def _read(path: Path, view: Projection, rows: Rows) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        source = Rows(connection)
        held = source.all("SELECT fingerprint, position, tbl, hash FROM held WHERE view = ?", (view.name,))
        if not held or any(fingerprint != view.fingerprint for fingerprint, *_ in held):
            return 0
        if {table for _, _, table, _ in held} != set(view.tables):
            raise _Damaged("a table is missing")
        for _, _, table, expected in held:
            if table_hash(source, table) != expected:
                raise _Damaged(f"the rows of {table} have changed")
        last = rows.one("SELECT coalesce(max(id), 0) FROM event")
        position = int(held[0][1])
        if last is None or position > last[0]:
            raise _Damaged("it knows events that the log does not have")
        for table in view.tables:
            _copy(source, rows, table)
        return position
    finally:
        connection.close()


def _copy(source: Rows, target: Rows, table: str) -> None:
    names = [name for (name,) in source.run("SELECT name FROM pragma_table_info(?)", (table,))]
    marks = ", ".join("?" * len(names))
    target.run(f"DELETE FROM {table}")
    rows: Iterable[tuple[int | float | str | bytes | None, ...]] = source.run(f"SELECT * FROM {table}")
    target.many(f"INSERT INTO {table} VALUES ({marks})", rows)
