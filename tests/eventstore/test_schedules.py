from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from coterie.base.clock import ManualClock
from coterie.base.errors import JobError
from coterie.eventstore import NewJob, Schedule, Store


async def keys(store: Store) -> list[str]:
    return sorted(job.key for job in await store.jobs.find())


async def test_an_interval_starts_after_its_first_period_and_repeats(store: Store, clock: ManualClock) -> None:
    await store.schedules.put(Schedule("tick", "work", every_s=60, payload={"n": 1}))
    assert await store.schedules.tick() == 0
    clock.advance(60)
    assert await store.schedules.tick() == 1
    assert await store.schedules.tick() == 0
    clock.advance(60)
    assert await store.schedules.tick() == 1
    assert len(await keys(store)) == 2
    (job, _) = await store.jobs.find()
    assert (job.kind, job.payload) == ("work", {"n": 1})


async def test_d15_missed_runs_become_one_run(store: Store, clock: ManualClock) -> None:
    await store.schedules.put(Schedule("tick", "work", every_s=60))
    clock.advance(60 * 60 * 24)
    assert await store.schedules.tick() == 1
    assert await store.schedules.tick() == 0
    clock.advance(60)
    assert await store.schedules.tick() == 1


async def test_s28_a_cron_expression_follows_local_time_through_daylight_saving(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 3, 28, 0, 0, tzinfo=UTC))
    store = Store.open(tmp_path / "coterie.db", clock=clock)
    await store.schedules.put(Schedule("nightly", "backup", cron="0 3 * * *", zone="Europe/Berlin"))
    due: list[str] = []
    for _ in range(3):
        moment = await store.schedules.next_due()
        assert moment is not None
        due.append(moment.isoformat())
        clock.advance((moment - clock.now()).total_seconds())
        assert await store.schedules.tick() == 1
    assert due == ["2026-03-28T02:00:00+00:00", "2026-03-29T01:00:00+00:00", "2026-03-30T01:00:00+00:00"]
    store.close()


async def test_an_unchanged_schedule_keeps_its_next_time(store: Store, clock: ManualClock) -> None:
    await store.schedules.put(Schedule("tick", "work", every_s=60))
    clock.advance(50)
    await store.schedules.put(Schedule("tick", "work", every_s=60, payload={"new": True}))
    clock.advance(10)
    assert await store.schedules.tick() == 1
    await store.schedules.put(Schedule("tick", "work", every_s=10))
    clock.advance(10)
    assert await store.schedules.tick() == 1
    ((schedule, _, last),) = await store.schedules.all()
    assert (schedule.every_s, last) == (10, clock.now())


async def test_a_removed_schedule_enqueues_nothing(store: Store, clock: ManualClock) -> None:
    await store.schedules.put(Schedule("tick", "work", every_s=1))
    await store.schedules.remove("tick")
    clock.advance(10)
    assert await store.schedules.tick() == 0
    assert await store.schedules.next_due() is None


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (Schedule("x", "work"), "either a cron expression or an interval"),
        (Schedule("x", "work", cron="0 3 * * *", every_s=5), "either"),
        (Schedule("x", "work", every_s=0), "positive"),
        (Schedule("x", "work", cron="every night"), "not a cron expression"),
        (Schedule("x", "work", cron="0 3 * * *", zone="Mars/Olympus"), "not a time zone"),
    ],
)
async def test_an_invalid_schedule_is_refused(store: Store, schedule: Schedule, message: str) -> None:
    with pytest.raises(JobError, match=message):
        await store.schedules.put(schedule)


AHEAD_S = 200 * 365 * 86_400.0


@pytest.mark.parametrize("schedule", [Schedule("s", "work", every_s=3_600), Schedule("s", "work", cron="0 3 * * *")])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("ahead_s", [3 * 86_400.0, AHEAD_S])
async def test_s28_a_schedule_runs_again_after_the_clock_was_ahead(
    tmp_path: Path, schedule: Schedule, restart: bool, ahead_s: float
) -> None:
    clock = ManualClock(datetime(2026, 3, 28, 12, 0, tzinfo=UTC))
    store = Store.open(tmp_path / "coterie.db", clock=clock)
    await store.schedules.put(schedule)
    await store.schedules.tick()
    clock.advance(ahead_s)
    assert await store.schedules.tick() == 1
    clock.advance(-ahead_s)
    if restart:
        store.close()
        store = Store.open(tmp_path / "coterie.db", clock=clock)
        await store.schedules.put(schedule)
    assert await store.schedules.tick() == 0
    assert await store.schedules.next_due() == schedule.next_after(clock.now())
    clock.advance(86_400)
    assert await store.schedules.tick() == 1
    store.close()


async def test_a_schedule_is_not_delayed_when_the_clock_was_behind(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2226, 3, 28, 12, 0, tzinfo=UTC))
    store = Store.open(tmp_path / "coterie.db", clock=clock)
    await store.schedules.put(Schedule("s", "work", every_s=3_600))
    clock.advance(-AHEAD_S)
    assert await store.schedules.tick() == 0
    clock.advance(3_600)
    assert await store.schedules.tick() == 1
    clock.advance(AHEAD_S)
    assert await store.schedules.tick() == 1
    clock.advance(3_600)
    assert await store.schedules.tick() == 1
    store.close()


@pytest.mark.parametrize("kind", ["delayed", "retried", "leased"])
async def test_a_job_runs_after_the_clock_was_ahead(tmp_path: Path, kind: str) -> None:
    clock = ManualClock(datetime(2026, 3, 28, 12, 0, tzinfo=UTC))
    store = Store.open(tmp_path / "coterie.db", clock=clock)
    clock.advance(AHEAD_S)
    await store.jobs.enqueue([NewJob("work", "k", delay_s=60 if kind == "delayed" else 0)])
    if kind != "delayed":
        (job,) = await store.jobs.lease(["work"], holder="a")
        if kind == "retried":
            await store.jobs.fail(job, "no")
    clock.advance(-AHEAD_S)
    store.close()
    store = Store.open(tmp_path / "coterie.db", clock=clock)
    await store.schedules.tick()
    clock.advance(60)
    assert [job.key for job in await store.jobs.lease(["work"], holder="b")] == ["k"]
    store.close()


async def test_a_job_for_a_distant_day_keeps_its_time(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 3, 28, 12, 0, tzinfo=UTC))
    store = Store.open(tmp_path / "coterie.db", clock=clock)
    await store.jobs.enqueue([NewJob("work", "k", delay_s=100 * 86_400)])
    due = await store.jobs.next_due(["work"])
    clock.advance(60)
    await store.schedules.tick()
    clock.advance(-30)
    await store.schedules.tick()
    assert await store.jobs.next_due(["work"]) == due
    store.close()
