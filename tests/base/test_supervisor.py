"""The supervisor restarts what fails, and reports it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from coterie.base.clock import ManualClock
from coterie.base.errors import CoterieError
from coterie.base.supervisor import STABLE_S, Supervisor, TaskState, run_once


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_task_that_fails_is_started_again_with_growing_delays() -> None:
    clock = ManualClock()
    supervisor = Supervisor(clock, min_delay_s=0.001)
    starts = 0

    async def run() -> None:
        nonlocal starts
        starts += 1
        if starts < 4:
            raise RuntimeError(f"fault {starts}")
        await asyncio.Event().wait()

    task = supervisor.start("sync", run)
    await until(lambda: starts == 4)
    state = task.state
    assert (state.status, state.failures) == ("retrying", 3)
    assert state.error == "RuntimeError: fault 3"
    assert state.since == clock.now()
    assert supervisor.problems() == [state]
    clock.advance(STABLE_S)
    assert supervisor.states() == [TaskState("sync", "running", failures=3)]
    assert supervisor.problems() == []
    await supervisor.stop()


async def test_the_delay_is_reported_while_it_waits() -> None:
    clock = ManualClock()
    supervisor = Supervisor(clock, min_delay_s=30)

    async def run() -> None:
        raise CoterieError("The server is gone.", "Start it.")

    task = supervisor.start("sync", run)
    await until(lambda: task.state.failures)
    state = task.state
    assert (state.status, state.error, state.fix) == ("retrying", "The server is gone.", "Start it.")
    assert state.retry_at is not None
    assert (state.retry_at - clock.now()).total_seconds() == 30
    await supervisor.stop()
    assert supervisor.states() == []


async def test_a_task_can_report_a_problem_without_failing() -> None:
    clock = ManualClock()
    supervisor = Supervisor(clock)
    task = supervisor.start("matrix", asyncio.Event().wait)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.report_problem("The homeserver does not answer.", "Check the address.")
    assert supervisor.problems() == [
        TaskState("matrix", "degraded", 0, "The homeserver does not answer.", "Check the address.", clock.now())
    ]
    task.report_recovery()
    assert supervisor.problems() == []
    await supervisor.stop()


async def test_a_task_that_returns_has_ended_and_its_name_is_free() -> None:
    supervisor = Supervisor()

    async def run() -> None:
        pass

    await supervisor.start("once", run).wait()
    assert supervisor.states() == []
    task = supervisor.start("once", run)
    with pytest.raises(ValueError, match="runs already"):
        supervisor.start("once", run)
    await task.wait()


async def test_stopping_cancels_a_task_that_waits_for_its_next_start() -> None:
    supervisor = Supervisor(min_delay_s=60)

    async def run() -> None:
        raise RuntimeError("fault")

    task = supervisor.start("sync", run)
    await until(lambda: task.state.failures)
    async with asyncio.timeout(1):
        await supervisor.stop()
    assert task.done


async def test_a_task_told_to_end_is_not_started_again() -> None:
    supervisor = Supervisor(min_delay_s=60)
    stop = asyncio.Event()
    starts: list[str] = []

    async def waits_for_its_next_start() -> None:
        starts.append("first")
        raise RuntimeError("fault")

    async def fails_while_it_ends() -> None:
        starts.append("second")
        await stop.wait()
        raise RuntimeError("fault at the end")

    tasks = [supervisor.start("first", waits_for_its_next_start), supervisor.start("second", fails_while_it_ends)]
    await until(lambda: tasks[0].state.failures)
    stop.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*(task.finish() for task in tasks))
    assert starts == ["first", "second"]
    assert [(state.status, state.failures) for state in supervisor.states()] == [("ended", 1), ("ended", 1)]


async def test_a_task_that_fails_when_it_is_stopped_is_not_started_again() -> None:
    supervisor = Supervisor(min_delay_s=60)
    started = asyncio.Event()

    async def run() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("fault while stopping")

    task = supervisor.start("sync", run)
    await started.wait()
    async with asyncio.timeout(5):
        await task.stop()
    assert task.state.failures == 1


async def test_failures_are_counted_over_all_starts_under_one_name() -> None:
    supervisor = Supervisor(min_delay_s=0.001)
    for expected in (1, 2):
        outcomes = iter([RuntimeError("fault"), None])

        async def run(outcomes: Iterator[Exception | None] = outcomes) -> None:
            if (error := next(outcomes)) is not None:
                raise error

        await supervisor.start("sync", run).wait()
        assert supervisor.states() == [TaskState("sync", "ended", failures=expected)]


async def test_a_failure_in_a_task_group_is_described_by_its_cause() -> None:
    supervisor = Supervisor(min_delay_s=60)

    async def fails() -> None:
        raise CoterieError("The server is gone.", "Start it.")

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fails())
            await asyncio.Event().wait()

    task = supervisor.start("sync", run)
    await until(lambda: task.state.failures)
    assert (task.state.error, task.state.fix) == ("The server is gone.", "Start it.")
    await supervisor.stop()


async def test_a_failure_of_work_that_nobody_waits_for_is_logged() -> None:
    async def fails() -> None:
        raise RuntimeError("fault")

    with capture_logs() as logs:
        task = run_once("tidy up", fails())
        await asyncio.wait([task])
        await asyncio.sleep(0)
    assert [(log["event"], log["task"], log["error"]) for log in logs] == [
        ("background task failed", "tidy up", "RuntimeError: fault")
    ]
