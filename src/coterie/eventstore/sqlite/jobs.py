"""Jobs and schedules in the database of the log, so that one transaction covers an event and the jobs it causes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from coterie.base.clock import Clock, from_micros, to_micros
from coterie.base.errors import JobError, LeaseLost
from coterie.base.redaction import redact
from coterie.base.values import MAX_DURATION_S, add_seconds
from coterie.eventstore.events import AnyEvent, NewEvent, is_small
from coterie.eventstore.jobs import MAX_BACKOFF_S, MAX_LEASES_PER_ATTEMPT, Job, JobDied, JobState, NewJob, backoff_s
from coterie.eventstore.sqlite.database import ReadConnections, Row, Rows
from coterie.eventstore.sqlite.writer import Writer

_COLUMNS = "id, kind, key, payload, state, priority, attempts, max_attempts, run_at, cause, error, holder"


_KEPT_FINISHED = 500
"""How many finished jobs are kept to be looked at; of the others only the hashed keys are."""
_FORGET_EVERY = 100


def forget_finished_jobs(rows: Rows) -> None:
    """Reduce all but the newest finished jobs to hashes of their keys, so that none of them is enqueued again."""
    old = rows.all(
        "SELECT id, key FROM job WHERE state = 'done' ORDER BY finished DESC, id DESC LIMIT -1 OFFSET ?",
        (_KEPT_FINISHED,),
    )
    rows.many("INSERT OR IGNORE INTO finished_job VALUES (?)", ((_hash(key),) for _, key in old))
    rows.many("DELETE FROM job WHERE id = ?", ((job,) for job, _ in old))


def _hash(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), signed=True)


class JobTable:
    """Operations on jobs inside a transaction of the writer."""

    def __init__(self, rows: Rows, clock: Clock) -> None:
        self._rows = rows
        self._clock = clock
        self._ready_kinds: set[str] = set()
        self._finished = 0

    def take_ready_kinds(self) -> frozenset[str]:
        """The kinds of jobs that became ready since the last call."""
        kinds, self._ready_kinds = frozenset(self._ready_kinds), set()
        return kinds

    def now(self, plus_s: float = 0.0) -> int:
        return to_micros(add_seconds(self._clock.now(), plus_s))

    def add(self, jobs: Sequence[NewJob], cause: int | None) -> None:
        for job in jobs:
            redact.check_names(job.key)
            self._ready_kinds.add(job.kind)
            self._rows.run(
                "INSERT INTO job(kind, key, payload, state, priority, run_at, max_attempts, cause, created)"
                " SELECT ?, ?, ?, 'ready', ?, ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM finished_job WHERE key = ?)"
                " ON CONFLICT(key) DO NOTHING",
                (
                    job.kind,
                    job.key,
                    redact.json(json.dumps(dict(job.payload))),
                    job.priority,
                    self.now(job.delay_s),
                    job.max_attempts,
                    cause,
                    self.now(),
                    _hash(job.key),
                ),
            )

    def lease(self, kinds: Collection[str], holder: str, limit: int, seconds: float) -> tuple[list[Job], list[Job]]:
        """Lease due jobs, and mark those dead that have no attempt left. Returns both."""
        placeholders = ", ".join("?" * len(kinds))
        due = self._rows.all(
            f"SELECT {_COLUMNS} FROM job WHERE kind IN ({placeholders})"
            " AND (state = 'ready' AND run_at <= ? OR state = 'leased' AND lease_until <= ?)"
            " ORDER BY priority DESC, run_at, id LIMIT ?",
            (*kinds, self.now(), self.now(), limit),
        )
        leased: list[Job] = []
        dead: list[Job] = []
        for job in map(_job_from_row, due):
            if job.attempt >= job.max_attempts * MAX_LEASES_PER_ATTEMPT:
                self.mark_dead(job, "It was started the maximum number of times and never finished.")
                dead.append(job)
                continue
            row = self._rows.one(
                "UPDATE job SET state = 'leased', attempts = attempts + 1, holder = ?, lease_until = ?"
                f" WHERE id = ? RETURNING {_COLUMNS}",
                (holder, self.now(seconds), job.id),
            )
            if row is not None:
                leased.append(_job_from_row(row))
        return leased, dead

    def extend(self, job: Job, seconds: float) -> None:
        self.check_lease(job)
        self._rows.run("UPDATE job SET lease_until = ? WHERE id = ?", (self.now(seconds), job.id))

    def check_lease(self, job: Job) -> None:
        """Raise if the job is no longer leased to this holder."""
        row = self._rows.one("SELECT state, holder, attempts FROM job WHERE id = ?", (job.id,))
        if row != ("leased", job.holder, job.attempt):
            reason = "the turn that caused it was rewound" if row and row[0] == "withdrawn" else "its lease expired"
            raise LeaseLost(
                f"The job {job.key} is no longer held by {job.holder}: {reason}.",
                "Drop the result; the current holder records its own.",
            )

    def finish(self, job: Job) -> None:
        self._rows.run(
            "UPDATE job SET state = 'done', lease_until = NULL, error = NULL, finished = ? WHERE id = ?",
            (self.now(), job.id),
        )
        self._finished += 1
        if self._finished % _FORGET_EVERY == 0:
            forget_finished_jobs(self._rows)

    def postpone(self, job: Job, error: str, delay_s: float) -> None:
        self._ready_kinds.add(job.kind)
        self._rows.run(
            "UPDATE job SET state = 'ready', lease_until = NULL, holder = NULL, error = ?, run_at = ? WHERE id = ?",
            (redact(error), self.now(delay_s), job.id),
        )

    def mark_dead(self, job: Job, error: str) -> None:
        self._rows.run(
            "UPDATE job SET state = 'dead', lease_until = NULL, holder = NULL, error = ?, finished = ? WHERE id = ?",
            (redact(error), self.now(), job.id),
        )

    def retry(self, job_id: int) -> None:
        row = self._rows.one(
            "UPDATE job SET state = 'ready', attempts = 0, error = NULL, finished = NULL, run_at = ?"
            " WHERE id = ? AND state = 'dead' RETURNING kind",
            (self.now(), job_id),
        )
        if row is None:
            raise JobError(f"There is no dead job {job_id}.", "List them with `coterie doctor` and choose one.")
        self._ready_kinds.add(row[0])

    def correct_times(self, *, leases: bool) -> None:
        """Correct times that were computed while the clock was ahead. `leases`: of earlier processes as well."""
        now, latest_retry = self.now(), self.now(MAX_BACKOFF_S)
        self._rows.run(
            "UPDATE job SET run_at = run_at - (created - ?1), created = ?1 WHERE state = 'ready' AND created > ?1",
            (now,),
        )
        self._rows.run(
            "UPDATE job SET run_at = ?1 WHERE state = 'ready' AND attempts > 0 AND run_at > ?2", (now, latest_retry)
        )
        if leases:
            self._rows.run(
                "UPDATE job SET lease_until = ?1 WHERE state = 'leased' AND lease_until > ?2", (now, latest_retry)
            )

    def withdraw(self, causes: Collection[int]) -> None:
        """Withdraw unfinished jobs whose causing events became inactive."""
        for job, cause in self._rows.all("SELECT id, cause FROM job WHERE state IN ('ready', 'leased')"):
            if cause in causes:
                self._rows.run("UPDATE job SET state = 'withdrawn' WHERE id = ?", (job,))

    def reinstate(self, causes: Collection[int]) -> None:
        """Make withdrawn jobs ready again whose causing events became active."""
        for job, kind, cause in self._rows.all("SELECT id, kind, cause FROM job WHERE state = 'withdrawn'"):
            if cause in causes:
                self._ready_kinds.add(kind)
                self._rows.run(
                    "UPDATE job SET state = 'ready', attempts = 0, holder = NULL, lease_until = NULL,"
                    " run_at = max(run_at, ?) WHERE id = ?",
                    (self.now(), job),
                )


class JobQueries:
    """Read access to jobs."""

    def __init__(self, readers: ReadConnections) -> None:
        self._readers = readers

    def find(self, *, state: JobState | None = None, limit: int = 100) -> list[Job]:
        """Newest first."""
        rows = self._readers.rows().all(
            f"SELECT {_COLUMNS} FROM job WHERE ?1 IS NULL OR state = ?1 ORDER BY id DESC LIMIT ?2", (state, limit)
        )
        return [_job_from_row(row) for row in rows]

    def pending(self, kind: str | None = None, payload: Mapping[str, str] | None = None) -> list[Job]:
        """Jobs that are ready or leased, oldest first, whose payload has the given values."""
        where, params = ["state IN ('ready', 'leased')"], []
        if kind is not None:
            where.append("kind = ?")
            params.append(kind)
        for name, value in (payload or {}).items():
            where.append("payload ->> ? = ?")
            params += [name, value]
        rows = self._readers.rows().all(f"SELECT {_COLUMNS} FROM job WHERE {' AND '.join(where)} ORDER BY id", params)
        return [_job_from_row(row) for row in rows]

    def state_of(self, key: str) -> JobState | None:
        """The state of the job with a key; None if there is no such job."""
        row = self._readers.rows().one("SELECT state FROM job WHERE key = ?", (key,))
        row = row or self._readers.rows().one("SELECT 'done' FROM finished_job WHERE key = ?", (_hash(key),))
        return row[0] if row else None

    def count_by_state(self) -> dict[str, int]:
        rows = self._readers.rows()
        counts: dict[str, int] = dict(rows.all("SELECT state, count(*) FROM job GROUP BY state ORDER BY state"))
        ((forgotten,),) = rows.all("SELECT count(*) FROM finished_job")
        return {**counts, "done": counts.get("done", 0) + forgotten} if forgotten else counts


class SqliteJobs:
    """The `Jobs` protocol, on the writer's transactions."""

    def __init__(
        self,
        writer: Writer,
        readers: ReadConnections,
        table: JobTable,
        record: Callable[[Sequence[NewEvent], Sequence[NewJob]], list[AnyEvent]],
    ) -> None:
        self._writer = writer
        self._readers = readers
        self._queries = JobQueries(readers)
        self._table = table
        self._record = record

    async def enqueue(self, jobs: Sequence[NewJob]) -> None:
        await self._writer.run(lambda: self._table.add(jobs, None))

    async def lease(self, kinds: Collection[str], *, holder: str, limit: int = 1, seconds: float = 60.0) -> list[Job]:
        def work() -> list[Job]:
            leased, dead = self._table.lease(kinds, holder, limit, seconds)
            self._record([_job_died_event(job, job.error or "") for job in dead], ())
            return leased

        due = await self.next_due(kinds)
        if due is None or to_micros(due) > self._table.now():
            return []
        return await self._writer.run(work, small=True)

    async def extend(self, job: Job, seconds: float) -> None:
        await self._writer.run(lambda: self._table.extend(job, seconds))

    async def complete(
        self, job: Job, new_events: Sequence[NewEvent] = (), jobs: Sequence[NewJob] = ()
    ) -> list[AnyEvent]:
        def work() -> list[AnyEvent]:
            self._table.check_lease(job)
            self._table.finish(job)
            return self._record(new_events, jobs)

        return await self._writer.run(work, small=is_small(new_events))

    async def fail(self, job: Job, error: str, *, retry_in_s: float | None = None, fatal: bool = False) -> None:
        def work() -> None:
            self._table.check_lease(job)
            if fatal or job.attempt >= job.max_attempts:
                self._table.mark_dead(job, error)
                self._record([_job_died_event(job, error)], ())
            else:
                self._table.postpone(job, error, backoff_s(job.attempt) if retry_in_s is None else retry_in_s)

        await self._writer.run(work)

    async def retry(self, job_id: int) -> None:
        await self._writer.run(lambda: self._table.retry(job_id))

    async def find(self, *, state: JobState | None = None, limit: int = 100) -> list[Job]:
        return self._queries.find(state=state, limit=limit)

    async def next_due(self, kinds: Collection[str]) -> datetime | None:
        placeholders = ", ".join("?" * len(kinds))
        row = self._readers.rows().one(
            "SELECT min(CASE state WHEN 'ready' THEN run_at ELSE lease_until END) FROM job"
            f" WHERE state IN ('ready', 'leased') AND kind IN ({placeholders})",
            tuple(kinds),
        )
        return from_micros(row[0]) if row and row[0] is not None else None


