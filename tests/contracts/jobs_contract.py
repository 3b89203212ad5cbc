"""The contract of `Jobs`. A backend's test module subclasses this and provides `jobs`, `log` and `clock`."""

from __future__ import annotations

import asyncio

import pytest

from coterie.base.clock import ManualClock
from coterie.base.errors import JobError, LeaseLost
from coterie.eventstore import JobDied, Jobs, Log, NewEvent, NewJob
from coterie.eventstore.jobs import MAX_LEASES_PER_ATTEMPT
from tests.contracts.log_contract import turn_event, turn_texts


def effect_event(text: str) -> NewEvent:
    return turn_event("effects", text)


class JobsContract:
    async def test_a_job_is_enqueued_with_its_event_or_not_at_all(self, jobs: Jobs, log: Log) -> None:
        (event,) = await log.append([turn_event("room:a", "one")], jobs=[NewJob("work", key="w1", payload={"n": 1})])
        (job,) = await jobs.lease(["work"], holder="me")
        assert (job.key, job.payload, job.cause, job.attempt) == ("w1", {"n": 1}, event.id, 1)
        with pytest.raises(Exception, match="newer events"):
            await log.append([turn_event("room:a", "x")], expect={"room:a": 9}, jobs=[NewJob("work", key="w2")])
        assert await jobs.lease(["work"], holder="me") == []

    async def test_only_one_job_per_key_is_kept(self, jobs: Jobs) -> None:
        await asyncio.gather(*(jobs.enqueue([NewJob("work", key="same")]) for _ in range(8)))
        assert len(await jobs.lease(["work"], holder="me", limit=10)) == 1

    async def test_a_leased_job_is_not_leased_again_until_the_lease_expires(
        self, jobs: Jobs, clock: ManualClock
    ) -> None:
        await jobs.enqueue([NewJob("work", key="w")])
        (mine,) = await jobs.lease(["work"], holder="me", seconds=10)
        assert await jobs.lease(["work"], holder="you") == []
        clock.advance(11)
        (theirs,) = await jobs.lease(["work"], holder="you", seconds=10)
        assert theirs.attempt == 2
        with pytest.raises(LeaseLost, match="no longer held"):
            await jobs.complete(mine, [effect_event("too late")])
        await jobs.complete(theirs)

    async def test_a_result_after_the_lease_expired_is_refused(self, jobs: Jobs, log: Log, clock: ManualClock) -> None:
        await jobs.enqueue([NewJob("work", key="w")])
        (mine,) = await jobs.lease(["work"], holder="me", seconds=10)
        clock.advance(11)
        (theirs,) = await jobs.lease(["work"], holder="you", seconds=10)
        await jobs.complete(theirs, [effect_event("once")])
        with pytest.raises(LeaseLost):
            await jobs.complete(mine, [effect_event("twice")])
        assert turn_texts(await log.read("effects")) == ["once"]

    async def test_a_lease_can_be_extended(self, jobs: Jobs, clock: ManualClock) -> None:
        await jobs.enqueue([NewJob("work", key="w")])
        (mine,) = await jobs.lease(["work"], holder="me", seconds=10)
        clock.advance(8)
        await jobs.extend(mine, 10)
        clock.advance(8)
        assert await jobs.lease(["work"], holder="you") == []
        await jobs.complete(mine)
        with pytest.raises(LeaseLost):
            await jobs.extend(mine, 10)

    async def test_concurrent_workers_lease_different_jobs(self, jobs: Jobs) -> None:
        await jobs.enqueue([NewJob("work", key=f"w{n}") for n in range(60)])
        taken = await asyncio.gather(*(jobs.lease(["work"], holder=str(n), limit=10) for n in range(10)))
        keys = [job.key for batch in taken for job in batch]
        assert len(keys) == len(set(keys)) == 60

    async def test_jobs_are_ordered_by_priority_and_age_after_their_delay(self, jobs: Jobs, clock: ManualClock) -> None:
        await jobs.enqueue([NewJob("work", key="old"), NewJob("work", key="later", delay_s=60)])
        await jobs.enqueue([NewJob("work", key="urgent", priority=9)])
        assert [job.key for job in await jobs.lease(["work"], holder="me", limit=9)] == ["urgent", "old"]
        due = await jobs.next_due(["work"])
        assert due is not None and due > clock.now()
        clock.advance(61)
        assert [job.key for job in await jobs.lease(["work"], holder="you", limit=9)][-1] == "later"

    async def test_only_the_requested_kinds_are_leased(self, jobs: Jobs) -> None:
        await jobs.enqueue([NewJob("work", key="w"), NewJob("play", key="p")])
        assert [job.key for job in await jobs.lease(["play"], holder="me", limit=9)] == ["p"]
        assert await jobs.lease([], holder="me", limit=9) == []

    async def test_failures_back_off_and_then_the_job_is_dead(self, jobs: Jobs, log: Log, clock: ManualClock) -> None:
        await jobs.enqueue([NewJob("work", key="w", max_attempts=3)])
        waits: list[float] = []
        for _ in range(3):
            (job,) = await jobs.lease(["work"], holder="me")
            await jobs.fail(job, "the provider was away")
            due = await jobs.next_due(["work"])
            if due is not None:
                waits.append((due - clock.now()).total_seconds())
                clock.advance(waits[-1])
        assert waits == [1.0, 2.0]
        (dead,) = await jobs.find(state="dead")
        assert (dead.key, dead.error) == ("w", "the provider was away")
        (died,) = await log.read("instance", kinds=[JobDied.kind])
        assert isinstance(died.payload, JobDied)
        assert (died.payload.key, died.payload.attempts) == ("w", 3)

    async def test_only_a_dead_job_can_be_retried(self, jobs: Jobs) -> None:
        await jobs.enqueue([NewJob("work", key="w")])
        (job,) = await jobs.lease(["work"], holder="me")
        with pytest.raises(JobError, match="no dead job"):
            await jobs.retry(job.id)
        await jobs.fail(job, "hopeless", fatal=True)
        await jobs.retry(job.id)
        (again,) = await jobs.lease(["work"], holder="me")
        assert again.attempt == 1
        await jobs.fail(again, "hopeless", fatal=True)
        assert len(await jobs.find(state="dead")) == 1

    async def test_a_job_whose_lease_expires_every_time_is_dead_after_more_attempts(
        self, jobs: Jobs, log: Log, clock: ManualClock
    ) -> None:
        await jobs.enqueue([NewJob("work", key="w", max_attempts=2)])
        for _ in range(2 * MAX_LEASES_PER_ATTEMPT):
            assert len(await jobs.lease(["work"], holder="me", seconds=5)) == 1
            clock.advance(6)
        assert await jobs.lease(["work"], holder="me") == []
        assert [job.key for job in await jobs.find(state="dead")] == ["w"]
        assert len(await log.read("instance", kinds=[JobDied.kind])) == 1

    async def test_a_result_and_further_jobs_are_recorded_on_completion(self, jobs: Jobs, log: Log) -> None:
        await jobs.enqueue([NewJob("work", key="w")])
        (job,) = await jobs.lease(["work"], holder="me")
        events = await jobs.complete(job, [effect_event("done")], [NewJob("work", key="next")])
        assert turn_texts(events) == ["done"]
        assert [job.key for job in await jobs.lease(["work"], holder="me", limit=9)] == ["next"]
        assert [job.key for job in await jobs.find(state="done")] == ["w"]

    async def test_s22_a_rewind_withdraws_jobs_and_a_redo_reinstates_them(self, jobs: Jobs, log: Log) -> None:
        await log.append([turn_event("room:a", "one")], jobs=[NewJob("work", key="w1")])
        await log.append([turn_event("room:a", "two")], jobs=[NewJob("work", key="w2")])
        (running,) = await jobs.lease(["work"], holder="me")
        assert running.key == "w1"
        await log.rewind("room:a", 0)
        with pytest.raises(LeaseLost, match="was rewound"):
            await jobs.complete(running, [effect_event("of a turn that no longer counts")])
        assert await jobs.lease(["work"], holder="me", limit=9) == []
        await log.redo("room:a")
        assert [job.key for job in await jobs.lease(["work"], holder="me", limit=9)] == ["w1", "w2"]
