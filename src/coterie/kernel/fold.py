"""Folding: events go through the handlers of views, in order, and rows come out.

The same fold serves the live tables, a rebuild and a comparison aside; it knows nothing of journals.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import apsw

from coterie.kernel.control import CONTROL_KINDS, Forked
from coterie.kernel.database import Rows
from coterie.kernel.events import COLUMNS, AnyEvent, Event, decode
from coterie.kernel.lines import StreamLineage
from coterie.kernel.ranges import Ranges
from coterie.kernel.view import Projection

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
