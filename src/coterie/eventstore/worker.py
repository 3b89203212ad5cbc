"""Doing the jobs: leases what is due, runs its handler, records the result.

It stops gently, and where it is not given the time to, the lease runs out and the job is done again elsewhere.
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
from coterie.eventstore.bus import Bus
from coterie.eventstore.events import NewEvent
from coterie.eventstore.jobs import READY, Job, Jobs, NewJob
from coterie.eventstore.sqlite.jobs import JobSchedules

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job led to; recorded in the transaction that finishes it."""

    new_events: Sequence[NewEvent] = ()
    jobs: Sequence[NewJob] = ()


class PermanentJobError(CoterieError):
    """A handler raises it when trying again cannot help: the job goes to the dead letters at once."""


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
        """Jobs that `apart` gives the same word run one after the other: each sees what the one before recorded."""
        self._jobs = jobs
        self._handlers = dict(handlers)
        self._clock = clock
        self._bus = bus
        self._schedules = schedules
        self._at_once = concurrency
        self._lease_s = lease_s
        self._longest_wait_s = max_wait_s
        self._apart = serialize_by
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._holder = new_id()
        self._running: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then finish what is under way."""
        listener = asyncio.create_task(self._listen())
        stopper = asyncio.create_task(self._stop_with(stop))
        try:
            while not stop.is_set():
                self._wake.clear()
                await self._take()
                with suppress(TimeoutError):
                    async with asyncio.timeout(await self._until_next()):
                        await self._wake.wait()
        finally:
            for task in (listener, stopper):
                task.cancel()
            await asyncio.gather(listener, stopper, *self._running, return_exceptions=True)

    async def drain(self) -> int:
        """Run everything that is due now, one after the other, and return how many jobs that were."""
        done = 0
        while True:
            if self._schedules is not None:
                await self._schedules.tick()
            leased = await self._jobs.lease(list(self._handlers), holder=self._holder, seconds=self._lease_s)
            if not leased:
                return done
            await self._do(leased[0])
            done += 1

    async def _take(self) -> None:
        if self._schedules is not None:
            await self._schedules.tick()
        room = self._at_once - len(self._running)
        if room <= 0:
            return
        leased = await self._jobs.lease(list(self._handlers), holder=self._holder, limit=room, seconds=self._lease_s)
        for job in leased:
            task = asyncio.create_task(self._do(job))
            self._running.add(task)
            task.add_done_callback(self._done)

    async def _do(self, job: Job) -> None:
        keeper = asyncio.create_task(self._keep(job))
        word = self._apart(job)
        turn = self._turns.setdefault(word, asyncio.Lock()) if word is not None else nullcontext()
        try:
            async with turn:
                outcome = await self._handlers[job.kind](job) or JobResult()
                await self._jobs.complete(job, outcome.new_events, outcome.jobs)
        except LeaseLost as lost:
            _log.info("job result dropped", job=job.key, why=lost.what)
        except Exception as error:
            await self._failed(job, error)
        finally:
            keeper.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._wake.set()

    async def _failed(self, job: Job, error: Exception) -> None:
        told = redact(str(error) if isinstance(error, CoterieError) else f"{type(error).__name__}: {error}")
        _log.warning("job failed", job=job.key, attempt=job.attempt, error=told)
        try:
            await self._jobs.fail(job, told, fatal=isinstance(error, PermanentJobError))
        except LeaseLost as lost:
            _log.info("job failure dropped", job=job.key, why=lost.what)

    async def _keep(self, job: Job) -> None:
        """Hold on to the lease while a long job runs."""
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                await self._jobs.extend(job, self._lease_s)
            except CoterieError:
                return

    async def _listen(self) -> None:
        """Only to what it has hands for: a busy house records much that brings this worker nothing to do."""
        while True:
            with suppress(SlowConsumer):
                async with self._bus.subscribe(READY) as news:
                    self._wake.set()  # for what came while nobody listened
                    async for message in news:
                        if not self._handlers.keys().isdisjoint(message.body):
                            self._wake.set()

    async def _stop_with(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()

    async def _until_next(self) -> float:
        if len(self._running) >= self._at_once:
            return self._longest_wait_s  # the next one to finish wakes us
        due = [await self._jobs.next_due(list(self._handlers))]
        if self._schedules is not None:
            due.append(await self._schedules.next_due())
        waits = [(moment - self._clock.now()).total_seconds() for moment in due if moment is not None]
        return max(0.01, min([self._longest_wait_s, *waits]))
