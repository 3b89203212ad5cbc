"""The live tables of all views: kept in step with the log, in its transactions.

An append folds its events. A control event (rewind, supersede, reset) takes back what no longer counts and replays
what counts again: in the stream itself everything from the first touched event on, in other streams only events that
wrote the same rows. Views are independent of each other, so each is mended by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import apsw

from coterie.kernel.control import CONTROL, Forked
from coterie.kernel.database import Row, Rows
from coterie.kernel.events import COLUMNS, AnyEvent, decode
from coterie.kernel.fold import Fold, counted_events, view_hash
from coterie.kernel.journal import Folding, Journal
from coterie.kernel.lines import Lines
from coterie.kernel.view import View

Progress = Callable[[int, int], None]
"""Called now and then with how many events were folded, and how many there are."""


Seed = Callable[[View, Rows], int]
"""Fills a view's empty tables from a snapshot and returns the id of its last event; 0 if there is none."""


class Views:
    def __init__(
        self,
        views: Sequence[View],
        connection: apsw.Connection,
        recounted: Callable[[set[int], set[int]], None] = lambda dropped, restored: None,
    ) -> None:
        self._recounted = recounted
        self._rows = Rows(connection)
        self._lines = Lines(self._rows)
        self._folding = Folding(connection)
        self._live = [LiveView(view, self._rows, self._lines, self._folding) for view in views]
        owners: dict[str, str] = {}
        for view in views:
            for table in view.tables:
                if owners.setdefault(table, view.name) != view.name:
                    raise TypeError(f"The table {table} belongs to both {owners[table]} and {view.name}.")
        self._rows.run("CREATE TEMP TABLE taken(event INTEGER PRIMARY KEY)")
        self._rows.run("CREATE TEMP TABLE replayed(event INTEGER PRIMARY KEY)")

    @property
    def lines(self) -> Lines:
        return self._lines

    @property
    def views(self) -> list[View]:
        return [live.view for live in self._live]

    def open(self, progress: Progress | None = None, seed: Seed | None = None) -> list[str]:
        """Make every view current: from where it stands, from a snapshot (`seed`), or from the beginning.

        Returns the names of the views that had to be folded from further back than where they stood.
        """
        behind = [live for live in self._live if not live.is_current()]
        for live in behind:
            live.prepare(seed)
        self._catch_up(behind, progress)
        return [live.view.name for live in behind]

    def begin(self) -> None:
        for live in self._live:
            live.begin()

    def apply(self, events: Iterable[AnyEvent]) -> None:
        """Fold fresh events. To be called in the transaction that recorded them."""
        for event in events:
            self._folding.event = event.id
            if event.kind in CONTROL:
                self._turn(event)
            for live in self._live:
                live.apply(event)
        self._folding.event = 0

    def settle(self, position: int) -> None:
        for live in self._live:
            live.settle()
        for live in self._live:
            self._rows.run("UPDATE view SET position = ? WHERE name = ?", (position, live.view.name))

    def rebuild(self, progress: Progress | None = None) -> None:
        for live in self._live:
            live.start_over()
        self._catch_up(self._live, progress)

    def hashes(self) -> dict[str, str]:
        return {live.view.name: view_hash(self._rows, live.view) for live in self._live}

    def _catch_up(self, behind: Sequence[LiveView], progress: Progress | None) -> None:
        """Fold on, in one pass over the log for all of them."""
        if not behind:
            return
        start = min(live.position for live in behind)
        kinds = frozenset[str]().union(*(live.kinds for live in behind))
        total = last_event(self._rows) - start
        for event in counted_events(self._rows, self._lines, kinds, start):
            self._folding.event = event.id
            for live in behind:
                if event.id > live.position:
                    live.apply(event)
            if progress and event.id % 5_000 == 0:
                progress(event.id - start, total)
        self._folding.event = 0
        for live in behind:
            live.caught_up()

    def _turn(self, event: AnyEvent) -> None:
        """Which events count has changed: mend every view."""
        before, after = self._lines.record(event)
        if isinstance(event.payload, Forked):
            return
        touched = (before - after) | (after - before)
        if not touched:
            return
        first = touched.pairs[0][0]
        origin = self._lines.parent(event.stream)
        if origin is not None:  # an inherited event is folded by the event that made the line
            first = max(first, origin[1] + 1)
        tail = self._rows.all(
            "SELECT id, seq FROM event WHERE stream = ? AND seq >= ? AND seq < ?",
            (event.stream, first, event.seq),
        )
        old = {event_id for event_id, seq in tail if seq in before}
        new = {event_id for event_id, seq in tail if seq in after}
        for live in self._live:
            live.mend(old, new)
        self._recounted(old - new, new - old)
        self._folding.event = event.id


