"""The worker that runs jobs: it leases what is due, calls the handler and records the result.

On stop it finishes running jobs; if it is killed, the leases expire and the jobs run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from weakref import WeakValueDictionary

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError, LeaseLost, SlowConsumer
from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.supervisor import run_once
from coterie.eventstore.bus import Bus
from coterie.eventstore.events import NewEvent
from coterie.eventstore.jobs import READY, Job, Jobs, NewJob
from coterie.eventstore.sqlite.jobs import JobSchedules

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class JobResult:
    """Events and jobs that result from a job, recorded in the transaction that completes it."""

    new_events: Sequence[NewEvent] = ()
    jobs: Sequence[NewJob] = ()


class PermanentJobError(CoterieError):
    """Raised by a handler when a retry cannot help: the job is marked dead at once."""


Handler = Callable[[Job], Awaitable[JobResult | None]]


class Worker:
    def __init__(
        self,
        jobs: Jobs,
        handlers: Mapping[str, Handler],
        *,
        clock: Clock,
        bus: Bus,
        schedules: JobSchedules | None = None,
        concurrency: int = 4,
        lease_s: float = 60.0,
        max_wait_s: float = 5.0,
        serialize_by: Callable[[Job], str | None] = lambda _: None,
    ) -> None:
        """Jobs for which `serialize_by` returns the same key run one after the other."""
        self._jobs = jobs
        self._handlers = dict(handlers)
        self._clock = clock
        self._bus = bus
        self._schedules = schedules
        self._concurrency = concurrency
        self._lease_s = lease_s
        self._max_wait_s = max_wait_s
        self._serialize_by = serialize_by
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._holder = new_id()
        self._running: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Run jobs until `stop` is set, then wait for the running ones.

        If it fails, the running jobs go on; it can be called again.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                helpers = [tasks.create_task(self._listen()), tasks.create_task(self._wake_on_stop(stop))]
                while not stop.is_set():
                    self._wake.clear()
                    await self._lease_due()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(await self._seconds_until_next()):
                            await self._wake.wait()
                for helper in helpers:
                    helper.cancel()
        except asyncio.CancelledError:
            for job in self._running:
                job.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
            raise
        finally:
            if stop.is_set():
                await asyncio.gather(*self._running, return_exceptions=True)

    async def drain(self) -> int:
        """Run every job that is due now, one after the other; return their number."""
        done = 0
        while True:
            if self._schedules is not None:
                await self._schedules.tick()
            leased = await self._jobs.lease(list(self._handlers), holder=self._holder, seconds=self._lease_s)
            if not leased:
                return done
            await self._run_job(leased[0])
            done += 1

    async def _lease_due(self) -> None:
        if self._schedules is not None:
            await self._schedules.tick()
        free = self._concurrency - len(self._running)
        if free <= 0:
            return
        leased = await self._jobs.lease(list(self._handlers), holder=self._holder, limit=free, seconds=self._lease_s)
        for job in leased:
            task = run_once(f"job {job.key}", self._run_job(job))
            self._running.add(task)
            task.add_done_callback(self._on_done)

    async def _run_job(self, job: Job) -> None:
        extender = run_once(f"lease of job {job.key}", self._extend_lease(job))
        key = self._serialize_by(job)
        lock = self._locks.setdefault(key, asyncio.Lock()) if key is not None else nullcontext()
        try:
            async with lock:
                result = await self._handlers[job.kind](job) or JobResult()
                await self._jobs.complete(job, result.new_events, result.jobs)
        except LeaseLost as error:
            _log.info("job result dropped", job=job.key, why=error.what)
        except Exception as error:
            await self._record_failure(job, error)
        finally:
            extender.cancel()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._wake.set()

    async def _record_failure(self, job: Job, error: Exception) -> None:
        text = redact(str(error) if isinstance(error, CoterieError) else f"{type(error).__name__}: {error}")
        _log.warning("job failed", job=job.key, attempt=job.attempt, error=text)
        try:
            await self._jobs.fail(job, text, fatal=isinstance(error, PermanentJobError))
        except LeaseLost as lost:
            _log.info("job failure dropped", job=job.key, why=lost.what)

    async def _extend_lease(self, job: Job) -> None:
        """Renew the lease while a job runs."""
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                await self._jobs.extend(job, self._lease_s)
            except CoterieError:
                return

    async def _listen(self) -> None:
        """Wake up when a job of one of our kinds was enqueued."""
        while True:
            with suppress(SlowConsumer):
                async with self._bus.subscribe(READY) as messages:
                    self._wake.set()  # for jobs enqueued before the subscription
                    async for message in messages:
                        if not self._handlers.keys().isdisjoint(message.body):
                            self._wake.set()

    async def _wake_on_stop(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()

    async def _seconds_until_next(self) -> float:
        if len(self._running) >= self._concurrency:
            return self._max_wait_s  # a finished job sets the wake-up event
        due = [await self._jobs.next_due(list(self._handlers))]
        if self._schedules is not None:
            due.append(await self._schedules.next_due())
        waits = [(moment - self._clock.now()).total_seconds() for moment in due if moment is not None]
        return max(0.01, min([self._max_wait_s, *waits]))
