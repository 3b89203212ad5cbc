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
        self,
        room: str,
        prompt: str,
        when: ScheduleTime,
        *,
        schedule: str = "",
        to: str = "",
        actor: str = "system",
    ) -> str:
        """Add or change a schedule, and enqueue its first run; returns its id.

        `to` names the room on a surface that gets what it says, such as `telegram: Kitchen`; empty: those of the
        conversation.
        """
        chat = self._deps.queries.chat(room)
        target = self._deps.queries.find_delivery_room(chat.person, to) if to else None
        if schedule:
            self.queries.get(room, schedule)
        self._deps.guard.check(prompt, "a schedule")
        plan = plan_schedule(room, prompt, when, now=self._clock.now(), schedule=schedule, actor=actor, to=target)
        await self._store.append([plan.new_event], jobs=[plan.job])
        return plan.schedule

    async def switch(self, room: str, schedule: str, *, on: bool, actor: str = "system") -> None:
        current = self.queries.get(room, schedule)
        if current.on == on and (current.next is not None or not on):
            return
        due = current.when.due_after(self._clock.now()) if on else None
        if on and due is None:
            raise BadSchedule("Its time has passed.", "Choose a time in the future.")
        switched = NewEvent(room, ScheduleSwitched(schedule=schedule, on=on, next=due), actor)
        await self._store.append([switched], jobs=[self._run_job(room, schedule, due)] if due else [])

    async def remove(self, room: str, schedule: str, *, actor: str = "system") -> None:
        self.queries.get(room, schedule)
        await self._store.append([NewEvent(room, ScheduleRemoved(schedule=schedule), actor)])

    async def run(self, job: Job) -> JobResult | None:
        schedule = self.queries.find(str(job.payload["room"]), str(job.payload["schedule"]))
        if (
            schedule is None
            or not schedule.on
            or schedule.next is None
            or to_micros(schedule.next) != job.payload["due"]
        ):
            return None  # changed, switched off or removed since
        chat = self._deps.queries.chat(schedule.room)
        outcome = ChannelOutcome(chat, f"{WAKE_PREFIX}{job.id}", deliver_to=schedule.to)
        try:
            async with asyncio.timeout(self._timeout_s):
                model = await self._channel.run_schedule(chat, outcome, schedule.prompt)
        except TimeoutError:
            return self._failure_result(schedule, f"It took longer than {self._timeout_s:.0f} s.")
        except ModelError as error:
            return self._failure_result(schedule, redact(str(error)))
        result = outcome.job_result(model)
        text = redact("\n\n".join(outcome.replies))
        after = self._next_due(schedule)
        ran = ScheduleRan(
            schedule=schedule.id, due=schedule.next, end="replied" if text else "nothing", output=text[:500], next=after
        )
        jobs = [self._run_job(schedule.room, schedule.id, after)] if after else []
        return JobResult([NewEvent(schedule.room, ran, "schedule"), *result.new_events], [*result.jobs, *jobs])

    async def fail_lost_runs(self) -> int:
        """Count runs whose job was given up as failures; returns how many."""
        lost = [
            schedule for schedule in self.queries.all() if schedule.on and schedule.next and not self._has_job(schedule)
        ]
        # Read again: a run may have been stored between reading the schedules and the jobs.
        lost = [schedule for schedule in lost if self.queries.find(schedule.room, schedule.id) == schedule]
        for schedule in lost:
            result = self._failure_result(schedule, _GIVEN_UP)
            await self._store.append(result.new_events, jobs=result.jobs)
        return len(lost)

    def _failure_result(self, schedule: DeskSchedule, why: str) -> JobResult:
        give_up = schedule.failures + 1 >= MAX_FAILURES
        after = None if give_up else self._next_due(schedule)
        due = schedule.next or self._clock.now()
        ran = ScheduleRan(schedule=schedule.id, due=due, end="failed", output=why, next=after)
        new_events = [NewEvent(schedule.room, ran, "schedule")]
        if not give_up:
            return JobResult(new_events, [self._run_job(schedule.room, schedule.id, after)] if after else [])
        new_events.append(
            NewEvent(schedule.room, ScheduleSwitched(schedule=schedule.id, on=False, why=why), "schedule")
        )
        answers = f"{WAKE_PREFIX}{schedule.id}:{to_micros(due)}"
        outcome = ChannelOutcome(self._deps.queries.chat(schedule.room), answers, deliver_to=schedule.to)
        outcome.replies.append(
            f"“{schedule.prompt[:200]}” failed {MAX_FAILURES} times in a row, so I switched that schedule off. {why}"
        )
        result = outcome.job_result()
        return JobResult([*new_events, *result.new_events], result.jobs)

    def _next_due(self, schedule: DeskSchedule) -> datetime | None:
        """Counted from now, not from when it was due, so that missed runs are not repeated; None if it is never due."""
        try:
            return None if schedule.when.once else schedule.when.due_after(self._clock.now())
        except BadSchedule:
            return None

    def _run_job(self, room: str, schedule: str, due: datetime) -> NewJob:
        return schedule_job(room, schedule, due, self._clock.now())

    def _has_job(self, schedule: DeskSchedule) -> bool:
        key = self._run_job(schedule.room, schedule.id, schedule.next or self._clock.now()).key
        return self._store.reader.jobs.state_of(key) in ("ready", "leased")
