"""Keeps the tables of all projections up to date, in the transactions that append events.

An append applies its events. A control event (rewind, supersede, reset) undoes events that became inactive and replays
those that became active: in the stream itself everything from the first affected event on, in other streams only
events that wrote the same rows. Projections are independent of each other, so each is handled separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

import apsw

from coterie.eventstore.events import COLUMNS, CONTROL_KINDS, AnyEvent, Forked, decode
from coterie.eventstore.projection import Projection
from coterie.eventstore.sqlite.database import Row, Rows
from coterie.eventstore.sqlite.lineage import Ranges, StreamLineage
from coterie.eventstore.sqlite.replay import CurrentEvent, Replayer, UndoJournal, active_events, projection_hash

Progress = Callable[[int, int], None]
"""Called from time to time with the number of events replayed and the total."""
IdsByKind = Mapping[str, Set[int]]
"""Kind → the ids of events of this kind."""
Seed = Callable[[Projection, Rows], int]
"""Fills a projection's empty tables from a snapshot and returns the id of its last event; 0 if there is none."""


class LiveProjections:
    """All projections. `on_active_changed` is called with the ids of events that became inactive and active."""

    def __init__(
        self,
        projections: Sequence[Projection],
        connection: apsw.Connection,
        on_active_changed: Callable[[set[int], set[int]], None] = lambda dropped, restored: None,
    ) -> None:
        self._on_active_changed = on_active_changed
        self._rows = Rows(connection)
        self._lineage = StreamLineage(self._rows)
        self._current = CurrentEvent(connection)
        self._live = [
            LiveProjection(projection, self._rows, self._lineage, self._current) for projection in projections
        ]
        self._touched: dict[LiveProjection, None] = {}
        """Those that the current transaction writes to; most transactions write to few."""
        self._by_kind: dict[str, list[LiveProjection]] = {}
        for live in self._live:
            for kind in live.kinds:
                self._by_kind.setdefault(kind, []).append(live)
        owners: dict[str, str] = {}
        for projection in projections:
            for table in projection.tables:
                if owners.setdefault(table, projection.name) != projection.name:
                    raise TypeError(f"The table {table} belongs to both {owners[table]} and {projection.name}.")
        self._rows.run("CREATE TEMP TABLE undone(event INTEGER PRIMARY KEY)")
        self._rows.run("CREATE TEMP TABLE replayed(event INTEGER PRIMARY KEY)")

    @property
    def lineage(self) -> StreamLineage:
        return self._lineage

    @property
    def projections(self) -> list[Projection]:
        return [live.projection for live in self._live]

    def open(self, progress: Progress | None = None, seed: Seed | None = None) -> list[str]:
        """Bring every projection up to date: from its position, from a snapshot (`seed`), or from the beginning.

        Returns the names of those that were not up to date.
        """
        self._drop_undeclared()
        outdated = [live for live in self._live if not live.is_current()]
        for live in outdated:
            live.prepare(seed)
        self._catch_up(outdated, progress)
        return [live.projection.name for live in outdated]

    def _drop_undeclared(self) -> None:
        """Remove the tables of projections that were renamed or removed since the file was last open.

        Every table of a projection has an undo journal, so a journal without a declared table marks a leftover.
        """
        if not self._live:
            return
        declared = {table for projection in self.projections for table in projection.tables}
        journals = self._rows.all("SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'undo_*'")
        for (journal,) in journals:
            table = journal.removeprefix("undo_")
            if table not in declared:
                self._rows.run(f"DROP TABLE {journal}; DROP TABLE IF EXISTS {table}")
        names = [projection.name for projection in self.projections]
        placeholders = ", ".join("?" * len(names))
        self._rows.run(f"DELETE FROM projection WHERE name NOT IN ({placeholders})", names)

    def begin(self) -> None:
        self._touched.clear()

    def apply(self, events: Iterable[AnyEvent]) -> None:
        """Apply new events, in the transaction that appends them."""
        for event in events:
            if event.kind in CONTROL_KINDS:
                self._apply_control(event)
                continue
            self._current.event = event.id
            handling = self._by_kind.get(event.kind, ())
            self._touch(handling)
            for live in handling:
                live.apply(event)
        self._current.event = 0

    def finish(self, position: int) -> None:
        """Update derived tables and store `position` as the last event applied."""
        for live in self._touched:
            live.update_derived()
        names = [live.projection.name for live in self._live]
        placeholders = ", ".join("?" * len(names))
        self._rows.run(f"UPDATE projection SET position = ? WHERE name IN ({placeholders})", (position, *names))

    def rebuild(self, progress: Progress | None = None) -> None:
        for live in self._live:
            live.reset()
        self._catch_up(self._live, progress)

    def hashes(self) -> dict[str, str]:
        return {live.projection.name: projection_hash(self._rows, live.projection) for live in self._live}

    def _catch_up(self, outdated: Sequence[LiveProjection], progress: Progress | None) -> None:
        """Apply the missing events to all of them in one pass over the log."""
        if not outdated:
            return
        start = min(live.position for live in outdated)
        kinds = frozenset[str]().union(*(live.kinds for live in outdated))
        total = last_event_id(self._rows) - start
        for event in active_events(self._rows, self._lineage, kinds, start):
            self._current.event = event.id
            for live in outdated:
                if event.id > live.position:
                    live.apply(event)
            if progress and event.id % 5_000 == 0:
                progress(event.id - start, total)
        self._current.event = 0
        for live in outdated:
            live.mark_current()

    def _touch(self, projections: Iterable[LiveProjection]) -> None:
        for live in projections:
            if live not in self._touched:
                self._touched[live] = None
                live.begin()

    def _apply_control(self, event: AnyEvent) -> None:
        """The active events changed: reapply them in every projection, then apply the control event itself."""
        self._touch(self._live)
        before, after = self._lineage.record(event)
        if isinstance(event.payload, Forked):
            self._fork(event, event.payload, after)
            return
        old, new = self._difference(event.stream, before, after)
        for live in self._live:
            live.reapply(live.handled(old), live.handled(new))
            self._current.event = event.id
            live.apply(event)
        before_ids, after_ids = set[int]().union(*old.values()), set[int]().union(*new.values())
        self._on_active_changed(before_ids - after_ids, after_ids - before_ids)

    def _fork(self, event: AnyEvent, fork: Forked, inherited: Ranges) -> None:
        now = self._lineage.active(fork.parent)
        origin = self._lineage.parent(fork.parent)
        if origin is not None:  # the parent's own fork event is not inherited and must not be undone for that
            inherited |= Ranges([(origin[1] + 1, origin[1] + 1)])
        touched = (now - inherited) | (inherited - now)
        if origin is not None and touched and touched.pairs[0][0] <= origin[1]:
            # The position lies in what the parent itself inherited, so its rows cannot be undone to it.
            self._current.event = event.id
            for live in self._live:
                live.apply(event)
            return
        old, new = self._difference(fork.parent, now, inherited)
        for live in self._live:
            live.fork(event, fork, live.handled(old), live.handled(new))

    def _difference(self, stream: str, before: Ranges, after: Ranges) -> tuple[IdsByKind, IdsByKind]:
        """The stream's own events from the first affected one on: the active ones before, and those after."""
        touched = (before - after) | (after - before)
        if not touched:
            return {}, {}
        first = touched.pairs[0][0]
        origin = self._lineage.parent(stream)
        if origin is not None:  # inherited events are applied by the fork event
            first = max(first, origin[1] + 1)
        old: dict[str, set[int]] = {}
        new: dict[str, set[int]] = {}
        tail = self._rows.run("SELECT id, seq, kind FROM event WHERE stream = ? AND seq >= ?", (stream, first))
        for event_id, seq, kind in tail:
            if seq in before:
                old.setdefault(kind, set()).add(event_id)
            if seq in after:
                new.setdefault(kind, set()).add(event_id)
        return old, new


