"""Doing what is on the timetable: each run is a job, asked for in the transaction that settled when it is due. D15

A run looks at nothing but its prompt, has two minutes, and asks for the next one when it is recorded; so what was
missed while the machine was off is caught up with one run, and no crash loses or repeats one. Three failures in a row
switch a schedule off, and the person is told.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

from coterie.base.clock import Clock, to_micros
from coterie.base.redaction import redact
from coterie.eventstore import Job, NewEvent, NewJob, Store
from coterie.eventstore.worker import JobResult
from coterie.llm.errors import ModelError
from coterie.modes.desk.agents.channel import Channel
from coterie.modes.desk.agents.processes import AgentDeps
from coterie.modes.desk.errors import BadSchedule
from coterie.modes.desk.events import ScheduleRan, ScheduleRemoved, ScheduleSwitched, ScheduleTime
from coterie.modes.desk.jobs import WAKE_PREFIX, ChannelOutcome, plan_schedule, schedule_job
from coterie.modes.desk.queries import DeskSchedule, ScheduleQueries

RUN_TIMEOUT_S = 120.0
MOST_FAILURES = 3
_VANISHED = "It was begun as often as it may be, and never came to an end."


class ScheduleService:
    def __init__(
        self, store: Store, deps: AgentDeps, channel: Channel, clock: Clock, *, patience_s: float = RUN_TIMEOUT_S
    ) -> None:
        self._store = store
        self._deps = deps
        self._channel = channel
        self._clock = clock
        self._patience_s = patience_s
        self.queries = ScheduleQueries(store)

    async def set(
        self, room: str, prompt: str, when: ScheduleTime, *, schedule: str = "", actor: str = "system"
    ) -> str:
        """A new one, or a changed one. It is recorded with its first run."""
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
            raise BadSchedule("Its moment is over.", "Give it another one.")
        event = NewEvent(room, ScheduleSwitched(schedule=schedule, on=on, next=due), actor)
        await self._store.append([event], jobs=[self._run_at(room, schedule, due)] if due else [])

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
            async with asyncio.timeout(self._patience_s):
                model = await self._channel.run_schedule(chat, outcome, found.prompt)
        except TimeoutError:
            return self._failed(found, f"It took longer than {self._patience_s:.0f} s.")
        except ModelError as error:
            return self._failed(found, redact(str(error)))
        result = outcome.job_result(model)
        told = redact("\n\n".join(outcome.replies))
        after = self._after(found)
        ran = ScheduleRan(
            schedule=found.id, due=found.next, end="told" if told else "nothing", told=told[:500], next=after
        )
        jobs = [self._run_at(found.room, found.id, after)] if after else []
        return JobResult([NewEvent(found.room, ran, "schedule"), *result.new_events], [*result.jobs, *jobs])

    async def fail_lost_runs(self) -> int:
        """A run whose job was given up counts as a failure; how many there were."""
        lost = [found for found in self.queries.all() if found.on and found.next and not self._owed(found)]
        # Looked at twice: a run may have been recorded between looking at the timetable and at the jobs.
        lost = [found for found in lost if self.queries.find(found.room, found.id) == found]
        for found in lost:
            result = self._failed(found, _VANISHED)
            await self._store.append(result.new_events, jobs=result.jobs)
        return len(lost)

    def _failed(self, found: DeskSchedule, why: str) -> JobResult:
        over = found.failures + 1 >= MOST_FAILURES
        after = None if over else self._after(found)
        due = found.next or self._clock.now()
        ran = ScheduleRan(schedule=found.id, due=due, end="failed", told=why, next=after)
        events = [NewEvent(found.room, ran, "schedule")]
        if not over:
            return JobResult(events, [self._run_at(found.room, found.id, after)] if after else [])
        events.append(NewEvent(found.room, ScheduleSwitched(schedule=found.id, on=False, why=why), "schedule"))
        outcome = ChannelOutcome(self._deps.queries.chat(found.room), f"{WAKE_PREFIX}{found.id}:{to_micros(due)}")
        outcome.replies.append(
            f"“{found.prompt[:200]}” failed {MOST_FAILURES} times in a row, so I switched that schedule off. {why}"
        )
        told = outcome.job_result()
        return JobResult([*events, *told.new_events], told.jobs)

    def _after(self, found: DeskSchedule) -> datetime | None:
        """From now, not from when it was due: what was missed is caught up with this one run."""
        return None if found.when.once else found.when.due_after(self._clock.now())

    def _run_at(self, room: str, schedule: str, due: datetime) -> NewJob:
        return schedule_job(room, schedule, due, self._clock.now())

    def _owed(self, found: DeskSchedule) -> bool:
        key = self._run_at(found.room, found.id, found.next or self._clock.now()).key
        return self._store.reader.jobs.state_of(key) in ("ready", "leased")
