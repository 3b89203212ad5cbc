"""Supervision of background tasks: a failure is logged and counted, and the task is started again after a delay.

Every long-running task of the application is started by one `Supervisor`. Its report names each task with its state, so
that the status page, `coterie doctor` and `/health` can show which part does not work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from coterie.base.clock import Clock, SystemClock
from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.redaction import redact

_log = get_logger(__name__)

MIN_DELAY_S = 0.5
MAX_DELAY_S = 60.0
STABLE_S = 5.0
"""A task that was started again counts as healthy after it has run for this long."""

TaskStatus = Literal["running", "degraded", "retrying", "ended"]


@dataclass(frozen=True)
class TaskState:
    """What is known about a supervised task."""

    name: str
    status: TaskStatus
    failures: int = 0
    """How often it failed since the start of the server."""
    error: str = ""
    """The last failure, or the problem that the task reported itself, with secrets redacted."""
    fix: str = ""
    """What a person can do about it."""
    since: datetime | None = None
    """When the problem began, if there is one."""
    retry_at: datetime | None = None

    @property
    def healthy(self) -> bool:
        return self.status in ("running", "ended")


class SupervisedTask:
    """A background task that is started again when it fails. `Supervisor.start` creates it."""

    def __init__(self, name: str, run: Callable[[], Awaitable[None]], clock: Clock, min_delay_s: float) -> None:
        self.name = name
        self._run = run
        self._clock = clock
        self._min_delay_s = min_delay_s
        self._failures = 0
        self._failures_in_a_row = 0
        self._error: tuple[str, str] | None = None
        self._since: datetime | None = None
        self._retry_at: datetime | None = None
        self._reported: tuple[str, str] | None = None
        self._started_at = clock.monotonic()
        self._task = asyncio.create_task(self._run_forever(), name=name)

    def report_problem(self, what: str, fix: str = "") -> None:
        """Mark the task as degraded: it runs, but the part that it serves does not work (no connection, no login)."""
        problem = (redact(what), redact(fix))
        if self._reported != problem:
            self._since = self._since or self._clock.now()
        self._reported = problem

    def report_recovery(self) -> None:
        self._reported = None
        if self._error is None:
            self._since = None

    @property
    def state(self) -> TaskState:
        if self._task.done():
            return TaskState(self.name, "ended", self._failures)
        if self._error is not None and self._has_recovered():
            self._error = None
            if self._reported is None:
                self._since = None
        if self._error is not None:
            return TaskState(self.name, "retrying", self._failures, *self._error, self._since, self._retry_at)
        if self._reported is not None:
            return TaskState(self.name, "degraded", self._failures, *self._reported, self._since)
        return TaskState(self.name, "running", self._failures)

    def _has_recovered(self) -> bool:
        return self._retry_at is None and self._clock.monotonic() - self._started_at >= STABLE_S

    async def stop(self) -> None:
        """Cancel the task and wait for its end."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def wait(self) -> None:
        """Wait until the task has ended by itself or was stopped."""
        await asyncio.wait([self._task])

    @property
    def done(self) -> bool:
        return self._task.done()

    async def _run_forever(self) -> None:
        while True:
            self._started_at = self._clock.monotonic()
            try:
                await self._run()
            except Exception as error:
                if self._clock.monotonic() - self._started_at >= MAX_DELAY_S:
                    self._failures_in_a_row = 0
                await asyncio.sleep(self._record_failure(error))
                self._retry_at = None
            else:
                return

    def _record_failure(self, error: Exception) -> float:
        """Log and count a failure. Returns the seconds to wait before the next start."""
        self._failures += 1
        self._failures_in_a_row += 1
        delay_s = min(self._min_delay_s * 2.0 ** min(self._failures_in_a_row - 1, 10), MAX_DELAY_S)
        what, fix = (
            (error.what, error.fix)
            if isinstance(error, CoterieError)
            else (
                f"{type(error).__name__}: {error}",
                "It is started again by itself; the server's log has details.",
            )
        )
        now = self._clock.now()
        self._error = (redact(what), redact(fix))
        self._reported = None
        self._since = self._since or now
        self._retry_at = now + timedelta(seconds=delay_s)
        # Known errors need no traceback: they say what to do.
        _log.error(
            "background task failed",
            task=self.name,
            failures=self._failures,
            retry_in_s=round(delay_s, 1),
            error=redact(what),
            exc_info=None if isinstance(error, CoterieError) else error,
        )
        return delay_s


class Supervisor:
    """Starts the background tasks of the application, and knows the state of each."""

    def __init__(self, clock: Clock | None = None, *, min_delay_s: float = MIN_DELAY_S) -> None:
        self._clock = clock or SystemClock()
        self._min_delay_s = min_delay_s
        self._tasks: dict[str, SupervisedTask] = {}

    def start(self, name: str, run: Callable[[], Awaitable[None]]) -> SupervisedTask:
        """Run in the background; `run` is called again after every failure, until it returns or is stopped.

        The name must be unique among the tasks that have not ended: it is shown to people.
        """
        if name in self._tasks and not self._tasks[name].done:
            raise ValueError(f"A task named {name!r} runs already.")
        task = self._tasks[name] = SupervisedTask(name, run, self._clock, self._min_delay_s)
        return task

    def states(self) -> list[TaskState]:
        """All tasks in the order of their start. Ended tasks are left out, unless they failed before."""
        return [state for task in self._tasks.values() if (state := task.state).status != "ended" or state.failures]

    def problems(self) -> list[TaskState]:
        return [state for state in self.states() if not state.healthy]

    async def stop(self) -> None:
        """Stop all tasks, in the reverse order of their start."""
        for task in reversed(list(self._tasks.values())):
            await task.stop()
        self._tasks.clear()