class LiveView:
    """One view with its journals."""

    def __init__(self, view: View, rows: Rows, lines: Lines, folding: Folding) -> None:
        self.view = view
        self._rows = rows
        self._lines = lines
        self._folding = folding
        self._fold = Fold([view], rows, lines)
        self._journals: list[Journal] = []
        self._changed: dict[str, set[Row]] | None = {}
        self._floor = 0
        self.kinds = self._fold.kinds
        self.position = 0

    def is_current(self) -> bool:
        """Look where the tables stand; True if nothing is to be done."""
        row = self._rows.one("SELECT fingerprint, position, floor FROM view WHERE name = ?", (self.view.name,))
        if row is None or row[0] != self.view.fingerprint or row[1] > last_event(self._rows):
            self.position = -1
            return False
        self._attach()
        self.position, self._floor = row[1], row[2]
        return self.position == last_event(self._rows)

    def prepare(self, seed: Seed | None) -> None:
        """Get ready to fold on: from where the tables stand, else from a snapshot, else from nothing."""
        if self.position < 0 or self._reaches_back(self.position):
            self.start_over(seed)

    def start_over(self, seed: Seed | None = None) -> None:
        """Throw the tables away, and begin from a snapshot if `seed` finds one that still holds."""
        self._folding.event = 0
        for table in self.view.tables:
            self._rows.run(f"DROP TABLE IF EXISTS {table}; DROP TABLE IF EXISTS undo_{table}")
        self._rows.run(self.view.schema)
        position = seed(self.view, self._rows) if seed else 0
        if position and self._reaches_back(position):
            for table in self.view.tables:
                self._rows.run(f"DELETE FROM {table}")
            position = 0
        self._attach()
        self.position = self._floor = position
        self._rows.run(
            "INSERT OR REPLACE INTO view VALUES (?, ?, ?, ?)",
            (self.view.name, self.view.fingerprint, position, position),
        )

    def caught_up(self) -> None:
        self.position = last_event(self._rows)
        self._changed = None
        self._rows.run("UPDATE view SET position = ? WHERE name = ?", (self.position, self.view.name))
        if self.view.settles:
            self.view.settle(self._rows, None)

    def rebuild(self) -> None:
        """Fold this one view again from the beginning."""
        self.start_over()
        for event in counted_events(self._rows, self._lines, self.kinds):
            self._folding.event = event.id
            self.apply(event)
        self._folding.event = 0
        self.caught_up()

    def begin(self) -> None:
        if self.view.settles:
            self._changed = {}
            for journal in self._journals:
                journal.mark()

    def apply(self, event: AnyEvent) -> None:
        if event.kind in self.kinds:
            self._fold.apply(event)

    def settle(self) -> None:
        if not self.view.settles:
            return
        changed = self._changed
        if changed is not None:
            for journal in self._journals:
                changed.setdefault(journal.table, set()).update(journal.changed())
            changed = {table: keys for table, keys in changed.items() if keys}
            if not changed:
                return
        self.view.settle(self._rows, changed)

    def mend(self, old: set[int], new: set[int]) -> None:
        """Events `old` counted and are taken back; events `new` count and are folded in their place."""
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

    def _replay(self, taken: set[int], new: set[int]) -> set[int]:
        self._fill("taken", taken)
        while sum(journal.spread() for journal in self._journals):
            pass
        joined = {event for (event,) in self._rows.run("SELECT event FROM taken")} - taken
        self._folding.event = 0
        for journal in self._journals:
            keys = journal.take_back()
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
            overtaken |= journal.overtaken()
        return overtaken

    def _attach(self) -> None:
        self._journals = [Journal(self._rows, table) for table in self.view.tables]
        for journal in self._journals:
            journal.create()
            journal.watch()
        if self.view.derived:
            self._rows.run(self.view.derived)

    def _reaches_back(self, position: int) -> bool:
        """Whether an event after `position` changed what counts up to it, so that folding on would be wrong."""
        streams = self._rows.all(
            "SELECT DISTINCT stream FROM event WHERE id > ? AND kind IN (?, ?, ?, ?)", (position, *CONTROL)
        )
        for (stream,) in streams:
            row = self._rows.one("SELECT max(seq) FROM event WHERE stream = ? AND id <= ?", (stream, position))
            if row is None or row[0] is None:
                continue
            then = self._lines.counted_at(stream, row[0])
            now = self._lines.counted(stream).upto(row[0])
            if then != now:
                return True
        return False

    def _fill(self, table: str, events: set[int]) -> None:
        self._rows.run(f"DELETE FROM {table}")
        self._rows.many(f"INSERT INTO {table} VALUES (?)", [(event,) for event in events])


def last_event(rows: Rows) -> int:
    row = rows.one("SELECT coalesce(max(id), 0) FROM event")
    return row[0] if row else 0
