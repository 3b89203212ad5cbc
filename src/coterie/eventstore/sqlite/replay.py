"""Replaying events through the handlers of projections, and the undo journal of their tables.

The same replay serves live tables, rebuilds and verification.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from coterie.eventstore.events import COLUMNS, CONTROL_KINDS, AnyEvent, Event, Forked, decode
from coterie.eventstore.projection import Projection
from coterie.eventstore.sqlite.database import Row, Rows
from coterie.eventstore.sqlite.lineage import Ranges, StreamLineage

_PAGE = 2_000
_Handler = Callable[[Rows, Event[Any]], None]


class Replayer:
    """Runs the handlers of some projections on a connection that has their tables."""

    def __init__(self, projections: Sequence[Projection], rows: Rows, lineage: StreamLineage) -> None:
        self._rows = rows
        self._lineage = lineage
        self._handlers: dict[str, list[_Handler]] = {}
        self._stream_handlers: dict[str, list[_Handler]] = {}
        for projection in projections:
            for kind, handler in projection.bound_handlers().items():
                self._handlers.setdefault(kind, []).append(handler)
                if projection.stream_column is not None:
                    self._stream_handlers.setdefault(kind, []).append(handler)

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that must be applied: those with a handler, and forks."""
        return frozenset((*self._handlers, Forked.kind))

    def apply(self, event: AnyEvent) -> None:
        if isinstance(event.payload, Forked) and self._stream_handlers:
            self._inherit(event, event.payload.at)
        self.handle(event)

    def handle(self, event: AnyEvent) -> None:
        for handler in self._handlers.get(event.kind, ()):
            handler(self._rows, event)

    def _inherit(self, fork: AnyEvent, at: int) -> None:
        """Apply the active inherited events of a fork as if they were its own."""
        for event in self._lineage.events(fork.stream, self._lineage.active(fork.stream).up_to(at)):
            if event.kind not in CONTROL_KINDS:
                inherited = event._replace(stream=fork.stream)
                for handler in self._stream_handlers.get(event.kind, ()):
                    handler(self._rows, inherited)


class ActiveStreams:
    """The active numbers of streams, read once for each stream."""

    def __init__(self, lineage: StreamLineage) -> None:
        self._lineage = lineage
        self._active: dict[str, Ranges] = {}

    def has(self, stream: str, seq: int) -> bool:
        ranges = self._active.get(stream)
        if ranges is None:
            ranges = self._active[stream] = self._lineage.active(stream)
        return seq in ranges


def active_events(rows: Rows, lineage: StreamLineage, kinds: Collection[str], after: int = 0) -> Iterator[AnyEvent]:
    """The active events of these kinds, in global order."""
    active = ActiveStreams(lineage)
    sql = f"SELECT {COLUMNS} FROM event WHERE id > ? AND kind IN ({', '.join('?' * len(kinds))})"
    while page := rows.all(f"{sql} ORDER BY id LIMIT {_PAGE}", (after, *kinds)):
        for record in page:
            if active.has(record[1], record[2]):
                yield decode(record)
        after = page[-1][0]


def table_hash(rows: Rows, table: str) -> str:
    """A hash of a table's rows in primary-key order: equal tables, equal hashes, on any machine."""
    info = rows.all("SELECT name, pk FROM pragma_table_info(?)", (table,))
    columns = ", ".join(f'"{name}"' for name, _ in info)
    key = ", ".join(f'"{name}"' for name, pk in sorted(info, key=lambda column: column[1]) if pk)
    digest = hashlib.sha256()
    for row in rows.run(f"SELECT {columns} FROM {table} ORDER BY {key}"):
        digest.update(repr(row).encode())
    return digest.hexdigest()


def projection_hash(rows: Rows, projection: Projection) -> str:
    hashes = "\n".join(f"{table} {table_hash(rows, table)}" for table in sorted(projection.tables))
    return hashlib.sha256(hashes.encode()).hexdigest()


class ReplayedTables:
    """The tables of some projections in a temporary database, filled by applying the events of a log in order."""

    def __init__(self, rows: Rows, projections: Sequence[Projection], lineage: StreamLineage) -> None:
        self.rows = rows
        self._active = ActiveStreams(lineage)
        self._replayer = Replayer(projections, rows, lineage)
        self.kinds = self._replayer.kinds

    def apply(self, event: AnyEvent) -> None:
        if event.kind in self.kinds and self._active.has(event.stream, event.seq):
            self._replayer.apply(event)


@contextmanager
def replayed_tables(projections: Sequence[Projection], source: Rows) -> Iterator[ReplayedTables]:
    """Empty tables of the projections for a replay of the log `source`."""
    connection = apsw.Connection("")  # on the disk if it becomes large
    try:
        rows = Rows(connection)
        rows.run("PRAGMA cache_size = -65536; PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF").fetchall()
        for projection in projections:
            rows.run(projection.schema)
        rows.run("BEGIN")
        yield ReplayedTables(rows, projections, StreamLineage(source))
    finally:
        connection.close()


def replayed_hash(projection: Projection, source: Rows) -> str:
    """Replay the whole log into a temporary database and return the hash of the result."""
    with replayed_tables([projection], source) as tables:
        for event in active_events(source, StreamLineage(source), tables.kinds):
            tables.apply(event)
        return projection_hash(tables.rows, projection)


class CurrentEvent:
    """The id of the event that is being applied, for the triggers. Writes while it is 0 cannot be undone."""

    __slots__ = ("event",)

    def __init__(self, connection: apsw.Connection) -> None:
        self.event = 0
        connection.create_scalar_function("current_event", self._current, 0)

    def _current(self, *_: object) -> int:
        return self.event


