"""The event store on one SQLite file, owned by one process: the log, projections and jobs.

`Store` implements the protocol `Log`, `store.jobs` the protocol `Jobs`. Committed events are published on the bus.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import apsw

from coterie.base.clock import Clock, SystemClock
from coterie.base.errors import BadPoint
from coterie.eventstore.bus import Bus, BusMessage, LocalBus, WhenSlow, subject_token
from coterie.eventstore.events import (
    AnyEvent,
    Forked,
    NewEvent,
    Reset,
    Rewound,
    Superseded,
    encode_redacted,
    is_small,
    unknown_event_error,
    unknown_kinds,
)
from coterie.eventstore.jobs import READY, NewJob
from coterie.eventstore.log import RewindImpact
from coterie.eventstore.projection import Projection
from coterie.eventstore.sqlite.database import Params, ProcessLock, Row, Rows, connect, translate_errors
from coterie.eventstore.sqlite.file_guard import DatabaseLost, FileGuard
from coterie.eventstore.sqlite.jobs import JobSchedules, JobTable, SqliteJobs
from coterie.eventstore.sqlite.lineage import Ranges
from coterie.eventstore.sqlite.migrations import migrate, release_free_pages, rewrite_payloads
from coterie.eventstore.sqlite.projections import LiveProjections, Progress, Seed
from coterie.eventstore.sqlite.reader import LogReader
from coterie.eventstore.sqlite.recorder import EventRecorder
from coterie.eventstore.sqlite.writer import Writer, WriterStats

T = TypeVar("T")


class Store:
    def __init__(
        self,
        path: Path,
        lock: ProcessLock,
        connection: apsw.Connection,
        projections: LiveProjections,
        recorder: EventRecorder,
        job_table: JobTable,
        bus: Bus,
        clock: Clock,
    ) -> None:
        self.path = path
        self.bus = bus
        self._lock = lock
        self._connection = connection
        self._projections = projections
        self._recorder = recorder
        self._job_table = job_table
        self._rows = Rows(connection)
        self._reader = LogReader(path)
        self._clock = clock
        self._guard = FileGuard(path)
        self._rescue_started = False
        self._closed = False
        self._writer = Writer(
            connection,
            path,
            begin=recorder.begin,
            end=recorder.end,
            on_commit=self._publish_committed,
            on_rollback=self._discard_uncommitted,
            state_token=lambda: recorder.last_id,
            check_file=self._check_before_commit,
        )
        self.jobs = SqliteJobs(self._writer, self._reader.connections, job_table, recorder.encode_and_append)
        self.schedules = JobSchedules(self._writer, self._reader.connections, self._rows, job_table, clock)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        projections: Sequence[Projection] = (),
        clock: Clock | None = None,
        bus: Bus | None = None,
        progress: Progress | None = None,
        seed: Seed | None = None,
    ) -> Store:
        """Lock the file, update its schema and projections, and start the writer. A failure changes nothing."""
        path, clock = Path(path), clock or SystemClock()
        lock = ProcessLock(path)
        lock.acquire()
        connection: apsw.Connection | None = None
        try:
            connection = connect(path, writable=True)
            with translate_errors(path):
                rows = Rows(connection)
                smaller = bool(migrate(rows, clock.now())) | bool(rewrite_payloads(rows))
                if unknown := unknown_kinds(rows.all("SELECT kind, version FROM event_kind ORDER BY kind, version")):
                    raise unknown_event_error(unknown)
                job_table = JobTable(rows, clock)

                def on_active_changed(dropped: set[int], restored: set[int]) -> None:
                    job_table.withdraw(dropped)
                    job_table.reinstate(restored)

                live = LiveProjections(projections, connection, on_active_changed)
                rows.run("BEGIN IMMEDIATE")
                live.open(progress, seed)
                rows.run("COMMIT")
                if smaller:
                    release_free_pages(rows)
                recorder = EventRecorder(rows, live, job_table, clock)
            return cls(path, lock, connection, live, recorder, job_table, bus or LocalBus(), clock)
        except BaseException:
            if connection is not None:
                connection.close()
            lock.release()
            raise

    def close(self) -> None:
        """Finish the queued writes, then release the file."""
        if self._closed:
            return
        self._closed = True
        self._writer.close()
        self._reader.close()
        if not self._rescue_started:
            try:
                self._guard.check(lambda: self._rows)
            except DatabaseLost:
                self._rescue()
        self._guard.close()
        self._connection.close()
        self._lock.release()

    async def append(
        self, new_events: Sequence[NewEvent], *, expect: Mapping[str, int] | None = None, jobs: Sequence[NewJob] = ()
    ) -> list[AnyEvent]:
        encoded = [encode_redacted(new) for new in new_events]
        return await self._writer.run(lambda: self._recorder.append(encoded, expect, jobs), small=is_small(new_events))

    def append_blocking(
        self, new_events: Sequence[NewEvent], *, expect: Mapping[str, int] | None = None, jobs: Sequence[NewJob] = ()
    ) -> list[AnyEvent]:
        """`append` for callers without an event loop: blocks until it is durable."""
        encoded = [encode_redacted(new) for new in new_events]
        return self._writer.run_blocking(lambda: self._recorder.append(encoded, expect, jobs))

    def transact(self, work: Callable[[Rows], T]) -> T:
        """Make a durable change that is not an event (a cache, an index), in a transaction. Blocks."""
        return self._writer.run_blocking(lambda: self._recorder.run_flushed(work))

    def query(self, sql: str, params: Params = ()) -> list[Row]:
        return self._reader.query(sql, params)

    @property
    def reader(self) -> LogReader:
        return self._reader

    @property
    def is_writable(self) -> bool:
        """Whether the writer still runs."""
        return self._writer.alive

    @property
    def writer_stats(self) -> WriterStats:
        return self._writer.stats

    @property
    def projections(self) -> list[Projection]:
        return self._projections.projections

    async def read(
        self,
        stream: str | None = None,
        *,
        after: int = 0,
        limit: int = 1_000,
        kinds: Collection[str] | None = None,
        newest_first: bool = False,
    ) -> list[AnyEvent]:
        return self._reader.read(stream, after=after, limit=limit, kinds=kinds, newest_first=newest_first)

    async def history(
        self, stream: str, *, after: int = 0, before: int | None = None, limit: int | None = None
    ) -> list[AnyEvent]:
        return self._reader.history(stream, after=after, before=before, limit=limit)

    async def head(self, stream: str) -> int:
        return self._reader.head(stream)

    async def tail(self, after: int = 0) -> AsyncIterator[AnyEvent]:
        async with self.bus.subscribe("event.>", limit=1, when_slow=WhenSlow.DROP_OLDEST) as messages:
            while True:
                while page := self._reader.read(after=after):
                    for event in page:
                        yield event
                    after = page[-1].id
                await anext(messages)

    async def preview_rewind(self, stream: str, to: int) -> RewindImpact:
        return self._reader.preview_rewind(stream, to)

    async def rewind(self, stream: str, to: int, *, actor: str = "system") -> AnyEvent:
        return await self._append_one(NewEvent(stream, Rewound(to=to), actor))

    async def redo(self, stream: str, *, actor: str = "system") -> AnyEvent:
        last = self._reader.read(stream, limit=1, newest_first=True)
        payload = last[0].payload if last else None
        if not isinstance(payload, Reset) and not (isinstance(payload, Rewound) and not payload.redo):
            raise BadPoint(
                f"There is nothing to redo in {stream}: it was not rewound, or there are events after that.",
                "Fork at the position you want back instead.",
            )
        seq = last[0].seq
        redo = NewEvent(stream, Rewound(to=seq - 1, redo=True), actor)
        return (await self.append([redo], expect={stream: seq}))[0]

    async def supersede(
        self,
        stream: str,
        *,
        drop: Collection[int] = (),
        restore: Collection[int] = (),
        actor: str = "system",
    ) -> AnyEvent:
        dropped, restored = (Ranges((seq, seq) for seq in seqs).pairs for seqs in (drop, restore))
        return await self._append_one(NewEvent(stream, Superseded(drop=dropped, restore=restored), actor))

    async def turn_seqs(self, stream: str, turn: str) -> list[int]:
        return self._reader.turn_seqs(stream, turn)

    async def fork(self, stream: str, at: int, into: str, *, actor: str = "system") -> AnyEvent:
        return await self._append_one(NewEvent(into, Forked(parent=stream, at=at), actor))

    async def reset(self, stream: str, *, actor: str = "system") -> AnyEvent:
        return await self._append_one(NewEvent(stream, Reset(), actor))

    async def purge(
        self, stream: str, *, first: int = 1, last: int | None = None, reason: str = "", actor: str = "system"
    ) -> AnyEvent:
        """Erase events permanently, also from the file's free pages and its journal."""
        until = 2**62 if last is None else last
        event = await self._writer.run(lambda: self._recorder.purge(stream, first, until, reason, actor))
        await self._writer.run_outside_transaction(self._empty_journal)
        return event

    def rebuild(self, progress: Progress | None = None) -> None:
        """Rebuild every projection from the beginning of the log."""
        self._writer.run_blocking(lambda: self._recorder.run_flushed(lambda _: self._projections.rebuild(progress)))

    def hashes(self) -> dict[str, str]:
        """Projection → a hash of the contents of its tables."""
        return self._writer.run_blocking(self._projections.hashes)

    def check_file(self) -> None:
        """Read the database from the disk, past all caches. Raises `StorageError` if it is not what was written."""
        try:
            self._guard.check(self._reader.connections.rows)
        except DatabaseLost:
            self._start_rescue()
            raise
        known = self._reader.last_id()
        connection = connect(self.path, writable=False)
        try:
            with translate_errors(self.path):
                ((last,),) = Rows(connection).all("SELECT coalesce(max(id), 0) FROM event")
        finally:
            connection.close()
        if last < known and last < self._reader.last_id():  # read again: a purge may have removed the last events
            raise DatabaseLost(
                f"The database {self.path} ends at event {last}, but {known} was written to it.",
                "Stop the server, then restore a backup with `coterie restore`.",
            )

    def _check_before_commit(self) -> None:
        try:
            self._guard.check(lambda: self._rows)
        except DatabaseLost:
            self._start_rescue()
            raise

    def _start_rescue(self) -> None:
        """Save what the open file holds, once, before the next request of the writer."""
        if not self._rescue_started:
            self._rescue_started = True
            self._writer.run_later(self._rescue)

    def _rescue(self) -> None:
        self._guard.rescue(self._connection, self._clock.now(), self._recorder.last_id)

    def _empty_journal(self) -> None:
        self._rows.run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    async def _append_one(self, new_event: NewEvent) -> AnyEvent:
        return (await self.append([new_event]))[0]

    def _discard_uncommitted(self) -> None:
        self._recorder.reload()
        self._job_table.take_ready_kinds()

    def _publish_committed(self) -> None:
        self.bus.publish(_messages_of(self._recorder.take_appended(), self._job_table.take_ready_kinds()))


def _messages_of(events: Sequence[AnyEvent], ready_kinds: Collection[str]) -> Iterator[BusMessage]:
    for event in events:
        yield BusMessage(f"event.{subject_token(event.stream)}.{event.kind}", event)
    if ready_kinds:
        yield BusMessage(READY, ready_kinds)
