from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pytest import MonkeyPatch

from coterie.base.clock import ManualClock, SystemClock
from coterie.base.redaction import redact
from coterie.eventstore import Job, NewJob, Schedule, Store
from coterie.eventstore.worker import JobResult, PermanentJobError, Worker
from tests.contracts.log_contract import turn_event, turn_texts

Do = Callable[[Job], Awaitable[JobResult | None]]


def worker(store: Store, handle: Do, clock: ManualClock | SystemClock, **options: float | int) -> Worker:
    settings = {"longest_wait_s": 0.05, **options}
    return Worker(
        store.jobs,
        {"work": handle},
        clock=clock,
        bus=store.bus,
        schedules=store.schedules,
        concurrency=int(settings.get("at_once", 4)),
        lease_s=float(settings.get("lease_s", 60)),
        max_wait_s=float(settings["longest_wait_s"]),
    )


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await condition():
            await asyncio.sleep(0.005)


async def test_jobs_run_when_enqueued_and_running_ones_finish_on_stop(store: Store, clock: ManualClock) -> None:
    started = asyncio.Event()

    async def handle(job: Job) -> JobResult:
        started.set()
        await asyncio.sleep(0.02)
        return JobResult([turn_event("effects", job.key)])

    stop = asyncio.Event()
    running = asyncio.create_task(worker(store, handle, clock, at_once=2).run(stop))
    await store.append([turn_event("room:a", "one")], jobs=[NewJob("work", key=f"w{n}") for n in range(6)])
    await wait_until(lambda: _count_is(store, "done", 6))
    started.clear()
    await store.jobs.enqueue([NewJob("work", key="last")])
    await started.wait()
    stop.set()
    await running
    assert sorted(turn_texts(await store.read("effects"))) == ["last", "w0", "w1", "w2", "w3", "w4", "w5"]


async def _count_is(store: Store, state: str, count: int) -> bool:
    return len([job for job in await store.jobs.find() if job.state == state]) == count


async def test_every_way_of_adding_a_job_wakes_the_worker(store: Store, clock: ManualClock) -> None:
    fails = {"dies"}
    wanted = asyncio.Event()

    async def handle(job: Job) -> JobResult | None:
        if job.key == "taken back":
            await wanted.wait()
        if job.key in fails:
            raise PermanentJobError("It cannot be done.", "Not yet.")
        return JobResult(jobs=[NewJob("work", key="followed")]) if job.key == "with an event" else None

    async def done(key: str) -> None:
        await wait_until(lambda: _has_state(store, key, "done"))

    stop = asyncio.Event()
    running = asyncio.create_task(worker(store, handle, clock, longest_wait_s=3_600).run(stop))
    await store.append([turn_event("room:a", "one")], jobs=[NewJob("work", key="with an event")])
    await done("with an event")
    await done("followed")
    await store.jobs.enqueue([NewJob("work", key="dies")])
    await wait_until(lambda: _has_state(store, "dies", "dead"))
    fails.clear()
    (dead,) = await store.jobs.find(state="dead")
    await store.jobs.retry(dead.id)
    await done("dies")
    await store.append([turn_event("room:a", "two")], jobs=[NewJob("work", key="taken back")])
    await wait_until(lambda: _has_state(store, "taken back", "leased"))
    await store.rewind("room:a", 1)
    assert await _has_state(store, "taken back", "withdrawn")
    await store.redo("room:a")
    await wait_until(lambda: _has_state(store, "taken back", "leased"))
    wanted.set()
    await done("taken back")
    stop.set()
    await running


async def test_jobs_of_other_kinds_do_not_wake_the_worker(
    store: Store, clock: ManualClock, monkeypatch: MonkeyPatch
) -> None:
    looked = 0
    lease = store.jobs.lease

    async def counting(*kinds: Any, **options: Any) -> list[Job]:
        nonlocal looked
        looked += 1
        return await lease(*kinds, **options)

    async def handle(job: Job) -> None:
        pass

    monkeypatch.setattr(store.jobs, "lease", counting)
    stop = asyncio.Event()
    running = asyncio.create_task(worker(store, handle, clock, longest_wait_s=3_600).run(stop))
    await store.jobs.enqueue([NewJob("work", key="first")])
    await wait_until(lambda: _has_state(store, "first", "done"))
    await asyncio.sleep(0.05)
    before = looked
    for number in range(20):
        await store.append([turn_event("room:a", f"{number}")], jobs=[NewJob("others work", key=f"other{number}")])
    await asyncio.sleep(0.05)
    assert looked == before
    stop.set()
    await running


async def _has_state(store: Store, key: str, state: str) -> bool:
    return [job.state for job in await store.jobs.find() if job.key == key] == [state]