class UndoJournal:
    """The undo journal of one table, kept by triggers that exist on the writing connection only.

    For every row that an event inserts, changes or deletes, a second table receives the previous row. Undoing events
    takes a few statements whatever the handlers did, at a cost proportional to the events undone.
    """

    def __init__(self, rows: Rows, table: str) -> None:
        self._rows = rows
        self.table = table
        info = rows.all("SELECT name, pk FROM pragma_table_info(?)", (table,))
        self._columns = [name for name, _ in info]
        self._key = [name for name, pk in sorted(info, key=lambda column: column[1]) if pk]
        if not self._key:
            raise TypeError(f"The projection table {table} needs a primary key.")
        self._journal = f"undo_{table}"
        self.since = 0

    def create(self) -> None:
        columns = ", ".join(f'"{name}"' for name in self._columns)
        self._rows.run(
            f"CREATE TABLE IF NOT EXISTS {self._journal}"
            f"(_n INTEGER PRIMARY KEY, _event INTEGER NOT NULL, _was INTEGER NOT NULL, {columns});"
            f"CREATE INDEX IF NOT EXISTS {self._journal}_event ON {self._journal}(_event)"
        )

    def rows_of_stream(self, column: str, stream: str) -> list[Row]:
        return self._rows.all(f'SELECT {_names(self._columns)} FROM {self.table} WHERE "{column}" = ?', (stream,))

    def insert_for_stream(self, column: str, stream: str, rows: list[Row]) -> None:
        """Insert rows of another stream as rows of this one."""
        index = self._columns.index(column)
        placeholders = ", ".join("?" * len(self._columns))
        moved = ((*row[:index], stream, *row[index + 1 :]) for row in rows)
        self._rows.many(f"INSERT INTO {self.table}({_names(self._columns)}) VALUES ({placeholders})", moved)

    def has_column(self, column: str) -> bool:
        return column in self._columns

    def create_triggers(self) -> None:
        """Start journaling. Repeated calls on one connection have no effect."""
        columns = _names(self._columns)
        new_key, old_all = _names(self._key, "NEW"), _names(self._columns, "OLD")
        moved = " OR ".join(f'NEW."{name}" IS NOT OLD."{name}"' for name in self._key)
        inserted = (
            f"INSERT INTO {self._journal}(_event, _was, {_names(self._key)}) VALUES (current_event(), 0, {new_key});"
        )
        replaced = f"INSERT INTO {self._journal}(_event, _was, {columns}) VALUES (current_event(), 1, {old_all});"
        for name, moment, body in (
            ("insert", "INSERT ON", inserted),
            ("delete", "DELETE ON", replaced),
            ("update", "UPDATE ON", replaced),
        ):
            self._trigger(name, moment, body)
        self._trigger("move", "UPDATE ON", inserted, f"WHEN {moved}")

    def _trigger(self, name: str, moment: str, body: str, when: str = "") -> None:
        self._rows.run(
            f"CREATE TEMP TRIGGER IF NOT EXISTS {self._journal}_{name} AFTER {moment} main.{self.table}"
            f" {when} BEGIN {body} END"
        )

    def mark(self) -> None:
        """Remember the current position in `since`, for `changed_keys`."""
        row = self._rows.one(f"SELECT coalesce(max(_n), 0) FROM {self._journal}")
        self.since = row[0] if row else 0

    def changed_keys(self) -> set[Row]:
        """The primary keys of the rows written since `mark`."""
        sql = f"SELECT DISTINCT {_names(self._key)} FROM {self._journal} WHERE _n > ?"
        return set(self._rows.all(sql, (self.since,)))

    def include_later_writers(self) -> int:
        """Add to `undone` the later events that wrote the same rows. Returns how many were added."""
        self._rows.run(f"INSERT INTO undone {self._later_writers_of('undone')}")
        return self._rows.changes()

    def later_writers(self) -> set[int]:
        """Later events outside `replayed` that wrote a row which a replayed event wrote again now."""
        return {event for (event,) in self._rows.run(self._later_writers_of("replayed"))}

    def _later_writers_of(self, events: str) -> str:
        # Grouped by row first: a row that every event writes would make a plain self-join quadratic.
        key = _names(self._key)
        same_row = " AND ".join(f'later."{name}" = own."{name}"' for name in self._key)
        return (
            f"SELECT DISTINCT later._event FROM {self._journal} later JOIN"
            f" (SELECT {key}, min(_event) AS first FROM {self._journal}"
            f" WHERE _event IN (SELECT event FROM {events}) GROUP BY {key}) own"
            f" ON {same_row} AND later._event > own.first"
            f" WHERE later._event > (SELECT min(event) FROM {events})"
            f" AND later._event NOT IN (SELECT event FROM {events})"
        )

    def undo(self) -> set[Row]:
        """Restore every row that the undone events wrote to its state before them. Returns the keys."""
        key, columns = _names(self._key), _names(self._columns)
        own = f"FROM {self._journal} WHERE _event IN (SELECT event FROM undone)"
        keys = set(self._rows.all(f"SELECT DISTINCT {key} {own}"))
        if keys:
            self._rows.run(f"DELETE FROM {self.table} WHERE ({key}) IN (SELECT {key} {own})")
            self._rows.run(
                f"INSERT INTO {self.table}({columns}) SELECT {columns} FROM {self._journal}"
                f" WHERE _n IN (SELECT min(_n) {own} GROUP BY {key}) AND _was"
            )
            self._rows.run(f"DELETE {own} OR _event = 0")
            row = self._rows.one(f"SELECT coalesce(max(_n), 0) FROM {self._journal}")
            self.since = min(self.since, row[0] if row else 0)
        return keys


def _names(columns: Iterable[str], owner: str = "") -> str:
    prefix = f"{owner}." if owner else ""
    return ", ".join(f'{prefix}"{name}"' for name in columns)
