"""The live tables of all views: kept in step with the log, in its transactions.

An append folds its events. A control event (rewind, supersede, reset) takes back what no longer counts and replays
what counts again: in the stream itself everything from the first touched event on, in other streams only events that
wrote the same rows. Views are independent of each other, so each is mended by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import apsw

from coterie.eventstore.events import COLUMNS, CONTROL_KINDS, AnyEvent, Forked, decode
from coterie.eventstore.projection import Projection
from coterie.eventstore.ranges import Ranges
from coterie.eventstore.sqlite.database import Row, Rows
from coterie.eventstore.sqlite.lineage import StreamLineage
from coterie.eventstore.sqlite.replay import CurrentEvent, Replayer, UndoJournal, active_events, projection_hash

Progress = Callable[[int, int], None]
"""Called now and then with how many events were folded, and how many there are."""


Seed = Callable[[Projection, Rows], int]
"""Fills a view's empty tables from a snapshot and returns the id of its last event; 0 if there is none."""


class LiveProjections:
    def __init__(
        self,
        projections: Sequence[Projection],
        connection: apsw.Connection,
        recounted: Callable[[set[int], set[int]], None] = lambda dropped, restored: None,
    ) -> None:
        self._recounted = recounted
        self._rows = Rows(connection)
        self._lines = StreamLineage(self._rows)
        self._folding = CurrentEvent(connection)
        self._live = [LiveProjection(view, self._rows, self._lines, self._folding) for view in projections]
        self._touched: dict[LiveProjection, None] = {}
        """By the transaction under way; most leave most views alone."""
        self._interested: dict[str, list[LiveProjection]] = {}
        for live in self._live:
            for kind in live.kinds:
                self._interested.setdefault(kind, []).append(live)
        owners: dict[str, str] = {}
        for view in projections:
            for table in view.tables:
                if owners.setdefault(table, view.name) != view.name:
                    raise TypeError(f"The table {table} belongs to both {owners[table]} and {view.name}.")
        self._rows.run("CREATE TEMP TABLE taken(event INTEGER PRIMARY KEY)")
        self._rows.run("CREATE TEMP TABLE replayed(event INTEGER PRIMARY KEY)")

    @property
    def lineage(self) -> StreamLineage:
        return self._lines

    @property
    def projections(self) -> list[Projection]:
        return [live.projection for live in self._live]

    def open(self, progress: Progress | None = None, seed: Seed | None = None) -> list[str]:
        """Make every view current: from where it stands, from a snapshot (`seed`), or from the beginning.

        Returns the names of the views that had to be folded from further back than where they stood.
        """
        self._drop_undeclared()
        behind = [live for live in self._live if not live.is_current()]
        for live in behind:
            live.prepare(seed)
        self._catch_up(behind, progress)
        return [live.projection.name for live in behind]

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
        marks = ", ".join("?" * len(names))
        self._rows.run(f"DELETE FROM projection WHERE name NOT IN ({marks})", names)

    def begin(self) -> None:
        self._touched.clear()

    def apply(self, events: Iterable[AnyEvent]) -> None:
        """Fold fresh events. To be called in the transaction that recorded them."""
        for event in events:
            if event.kind in CONTROL_KINDS:
                self._turn(event)
                continue
            self._folding.event = event.id
            interested = self._interested.get(event.kind, ())
            self._touch(interested)
            for live in interested:
                live.apply(event)
        self._folding.event = 0

    def finish(self, position: int) -> None:
        """All that was recorded is folded, up to `position`."""
        for live in self._touched:
            live.update_derived()
        names = [live.projection.name for live in self._live]
        marks = ", ".join("?" * len(names))
        self._rows.run(f"UPDATE projection SET position = ? WHERE name IN ({marks})", (position, *names))

    def rebuild(self, progress: Progress | None = None) -> None:
        for live in self._live:
            live.reset()
        self._catch_up(self._live, progress)

    def hashes(self) -> dict[str, str]:
        return {live.projection.name: projection_hash(self._rows, live.projection) for live in self._live}

    def _catch_up(self, behind: Sequence[LiveProjection], progress: Progress | None) -> None:
        """Fold on, in one pass over the log for all of them."""
        if not behind:
            return
        start = min(live.position for live in behind)
        kinds = frozenset[str]().union(*(live.kinds for live in behind))
        total = last_event_id(self._rows) - start
        for event in active_events(self._rows, self._lines, kinds, start):
            self._folding.event = event.id
            for live in behind:
                if event.id > live.position:
                    live.apply(event)
            if progress and event.id % 5_000 == 0:
                progress(event.id - start, total)
        self._folding.event = 0
        for live in behind:
            live.mark_current()

    def _touch(self, views: Iterable[LiveProjection]) -> None:
        for live in views:
            if live not in self._touched:
                self._touched[live] = None
                live.begin()

    def _turn(self, event: AnyEvent) -> None:
        """Which events count has changed: mend every view, then let it fold the control event itself."""
        self._touch(self._live)
        before, after = self._lines.record(event)
        if isinstance(event.payload, Forked):
            self._fork(event, event.payload, after)
            return
        old, new = self._difference(event.stream, before, after)
        for live in self._live:
            live.reapply(old, new)
            self._folding.event = event.id
            live.apply(event)
        self._recounted(old - new, new - old)

    def _fork(self, event: AnyEvent, fork: Forked, inherited: Ranges) -> None:
        now = self._lines.active(fork.parent)
        origin = self._lines.parent(fork.parent)
        if origin is not None:  # the event that made the parent is not inherited, and is not taken back for it
            inherited |= Ranges([(origin[1] + 1, origin[1] + 1)])
        touched = (now - inherited) | (inherited - now)
        if origin is not None and touched and touched.pairs[0][0] <= origin[1]:
            # The moment lies in what the parent itself inherited, so its rows cannot be mended back to it.
            self._folding.event = event.id
            for live in self._live:
                live.apply(event)
            return
        old, new = self._difference(fork.parent, now, inherited)
        for live in self._live:
            live.fork(event, fork, old, new)

    def _difference(self, stream: str, before: Ranges, after: Ranges) -> tuple[set[int], set[int]]:
        """The stream's own events from the first that is touched on: those that counted, and those that count."""
        touched = (before - after) | (after - before)
        if not touched:
            return set(), set()
        first = touched.pairs[0][0]
        origin = self._lines.parent(stream)
        if origin is not None:  # an inherited event is folded by the event that made the line
            first = max(first, origin[1] + 1)
        tail = self._rows.all("SELECT id, seq FROM event WHERE stream = ? AND seq >= ?", (stream, first))
        old = {event_id for event_id, seq in tail if seq in before}
        new = {event_id for event_id, seq in tail if seq in after}
        return old, new


