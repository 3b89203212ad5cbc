"""Timers that survive restarts: a cron expression or an interval that enqueues a job when it is due.

The job's key carries the moment it was due, so a tick that runs twice enqueues once. What was missed while the
machine was off is caught up with one run at most.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from coterie.base.clock import Clock, from_micros, to_micros
from coterie.base.errors import JobError
from coterie.kernel.database import ReadConnections, Rows
from coterie.kernel.jobs import NewJob
from coterie.kernel.sqlite_jobs import JobTable
from coterie.kernel.writer import Writer


@dataclass(frozen=True, slots=True)
class Schedule:
    name: str
    kind: str
    cron: str | None = None
    every_s: float | None = None
    zone: str = "UTC"
    payload: Mapping[str, Any] = field(default_factory=dict)

    def next_after(self, moment: datetime) -> datetime:
        if self.every_s is not None:
            return moment + timedelta(seconds=self.every_s)
        return next(CronSim(self.cron or "", moment.astimezone(ZoneInfo(self.zone))))

    def validate(self) -> None:
        if (self.cron is None) == (self.every_s is None):
            raise JobError(f"The schedule {self.name} needs either a cron expression or an interval.", "Give it one.")
        if self.every_s is not None and self.every_s <= 0:
            raise JobError(f"The schedule {self.name} repeats every {self.every_s} s.", "Give it a positive interval.")
        try:
            zone = ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError):
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
    def __init__(self, writer: Writer, readers: ReadConnections, rows: Rows, jobs: JobTable, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._rows = rows
        self._jobs = jobs
        self._clock = clock

    async def put(self, schedule: Schedule) -> None:
        """Add or change a schedule. The first run waits its interval; putting the same one again changes nothing."""
        schedule.validate()

        def work() -> None:
            next_at = to_micros(schedule.next_after(self._clock.now()))
            told = (
                schedule.cron,
                schedule.every_s,
                schedule.zone,
                schedule.kind,
                json.dumps(dict(schedule.payload)),
            )
            self._rows.run(
                "INSERT INTO schedule(name, cron, every_s, zone, kind, payload, next_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT(name) DO UPDATE SET cron = excluded.cron, every_s = excluded.every_s,"
                " zone = excluded.zone, kind = excluded.kind, payload = excluded.payload,"
                " next_at = CASE WHEN cron IS excluded.cron AND every_s IS excluded.every_s AND zone = excluded.zone"
                " THEN next_at ELSE excluded.next_at END",
                (schedule.name, *told, next_at),
            )

        await self._writer.run(work)

    async def remove(self, name: str) -> None:
        await self._writer.run(lambda: self._rows.run("DELETE FROM schedule WHERE name = ?", (name,)))

    async def tick(self) -> int:
        """Enqueue what is due. Returns how many jobs that made."""
        due = await self.next_due()
        if due is None or due > self._clock.now():
            return 0
        return await self._writer.run(self._enqueue_due)

    async def next_due(self) -> datetime | None:
        row = self._readers.rows().one("SELECT min(next_at) FROM schedule")
        return from_micros(row[0]) if row and row[0] is not None else None

    async def all(self) -> list[tuple[Schedule, datetime, datetime | None]]:
        """Every schedule with when it is due next and when it last was."""
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
