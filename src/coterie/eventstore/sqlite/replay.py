"""Folding: events go through the handlers of views, in order, and rows come out.

The same fold serves the live tables, a rebuild and a comparison aside; it knows nothing of journals.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import apsw

from coterie.eventstore.events import COLUMNS, CONTROL_KINDS, AnyEvent, Event, Forked, decode
from coterie.eventstore.projection import Projection
from coterie.eventstore.ranges import Ranges
from coterie.eventstore.sqlite.database import Row, Rows
from coterie.eventstore.sqlite.lineage import StreamLineage

_PAGE = 2_000
_Handler = Callable[[Rows, Event[Any]], None]


class Replayer:
    """The handlers of some views, ready to be run on a connection that holds their tables."""

    def __init__(self, views: Sequence[Projection], rows: Rows, lines: StreamLineage) -> None:
        self._rows = rows
        self._lines = lines
        self._handlers: dict[str, list[_Handler]] = {}
        self._inheriting: dict[str, list[_Handler]] = {}
        for view in views:
            for kind, handler in view.bound_handlers().items():
                self._handlers.setdefault(kind, []).append(handler)
                if view.stream_column is not None:
                    self._inheriting.setdefault(kind, []).append(handler)

    @property
    def kinds(self) -> frozenset[str]:
        """What must be brought here: the kinds that have a handler, and forks, which are folded by themselves."""
        return frozenset((*self._handlers, Forked.kind))

    def apply(self, event: AnyEvent) -> None:
        if isinstance(event.payload, Forked) and self._inheriting:
            self._inherit(event, event.payload.at)
        self.handle(event)

    def handle(self, event: AnyEvent) -> None:
        for handler in self._handlers.get(event.kind, ()):
            handler(self._rows, event)

    def _inherit(self, fork: AnyEvent, at: int) -> None:
        """Fold what the new line inherits and still counts in it, as if it had happened there."""
        for event in self._lines.events(fork.stream, self._lines.active(fork.stream).up_to(at)):
            if event.kind not in CONTROL_KINDS:
                addressed = event._replace(stream=fork.stream)
                for handler in self._inheriting.get(event.kind, ()):
                    handler(self._rows, addressed)


def active_events(rows: Rows, lines: StreamLineage, kinds: Collection[str], after: int = 0) -> Iterator[AnyEvent]:
    """The events of these kinds that count in their own stream, in global order."""
    counted: dict[str, Ranges] = {}
    while page := rows.all(f"SELECT {COLUMNS} FROM event WHERE id > ? ORDER BY id LIMIT {_PAGE}", (after,)):
        for record in page:
            _, stream, seq, kind, *_ = record
            if kind not in kinds:
                continue
            ranges = counted.get(stream)
            if ranges is None:
                ranges = counted[stream] = lines.active(stream)
            if seq in ranges:
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
    told = "\n".join(f"{table} {table_hash(rows, table)}" for table in sorted(projection.tables))
    return hashlib.sha256(told.encode()).hexdigest()


def replayed_hash(projection: Projection, source: Rows) -> str:
    """Fold the whole log into a throw-away database and return the hash of what came out."""
    connection = apsw.Connection(":memory:")
    try:
        rows = Rows(connection)
        rows.run(projection.schema)
        lines = StreamLineage(source)
        fold = Replayer([projection], rows, lines)
        rows.run("BEGIN")
        for event in active_events(source, lines, fold.kinds):
            fold.apply(event)
        rows.run("COMMIT")
        return projection_hash(rows, projection)
    finally:
        connection.close()


# An undo journal for the tables of views, kept by triggers inside SQLite.
#
# Beside each table stands a twin that receives, for every row an event inserts, changes or deletes, what the row was
# before. Taking events back is then a few statements whatever the handlers did, and costs what the tail
# costs, not what the history costs. The triggers are temporary: they exist on the writing connection alone.


class CurrentEvent:
    """Which event is being folded right now; the triggers ask. 0 means none: what is written then is not kept."""

    __slots__ = ("event",)

    def __init__(self, connection: apsw.Connection) -> None:
        self.event = 0
        connection.create_scalar_function("folding", self._current, 0)

    def _current(self, *_: object) -> int:
        return self.event


class UndoJournal:
    """The undo twin of one table."""

    def __init__(self, rows: Rows, table: str) -> None:
        self._rows = rows
        self.table = table
        info = rows.all("SELECT name, pk FROM pragma_table_info(?)", (table,))
        self._columns = [name for name, _ in info]
        self._key = [name for name, pk in sorted(info, key=lambda column: column[1]) if pk]
        if not self._key:
            raise TypeError(f"The view table {table} needs a primary key.")
        self._twin = f"undo_{table}"
        self.since = 0

    def create(self) -> None:
        columns = ", ".join(f'"{name}"' for name in self._columns)
        self._rows.run(
            f"CREATE TABLE IF NOT EXISTS {self._twin}"
            f"(_n INTEGER PRIMARY KEY, _event INTEGER NOT NULL, _was INTEGER NOT NULL, {columns});"
            f"CREATE INDEX IF NOT EXISTS {self._twin}_event ON {self._twin}(_event)"
        )

    def rows_of_stream(self, column: str, stream: str) -> list[Row]:
        return self._rows.all(f'SELECT {_names(self._columns)} FROM {self.table} WHERE "{column}" = ?', (stream,))

    def insert_for_stream(self, column: str, stream: str, rows: list[Row]) -> None:
        """Insert rows that were another stream's as this stream's own."""
        place = self._columns.index(column)
        marks = ", ".join("?" * len(self._columns))
        moved = ((*row[:place], stream, *row[place + 1 :]) for row in rows)
        self._rows.many(f"INSERT INTO {self.table}({_names(self._columns)}) VALUES ({marks})", moved)

    def has_column(self, column: str) -> bool:
        return column in self._columns

    def create_triggers(self) -> None:
        """Start journaling. Calls nest nothing: a table is watched once per connection."""
        columns = _names(self._columns)
        new_key, old_all = _names(self._key, "NEW"), _names(self._columns, "OLD")
        moved = " OR ".join(f'NEW."{name}" IS NOT OLD."{name}"' for name in self._key)
        inserted = f"INSERT INTO {self._twin}(_event, _was, {_names(self._key)}) VALUES (folding(), 0, {new_key});"
        replaced = f"INSERT INTO {self._twin}(_event, _was, {columns}) VALUES (folding(), 1, {old_all});"
        for name, moment, body in (
            ("insert", "INSERT ON", inserted),
            ("delete", "DELETE ON", replaced),
            ("update", "UPDATE ON", replaced),
        ):
            self._trigger(name, moment, body)
        self._trigger("move", "UPDATE ON", inserted, f"WHEN {moved}")

    def _trigger(self, name: str, moment: str, body: str, when: str = "") -> None:
        self._rows.run(
            f"CREATE TEMP TRIGGER IF NOT EXISTS {self._twin}_{name} AFTER {moment} main.{self.table}"
            f" {when} BEGIN {body} END"
        )

    def mark(self) -> None:
        """Remember this moment in `since`; `changed` speaks of what came after it."""
        row = self._rows.one(f"SELECT coalesce(max(_n), 0) FROM {self._twin}")
        self.since = row[0] if row else 0

    def changed_keys(self) -> set[Row]:
        """The primary keys that were written since the mark."""
        sql = f"SELECT DISTINCT {_names(self._key)} FROM {self._twin} WHERE _n > ?"
        return set(self._rows.all(sql, (self.since,)))

    def include_later_writers(self) -> int:
        """Add to `taken` the later events that wrote rows which taken events wrote. Returns how many joined."""
        self._rows.run(f"INSERT INTO taken {self._later_writers_of('taken')}")
        return self._rows.changes()

    def later_writers(self) -> set[int]:
        """Events outside `replayed` that had already written, later, a row that a replayed event wrote now."""
        return {event for (event,) in self._rows.run(self._later_writers_of("replayed"))}

    def _later_writers_of(self, events: str) -> str:
        # Grouped by row first: a row that every event writes would make a plain self-join quadratic.
        key = _names(self._key)
        same_row = " AND ".join(f'later."{name}" = mine."{name}"' for name in self._key)
        return (
            f"SELECT DISTINCT later._event FROM {self._twin} later JOIN"
            f" (SELECT {key}, min(_event) AS first FROM {self._twin}"
            f" WHERE _event IN (SELECT event FROM {events}) GROUP BY {key}) mine"
            f" ON {same_row} AND later._event > mine.first"
            f" WHERE later._event > (SELECT min(event) FROM {events})"
            f" AND later._event NOT IN (SELECT event FROM {events})"
        )

    def undo(self) -> set[Row]:
        """Put every row that taken events wrote back to what it was before them. Returns the keys."""
        key, columns = _names(self._key), _names(self._columns)
        mine = f"FROM {self._twin} WHERE _event IN (SELECT event FROM taken)"
        keys = set(self._rows.all(f"SELECT DISTINCT {key} {mine}"))
        if keys:
            self._rows.run(f"DELETE FROM {self.table} WHERE ({key}) IN (SELECT {key} {mine})")
            self._rows.run(
                f"INSERT INTO {self.table}({columns}) SELECT {columns} FROM {self._twin}"
                f" WHERE _n IN (SELECT min(_n) {mine} GROUP BY {key}) AND _was"
            )
            self._rows.run(f"DELETE {mine} OR _event = 0")
            row = self._rows.one(f"SELECT coalesce(max(_n), 0) FROM {self._twin}")
            self.since = min(self.since, row[0] if row else 0)
        return keys


def _names(columns: Iterable[str], owner: str = "") -> str:
    prefix = f"{owner}." if owner else ""
    return ", ".join(f'{prefix}"{name}"' for name in columns)