async def test_a_failing_job_is_retried_and_its_error_is_redacted(store: Store, clock: ManualClock) -> None:
    redact.register("hunter2-hunter2")
    attempts: list[int] = []

    async def handle(job: Job) -> None:
        attempts.append(job.attempt)
        if job.attempt < 3:
            raise RuntimeError("the provider said no to hunter2-hunter2")

    await store.jobs.enqueue([NewJob("work", key="w")])
    hands = worker(store, handle, clock)
    for _ in range(3):
        assert await hands.drain() == 1
        clock.advance(10)
    assert attempts == [1, 2, 3]
    assert await _count_is(store, "done", 1)
    await store.jobs.enqueue([NewJob("work", key="w2", max_attempts=1)])
    await hands.drain()
    (dead,) = await store.jobs.find(state="dead")
    assert dead.error is not None and "[secret]" in dead.error and "hunter2" not in dead.error


async def test_a_permanent_error_is_not_retried(store: Store, clock: ManualClock) -> None:
    async def handle(job: Job) -> None:
        raise PermanentJobError("The key was refused.", "Check it in Settings.")

    await store.jobs.enqueue([NewJob("work", key="w")])
    await worker(store, handle, clock).drain()
    (dead,) = await store.jobs.find(state="dead")
    assert dead.error == "The key was refused. Check it in Settings."


async def test_the_lease_of_a_long_job_is_extended(store: Store) -> None:
    clock = SystemClock()
    store.jobs._table._clock = clock

    async def handle(job: Job) -> JobResult:
        await asyncio.sleep(0.4)
        return JobResult([turn_event("effects", f"{job.key}:{job.attempt}")])

    await store.jobs.enqueue([NewJob("work", key="w")])
    stop = asyncio.Event()
    both = [asyncio.create_task(worker(store, handle, clock, lease_s=0.15).run(stop)) for _ in range(2)]
    await wait_until(lambda: _count_is(store, "done", 1))
    stop.set()
    await asyncio.gather(*both)
    assert turn_texts(await store.read("effects")) == ["w:1"]


async def test_the_result_of_a_rewound_turn_is_dropped(store: Store, clock: ManualClock) -> None:
    async def handle(job: Job) -> JobResult:
        await store.rewind("room:a", 0)
        return JobResult([turn_event("effects", "too late")])

    await store.append([turn_event("room:a", "one")], jobs=[NewJob("work", key="w")])
    await worker(store, handle, clock).drain()
    assert await store.read("effects") == []
    assert await _count_is(store, "withdrawn", 1)


async def test_schedules_feed_the_worker(store: Store, clock: ManualClock) -> None:
    done: list[str] = []

    async def handle(job: Job) -> None:
        done.append(job.key)

    await store.schedules.put(Schedule("tick", "work", every_s=60))
    hands = worker(store, handle, clock)
    assert await hands.drain() == 0
    clock.advance(60)
    assert await hands.drain() == 1
    assert done == ["schedule:tick:2026-01-01T00:01:00+00:00"]


@pytest.mark.parametrize("error", [ValueError("odd"), KeyError("x"), TimeoutError()])
async def test_no_exception_of_a_handler_stops_the_worker(store: Store, clock: ManualClock, error: Exception) -> None:
    async def handle(job: Job) -> None:
        if job.key == "bad":
            raise error

    await store.jobs.enqueue([NewJob("work", key="bad"), NewJob("work", key="good")])
    assert await worker(store, handle, clock).drain() == 2
    assert await _count_is(store, "done", 1)


@pytest.mark.parametrize("part", ["_listen", "_lease_due"])
async def test_a_worker_that_fails_can_run_again_and_its_jobs_go_on(
    store: Store, clock: ManualClock, monkeypatch: MonkeyPatch, part: str
) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handle(job: Job) -> JobResult:
        begun.set()
        await may_end.wait()
        return JobResult([turn_event("effects", job.key)])

    async def fails(*_: object) -> None:
        await begun.wait()
        raise RuntimeError("fault")

    failing, stop = worker(store, handle, clock), asyncio.Event()
    await store.jobs.enqueue([NewJob("work", key="first")])
    await failing._lease_due()
    with monkeypatch.context() as patch:
        patch.setattr(failing, part, fails)
        async with asyncio.timeout(10):
            with pytest.raises(ExceptionGroup, match="unhandled errors"):
                await failing.run(stop)
    running = asyncio.create_task(failing.run(stop))
    await store.jobs.enqueue([NewJob("work", key="second")])
    may_end.set()
    await wait_until(lambda: _count_is(store, "done", 2))
    stop.set()
    await running
    assert sorted(turn_texts(await store.read("effects"))) == ["first", "second"]
