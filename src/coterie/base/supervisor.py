"""Supervision of background tasks: a failure is logged and counted, and the task is started again after a delay.

Every long-running task of the application is started by one `Supervisor`. Its report names each task with its state, so
that the status page, `coterie doctor` and `/health` can show which part does not work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

from coterie.base.clock import Clock, SystemClock
from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.redaction import redact

_log = get_logger(__name__)

MIN_DELAY_S = 0.5
MAX_DELAY_S = 60.0
STABLE_S = 5.0
"""A task that was started again counts as healthy after it has run for this long."""

TaskStatus = Literal["running", "degraded", "retrying", "ended", "failed"]
T = TypeVar("T")
_current: ContextVar[SupervisedTask | None] = ContextVar("supervised task", default=None)
_once: set[asyncio.Task[Any]] = set()
"""The event loop keeps only weak references to tasks."""


def run_once(name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start work that nobody waits for. A failure is logged, and it is not started again."""
    task = asyncio.create_task(work, name=name)
    _once.add(task)
    task.add_done_callback(_log_failure)
    return task


def _log_failure(task: asyncio.Task[Any]) -> None:
    _once.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("background task failed", task=task.get_name(), error=describe(error)[0], exc_info=_traceback(error))


def report_problem(what: str, fix: str = "") -> None:
    """Called in a supervised task: it runs, but the part that it serves does not work (no connection, no login)."""
    if (task := _current.get()) is not None:
        task.report_problem(what, fix)


def report_recovery() -> None:
    """Called in a supervised task: the part that it serves works."""
    if (task := _current.get()) is not None:
        task.report_recovery()


async def unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of the work; None if `stop` is set before it ends, and then it is cancelled."""
    tasks = working, _ = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Sleep, but not longer than until `stop` is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


def _first_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _traceback(error: BaseException) -> BaseException | None:
    """Known errors need no traceback: they say what to do."""
    return None if isinstance(_first_cause(error), CoterieError) else error


def describe(error: BaseException) -> tuple[str, str]:
    """What happened and what to do, with secrets redacted. A group is described by its first failure."""
    error = _first_cause(error)
    if isinstance(error, CoterieError):
        return redact(error.what), redact(error.fix)
    return redact(f"{type(error).__name__}: {error}"), "It restarts automatically; the server's log has details."


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
    def part(self) -> str:
        """The part of the application, without the name of a person, room or server."""
        return self.name.partition(": ")[0]

    @property
    def healthy(self) -> bool:
        return self.status in ("running", "ended")


class SupervisedTask:
    """A background task that is started again when it fails. `Supervisor.start` creates it."""

    def __init__(
        self, name: str, run: Callable[[], Awaitable[None]], clock: Clock, min_delay_s: float, failures: int = 0
    ) -> None:
        self.name = name
        self._run = run
        self._clock = clock
        self._min_delay_s = min_delay_s
        self._failures = failures
        self._finishing = asyncio.Event()
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

    def cancel(self) -> None:
        """Cancel the task. It is not started again if it fails meanwhile, and its name is free at once."""
        self._finishing.set()
        self._task.cancel()

    async def stop(self) -> None:
        """Cancel the task and wait for its end."""
        self.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def finish(self) -> None:
        """Wait for the end of a task that was told to end. It is not started again if it fails or waits for a start."""
        self._finishing.set()
        await self.wait()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the task has ended by itself or was stopped, or until the timeout."""
        await asyncio.wait([self._task], timeout=timeout_s)

    @property
    def done(self) -> bool:
        return self._task.done()

    @property
    def ends(self) -> bool:
        """Whether it has ended, or was told to end."""
        return self._task.done() or self._finishing.is_set()

    def on_end(self, call: Callable[[], None]) -> None:
        """Call a function once the task has ended."""
        self._task.add_done_callback(lambda _task: call())

    async def _run_forever(self) -> None:
        _current.set(self)
        while True:
            self._started_at = self._clock.monotonic()
            try:
                await self._run()
            except Exception as error:
                if self._clock.monotonic() - self._started_at >= MAX_DELAY_S:
                    self._failures_in_a_row = 0
                await pause(self._finishing, self._record_failure(error))
                if self._finishing.is_set():
                    return
                self._retry_at = None
            else:
                return

    def _record_failure(self, error: Exception) -> float:
        """Log and count a failure. Returns the seconds to wait before the next start."""
        self._failures += 1
        self._failures_in_a_row += 1
        delay_s = min(self._min_delay_s * 2.0 ** min(self._failures_in_a_row - 1, 10), MAX_DELAY_S)
        what, fix = describe(error)
        now = self._clock.now()
        self._error = (what, fix)
        self._reported = None
        self._since = self._since or now
        self._retry_at = now + timedelta(seconds=delay_s)
        _log.error(
            "background task failed",
            task=self.name,
            failures=self._failures,
            retry_in_s=round(delay_s, 1),
            error=what,
            exc_info=_traceback(error),
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

        The name must be unique among the tasks that run, since it is shown to people: the name of the part, which says
        nothing private, and after ": " which one, if there are several.
        """
        previous = self._tasks.pop(name, None)
        if previous is not None and not previous.ends:
            self._tasks[name] = previous
            raise ValueError(f"A task named {name!r} runs already.")
        failures = previous.state.failures if previous is not None else 0
        task = self._tasks[name] = SupervisedTask(name, run, self._clock, self._min_delay_s, failures)
        task.on_end(lambda: self._forget(task))
        return task

    def states(self) -> list[TaskState]:
        """All tasks in the order of their start. Ended tasks are left out, unless they failed before."""
        return [task.state for task in self._tasks.values()]

    def problems(self) -> list[TaskState]:
        return [state for state in self.states() if not state.healthy]

    def _forget(self, task: SupervisedTask) -> None:
        if not task.state.failures and self._tasks.get(task.name) is task:
            del self._tasks[task.name]

    async def stop(self) -> None:
        """Stop all tasks, in the reverse order of their start."""
        for task in reversed(list(self._tasks.values())):
            await task.stop()
        self._tasks.clear()