class LiveProjection:
    """One view with its journals."""

    def __init__(self, view: Projection, rows: Rows, lines: StreamLineage, folding: CurrentEvent) -> None:
        self.projection = view
        self._rows = rows
        self._lines = lines
        self._folding = folding
        self._fold = Replayer([view], rows, lines)
        self._journals: list[UndoJournal] = []
        self._changed: dict[str, set[Row]] | None = {}
        self._floor = 0
        self.kinds = self._fold.kinds
        self.position = 0

    def is_current(self) -> bool:
        """Look where the tables stand; True if nothing is to be done."""
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
        """Get ready to fold on: from where the tables stand, else from a snapshot, else from nothing."""
        if self.position < 0 or self._reaches_back(self.position):
            self.reset(seed)

    def reset(self, seed: Seed | None = None) -> None:
        """Throw the tables away, and begin from a snapshot if `seed` finds one that still holds."""
        self._folding.event = 0
        for table in self.projection.tables:
            self._rows.run(f"DROP TABLE IF EXISTS {table}; DROP TABLE IF EXISTS undo_{table}")
        self._rows.run(self.projection.schema)
        position = seed(self.projection, self._rows) if seed else 0
        if position and self._reaches_back(position):
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
        """Fold this one view again from the beginning."""
        self.reset()
        for event in active_events(self._rows, self._lines, self.kinds):
            self._folding.event = event.id
            self.apply(event)
        self._folding.event = 0
        self.mark_current()

    def begin(self) -> None:
        if self.projection.has_derived:
            self._changed = {}
            for journal in self._journals:
                journal.mark()

    def apply(self, event: AnyEvent) -> None:
        if event.kind in self.kinds:
            self._fold.apply(event)

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

    def reapply(self, old: set[int], new: set[int]) -> None:
        """Events `old` counted and are taken back; events `new` count and are folded in their place."""
        if not old and not new:
            return
        if min(old | new) <= self._floor:  # the journal does not reach back that far
            self.rebuild()
            return
        self._rows.run("SAVEPOINT mend")
        taken = set(old)
        while overtaken := self._replay(taken, new):
            self._rows.run("ROLLBACK TO mend")
            taken |= overtaken
            new = new | overtaken
        self._rows.run("RELEASE mend")

    def fork(self, event: AnyEvent, fork: Forked, old: set[int], new: set[int]) -> None:
        """Give a new line the parent's rows as they were: where the parent stands is mended back, copied, and left.

        What inherits little, or from further back than it is long, is folded instead.
        """
        column, touched = self.projection.stream_column, old | new
        self._folding.event = event.id
        if column is None or 2 * len(touched) > fork.at or (touched and min(touched) <= self._floor):
            self.apply(event)
            return
        changed = None if self._changed is None else {table: set(keys) for table, keys in self._changed.items()}
        marks = [journal.since for journal in self._journals]
        self._rows.run("SAVEPOINT fork")
        self.reapply(old, new)
        inherited = [journal.rows_of_stream(column, fork.parent) for journal in self._journals]
        self._rows.run("ROLLBACK TO fork; RELEASE fork")
        self._changed = changed
        self._folding.event = event.id
        for journal, mark, rows in zip(self._journals, marks, inherited, strict=True):
            journal.since = mark
            journal.insert_for_stream(column, event.stream, rows)
        self._fold.handle(event)

    def _replay(self, taken: set[int], new: set[int]) -> set[int]:
        self._fill("taken", taken)
        while sum(journal.include_later_writers() for journal in self._journals):
            pass
        joined = {event for (event,) in self._rows.run("SELECT event FROM taken")} - taken
        self._folding.event = 0
        for journal in self._journals:
            keys = journal.undo()
            if self._changed is not None:
                self._changed.setdefault(journal.table, set()).update(keys)
        replayed = new | joined
        self._fill("replayed", replayed)
        sql = f"SELECT {COLUMNS} FROM event WHERE id IN (SELECT event FROM replayed) ORDER BY id"
        for record in self._rows.all(sql):
            if record[3] in self.kinds:
                self._folding.event = record[0]
                self._fold.apply(decode(record))
        self._folding.event = 0
        overtaken: set[int] = set()
        for journal in self._journals:
            overtaken |= journal.later_writers()
        return overtaken

    def _attach(self) -> None:
        self._journals = [UndoJournal(self._rows, table) for table in self.projection.tables]
        for journal in self._journals:
            if self.projection.stream_column is not None and not journal.has_column(self.projection.stream_column):
                raise TypeError(f"The view table {journal.table} has no column {self.projection.stream_column}.")
            journal.create()
            journal.create_triggers()
        if self.projection.derived:
            self._rows.run(self.projection.derived)

    def _reaches_back(self, position: int) -> bool:
        """Whether an event after `position` changed what counts up to it, so that folding on would be wrong."""
        streams = self._rows.all(
            "SELECT DISTINCT stream FROM event WHERE id > ? AND kind IN (?, ?, ?, ?)", (position, *CONTROL_KINDS)
        )
        for (stream,) in streams:
            row = self._rows.one("SELECT max(seq) FROM event WHERE stream = ? AND id <= ?", (stream, position))
            if row is None or row[0] is None:
                continue
            then = self._lines.active_at(stream, row[0])
            now = self._lines.active(stream).up_to(row[0])
            if then != now:
                return True
        return False

    def _fill(self, table: str, events: set[int]) -> None:
        self._rows.run(f"DELETE FROM {table}")
        self._rows.many(f"INSERT INTO {table} VALUES (?)", [(event,) for event in events])


def last_event_id(rows: Rows) -> int:
    row = rows.one("SELECT coalesce(max(id), 0) FROM event")
    return row[0] if row else 0