def _job_from_row(row: Row) -> Job:
    (job_id, kind, key, payload, state, priority, attempts, max_attempts, run_at, cause, error, holder) = row
    return Job(
        id=job_id,
        kind=kind,
        key=key,
        payload=json.loads(payload),
        state=state,
        priority=priority,
        attempt=attempts,
        max_attempts=max_attempts,
        run_at=from_micros(run_at),
        cause=cause,
        error=error,
        holder=holder,
    )


def _job_died_event(job: Job, error: str) -> NewEvent:
    payload = JobDied(job=job.id, job_kind=job.kind, key=job.key, attempts=job.attempt, error=error)
    return NewEvent("instance", payload, cause=job.cause)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron expression or an interval at which a job is enqueued. Runs missed while the server was off become one."""

    name: str
    kind: str
    cron: str | None = None
    every_s: float | None = None
    zone: str = "UTC"
    payload: Mapping[str, Any] = field(default_factory=dict)

    def next_after(self, moment: datetime) -> datetime:
        if self.every_s is not None:
            return add_seconds(moment, self.every_s)
        return next(CronSim(self.cron or "", moment.astimezone(ZoneInfo(self.zone))))

    def validate(self) -> None:
        if (self.cron is None) == (self.every_s is None):
            raise JobError(f"The schedule {self.name} needs either a cron expression or an interval.", "Give it one.")
        if self.every_s is not None and not 0 < self.every_s <= MAX_DURATION_S:
            raise JobError(
                f"The schedule {self.name} repeats every {self.every_s:g} s.",
                "Give it a positive interval of up to ten years.",
            )
        try:
            zone = ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder, or too long
            raise JobError(f"{self.zone!r} is not a time zone.", "Use a name such as Europe/Berlin.") from None
        if self.cron is not None:
            try:
                CronSim(self.cron, datetime(2026, 1, 1, tzinfo=zone))
            except CronSimError as error:
                raise JobError(
                    f"{self.cron!r} is not a cron expression: {error}.",
                    'Write five fields, such as "0 3 * * *".',
                ) from None


class JobSchedules:
    """Stored schedules. The key of a job contains the time it was due, so that it is enqueued only once."""

    def __init__(self, writer: Writer, readers: ReadConnections, rows: Rows, jobs: JobTable, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._rows = rows
        self._jobs = jobs
        self._clock = clock
        self._last_tick: datetime | None = None

    async def put(self, schedule: Schedule) -> None:
        """Add or change a schedule; an unchanged one keeps its next time. The first run is after one interval.

        A next time later than the regular one was computed while the clock was ahead, and is replaced.
        """
        schedule.validate()

        def work() -> None:
            next_at = to_micros(schedule.next_after(self._clock.now()))
            params = (
                schedule.cron,
                schedule.every_s,
                schedule.zone,
                schedule.kind,
                redact.json(json.dumps(dict(schedule.payload))),
            )
            self._rows.run(
                "INSERT INTO schedule(name, cron, every_s, zone, kind, payload, next_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT(name) DO UPDATE SET cron = excluded.cron, every_s = excluded.every_s,"
                " zone = excluded.zone, kind = excluded.kind, payload = excluded.payload,"
                " next_at = CASE WHEN cron IS excluded.cron AND every_s IS excluded.every_s AND zone = excluded.zone"
                " THEN min(next_at, excluded.next_at) ELSE excluded.next_at END",
                (schedule.name, *params, next_at),
            )

        await self._writer.run(work)

    async def remove(self, name: str) -> None:
        await self._writer.run(lambda: self._rows.run("DELETE FROM schedule WHERE name = ?", (name,)))

    async def tick(self) -> int:
        """Enqueue the jobs that are due. Returns their number."""
        now = self._clock.now()
        if self._last_tick is None or now < self._last_tick:
            await self._writer.run(partial(self._correct_times, first=self._last_tick is None))
        self._last_tick = now
        due = await self.next_due()
        if due is None or due > now:
            return 0
        return await self._writer.run(self._enqueue_due)

    async def next_due(self) -> datetime | None:
        row = self._readers.rows().one("SELECT min(next_at) FROM schedule")
        return from_micros(row[0]) if row and row[0] is not None else None

    async def all(self) -> list[tuple[Schedule, datetime, datetime | None]]:
        """Every schedule with its next and its last time."""
        rows = self._readers.rows().all(
            "SELECT name, kind, cron, every_s, zone, payload, next_at, last_at FROM schedule ORDER BY name"
        )
        return [
            (
                Schedule(name, kind, cron, every_s, zone, json.loads(payload)),
                from_micros(next_at),
                from_micros(last_at) if last_at is not None else None,
            )
            for name, kind, cron, every_s, zone, payload, next_at, last_at in rows
        ]

    def _correct_times(self, *, first: bool) -> None:
        """Correct what was computed while the clock was ahead: no schedule and no job waits longer than it would have.

        Called at the start and whenever the clock went back.
        """
        now = self._clock.now()
        for name, kind, cron, every_s, zone, next_at in self._rows.all(
            "SELECT name, kind, cron, every_s, zone, next_at FROM schedule"
        ):
            regular = to_micros(Schedule(name, kind, cron, every_s, zone).next_after(now))
            if next_at > regular:
                self._rows.run("UPDATE schedule SET next_at = ? WHERE name = ?", (regular, name))
        self._jobs.correct_times(leases=first)

    def _enqueue_due(self) -> int:
        now = self._clock.now()
        due = self._rows.all(
            "SELECT name, kind, cron, every_s, zone, payload, next_at FROM schedule WHERE next_at <= ?",
            (to_micros(now),),
        )
        for name, kind, cron, every_s, zone, payload, next_at in due:
            schedule = Schedule(name, kind, cron, every_s, zone, json.loads(payload))
            job = NewJob(kind, key=f"schedule:{name}:{from_micros(next_at).isoformat()}", payload=schedule.payload)
            self._jobs.add([job], None)
            self._rows.run(
                "UPDATE schedule SET last_at = ?, next_at = ? WHERE name = ?",
                (next_at, to_micros(schedule.next_after(now)), name),
            )
        return len(due)
