"""Schedules: commands to change them, and the jobs that run them."""

from __future__ import annotations

import asyncio
from datetime import datetime

from coterie.base.clock import Clock, to_micros
from coterie.base.redaction import redact
from coterie.eventstore import Job, JobResult, NewEvent, NewJob, Store
from coterie.llm import ModelError
from coterie.modes.desk.agents.channel import Channel
from coterie.modes.desk.agents.processes import AgentDeps
from coterie.modes.desk.errors import BadSchedule
from coterie.modes.desk.events import ScheduleRan, ScheduleRemoved, ScheduleSwitched, ScheduleTime
from coterie.modes.desk.jobs import WAKE_PREFIX, ChannelOutcome, plan_schedule, schedule_job
from coterie.modes.desk.queries import DeskSchedule, ScheduleQueries

RUN_TIMEOUT_S = 120.0
MAX_FAILURES = 3
_GIVEN_UP = "It was retried as often as allowed and never finished."


class ScheduleService:
    """Each run is a job that is enqueued in the transaction that determines its time.

    A run sees only its prompt and has `RUN_TIMEOUT_S`. Its result and the next job are stored together: runs missed
    while the server was down are replaced by one, and a crash neither loses nor repeats a run. `MAX_FAILURES` in a row
    switch a schedule off with a message to the person.
    """

    def __init__(
        self, store: Store, deps: AgentDeps, channel: Channel, clock: Clock, *, timeout_s: float = RUN_TIMEOUT_S
    ) -> None:
        self._store = store
        self._deps = deps
        self._channel = channel
        self._clock = clock
        self._timeout_s = timeout_s
        self.queries = ScheduleQueries(store)

    async def set(
        self, room: str, prompt: str, when: ScheduleTime, *, schedule: str = "", actor: str = "system"
    ) -> str:
        """Add or change a schedule, and enqueue its first run; returns its id."""
        self._deps.queries.chat(room)
        if schedule:
            self.queries.get(room, schedule)
        self._deps.guard.check(prompt, "a schedule")
        plan = plan_schedule(room, prompt, when, now=self._clock.now(), schedule=schedule, actor=actor)
        await self._store.append([plan.new_event], jobs=[plan.job])
        return plan.schedule

    async def switch(self, room: str, schedule: str, *, on: bool, actor: str = "system") -> None:
        found = self.queries.get(room, schedule)
        if found.on == on and (found.next is not None or not on):
            return
        due = found.when.due_after(self._clock.now()) if on else None
        if on and due is None:
            raise BadSchedule("Its time has passed.", "Choose a time in the future.")
        switched = NewEvent(room, ScheduleSwitched(schedule=schedule, on=on, next=due), actor)
        await self._store.append([switched], jobs=[self._run_at(room, schedule, due)] if due else [])

    async def remove(self, room: str, schedule: str, *, actor: str = "system") -> None:
        self.queries.get(room, schedule)
        await self._store.append([NewEvent(room, ScheduleRemoved(schedule=schedule), actor)])

    async def run(self, job: Job) -> JobResult | None:
        found = self.queries.find(str(job.payload["room"]), str(job.payload["schedule"]))
        if found is None or not found.on or found.next is None or to_micros(found.next) != job.payload["due"]:
            return None  # changed, switched off or removed since
        chat = self._deps.queries.chat(found.room)
        outcome = ChannelOutcome(chat, f"{WAKE_PREFIX}{job.id}")
        try:
            async with asyncio.timeout(self._timeout_s):
                model = await self._channel.run_schedule(chat, outcome, found.prompt)
        except TimeoutError:
            return self._failed(found, f"It took longer than {self._timeout_s:.0f} s.")
        except ModelError as error:
            return self._failed(found, redact(str(error)))
        result = outcome.job_result(model)
        text = redact("\n\n".join(outcome.replies))
        after = self._after(found)
        ran = ScheduleRan(
            schedule=found.id, due=found.next, end="replied" if text else "nothing", output=text[:500], next=after
        )
        jobs = [self._run_at(found.room, found.id, after)] if after else []
        return JobResult([NewEvent(found.room, ran, "schedule"), *result.new_events], [*result.jobs, *jobs])

    async def fail_lost_runs(self) -> int:
        """Count runs whose job was given up as failures; returns how many."""
        lost = [found for found in self.queries.all() if found.on and found.next and not self._has_job(found)]
        # Read again: a run may have been stored between reading the schedules and the jobs.
        lost = [found for found in lost if self.queries.find(found.room, found.id) == found]
        for found in lost:
            result = self._failed(found, _GIVEN_UP)
            await self._store.append(result.new_events, jobs=result.jobs)
        return len(lost)

    def _failed(self, found: DeskSchedule, why: str) -> JobResult:
        give_up = found.failures + 1 >= MAX_FAILURES
        after = None if give_up else self._after(found)
        due = found.next or self._clock.now()
        ran = ScheduleRan(schedule=found.id, due=due, end="failed", output=why, next=after)
        new_events = [NewEvent(found.room, ran, "schedule")]
        if not give_up:
            return JobResult(new_events, [self._run_at(found.room, found.id, after)] if after else [])
        new_events.append(NewEvent(found.room, ScheduleSwitched(schedule=found.id, on=False, why=why), "schedule"))
        outcome = ChannelOutcome(self._deps.queries.chat(found.room), f"{WAKE_PREFIX}{found.id}:{to_micros(due)}")
        outcome.replies.append(
            f"“{found.prompt[:200]}” failed {MAX_FAILURES} times in a row, so I switched that schedule off. {why}"
        )
        result = outcome.job_result()
        return JobResult([*new_events, *result.new_events], result.jobs)

    def _after(self, found: DeskSchedule) -> datetime | None:
        """Counted from now, not from when it was due, so that missed runs are not repeated."""
        return None if found.when.once else found.when.due_after(self._clock.now())

    def _run_at(self, room: str, schedule: str, due: datetime) -> NewJob:
        return schedule_job(room, schedule, due, self._clock.now())

    def _has_job(self, found: DeskSchedule) -> bool:
        key = self._run_at(found.room, found.id, found.next or self._clock.now()).key
        return self._store.reader.jobs.state_of(key) in ("ready", "leased")