class LiveProjection:
    """One projection with the undo journals of its tables."""

    def __init__(self, projection: Projection, rows: Rows, lineage: StreamLineage, current: CurrentEvent) -> None:
        self.projection = projection
        self._rows = rows
        self._lineage = lineage
        self._current = current
        self._replayer = Replayer([projection], rows, lineage)
        self._journals: list[UndoJournal] = []
        self._changed: dict[str, set[Row]] | None = {}
        if projection.has_derived and not projection.journaled:
            raise TypeError(f"The projection {projection.name} has derived tables, which need an undo journal.")
        self._floor = 0
        self.kinds = self._replayer.kinds
        self.position = 0

    def is_current(self) -> bool:
        """Read the stored position; True if the projection is up to date."""
        row = self._rows.one(
            "SELECT fingerprint, position, floor FROM projection WHERE name = ?", (self.projection.name,)
        )
        if row is None or row[0] != self.projection.fingerprint or row[1] > last_event_id(self._rows):
            self.position = -1
            return False
        self._attach()
        self.position, self._floor = row[1], row[2]
        return self.position == last_event_id(self._rows)

    def prepare(self, seed: Seed | None) -> None:
        """Prepare for catching up: from the stored position, else from a snapshot, else from the beginning."""
        if self.position < 0 or self._history_changed_after(self.position):
            self.reset(seed)

    def reset(self, seed: Seed | None = None) -> None:
        """Empty the tables, and fill them from a snapshot if `seed` finds one that is still valid."""
        self._current.event = 0
        for table in self.projection.tables:
            self._rows.run(f"DROP TABLE IF EXISTS {table}; DROP TABLE IF EXISTS undo_{table}")
        self._rows.run(self.projection.schema)
        position = seed(self.projection, self._rows) if seed else 0
        if position and self._history_changed_after(position):
            for table in self.projection.tables:
                self._rows.run(f"DELETE FROM {table}")
            position = 0
        self._attach()
        self.position = self._floor = position
        self._rows.run(
            "INSERT OR REPLACE INTO projection VALUES (?, ?, ?, ?)",
            (self.projection.name, self.projection.fingerprint, position, position),
        )

    def mark_current(self) -> None:
        self.position = last_event_id(self._rows)
        self._changed = None
        self._rows.run("UPDATE projection SET position = ? WHERE name = ?", (self.position, self.projection.name))
        if self.projection.has_derived:
            self.projection.update_derived(self._rows, None)

    def rebuild(self) -> None:
        """Rebuild this projection from the beginning of the log."""
        self.reset()
        for event in active_events(self._rows, self._lineage, self.kinds):
            self._current.event = event.id
            self.apply(event)
        self._current.event = 0
        self.mark_current()

    def begin(self) -> None:
        if self.projection.has_derived:
            self._changed = {}
            for journal in self._journals:
                journal.mark()

    def apply(self, event: AnyEvent) -> None:
        if event.kind in self.kinds:
            self._replayer.apply(event)

    def update_derived(self) -> None:
        if not self.projection.has_derived:
            return
        changed = self._changed
        if changed is not None:
            for journal in self._journals:
                changed.setdefault(journal.table, set()).update(journal.changed_keys())
            changed = {table: keys for table, keys in changed.items() if keys}
            if not changed:
                return
        self.projection.update_derived(self._rows, changed)

    def handled(self, events: IdsByKind) -> set[int]:
        """Those of the events that this projection has a handler for."""
        return set().union(*(ids for kind, ids in events.items() if kind in self.kinds))

    def reapply(self, old: set[int], new: set[int]) -> None:
        """Undo the events `old`, which were active, and apply the events `new`, which are active now."""
        if not old and not new:
            return
        if not self.projection.journaled or min(old | new) <= self._floor:  # older than the journal
            self.rebuild()
            return
        self._rows.run("SAVEPOINT reapply")
        undone = set(old)
        while conflicting := self._replay(undone, new):
            self._rows.run("ROLLBACK TO reapply")
            undone |= conflicting
            new = new | conflicting
        self._rows.run("RELEASE reapply")

    def fork(self, event: AnyEvent, fork: Forked, old: set[int], new: set[int]) -> None:
        """Copy the parent's rows as of the fork: undo the parent to there, copy the rows, and roll back.

        If that would undo more events than the fork inherits, the inherited events are replayed instead.
        """
        column, touched = self.projection.stream_column, old | new
        self._current.event = event.id
        if column is None or 2 * len(touched) > fork.at or (touched and min(touched) <= self._floor):
            self.apply(event)
            return
        changed = None if self._changed is None else {table: set(keys) for table, keys in self._changed.items()}
        positions = [journal.since for journal in self._journals]
        self._rows.run("SAVEPOINT fork")
        self.reapply(old, new)
        inherited = [journal.rows_of_stream(column, fork.parent) for journal in self._journals]
        self._rows.run("ROLLBACK TO fork; RELEASE fork")
        self._changed = changed
        self._current.event = event.id
        for journal, position, rows in zip(self._journals, positions, inherited, strict=True):
            journal.since = position
            journal.insert_for_stream(column, event.stream, rows)
        self._replayer.handle(event)

    def _replay(self, undone: set[int], new: set[int]) -> set[int]:
        self._fill("undone", undone)
        while sum(journal.include_later_writers() for journal in self._journals):
            pass
        dependent = {event for (event,) in self._rows.run("SELECT event FROM undone")} - undone
        self._current.event = 0
        for journal in self._journals:
            keys = journal.undo()
            if self._changed is not None:
                self._changed.setdefault(journal.table, set()).update(keys)
        replayed = new | dependent
        self._fill("replayed", replayed)
        sql = f"SELECT {COLUMNS} FROM event WHERE id IN (SELECT event FROM replayed) ORDER BY id"
        for record in self._rows.all(sql):
            if record[3] in self.kinds:
                self._current.event = record[0]
                self._replayer.apply(decode(record))
        self._current.event = 0
        conflicting: set[int] = set()
        for journal in self._journals:
            conflicting |= journal.later_writers()
        return conflicting

    def _attach(self) -> None:
        if not self.projection.journaled:
            for table in self.projection.tables:
                self._rows.run(f"DROP TABLE IF EXISTS undo_{table}")
            return
        self._journals = [UndoJournal(self._rows, table) for table in self.projection.tables]
        for journal in self._journals:
            if self.projection.stream_column is not None and not journal.has_column(self.projection.stream_column):
                raise TypeError(f"The projection table {journal.table} has no column {self.projection.stream_column}.")
            journal.create()
            journal.create_triggers()
        if self.projection.derived:
            self._rows.run(self.projection.derived)

    def _history_changed_after(self, position: int) -> bool:
        """Whether an event after `position` changed the active events before it, so that they must be replayed."""
        streams = self._rows.all(
            "SELECT DISTINCT stream FROM event WHERE id > ? AND kind IN (?, ?, ?, ?)", (position, *CONTROL_KINDS)
        )
        for (stream,) in streams:
            row = self._rows.one("SELECT max(seq) FROM event WHERE stream = ? AND id <= ?", (stream, position))
            if row is None or row[0] is None:
                continue
            then = self._lineage.active_at(stream, row[0])
            now = self._lineage.active(stream).up_to(row[0])
            if then != now:
                return True
        return False

    def _fill(self, table: str, events: set[int]) -> None:
        self._rows.run(f"DELETE FROM {table}")
        self._rows.many(f"INSERT INTO {table} VALUES (?)", [(event,) for event in events])


def last_event_id(rows: Rows) -> int:
    row = rows.one("SELECT coalesce(max(id), 0) FROM log")
    return row[0] if row else 0
