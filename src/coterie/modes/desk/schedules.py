"""Doing what is on the timetable: each run is a job, asked for in the transaction that settled when it is due. D15

A run looks at nothing but its prompt, has two minutes, and asks for the next one when it is recorded; so what was
missed while the machine was off is caught up with one run, and no crash loses or repeats one. Three failures in a row
switch a schedule off, and the person is told.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

from coterie.base.clock import Clock, to_micros
from coterie.base.masking import mask
from coterie.kernel import Draft, Job, NewJob, Store
from coterie.kernel.worker import Outcome
from coterie.llm.errors import ModelError
from coterie.modes.desk.channel import Channel
from coterie.modes.desk.errand import WOKEN, Errand
from coterie.modes.desk.errors import BadSchedule
from coterie.modes.desk.events import ScheduleRan, ScheduleRemoved, ScheduleSwitched
from coterie.modes.desk.kit import Kit
from coterie.modes.desk.planning import plan_schedule, run_job
from coterie.modes.desk.timetable import ScheduleBook, Scheduled
from coterie.modes.desk.when import When

PATIENCE_S = 120.0
MOST_FAILURES = 3
_VANISHED = "It was begun as often as it may be, and never came to an end."


class Schedules:
    def __init__(
        self, store: Store, kit: Kit, channel: Channel, clock: Clock, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._store = store
        self._kit = kit
        self._channel = channel
        self._clock = clock
        self._patience_s = patience_s
        self.book = ScheduleBook(store)

    async def set(self, room: str, prompt: str, when: When, *, schedule: str = "", actor: str = "system") -> str:
        """A new one, or a changed one. It is recorded with its first run."""
        self._kit.book.chat(room)
        if schedule:
            self.book.one(room, schedule)
        self._kit.guard.check(prompt, "a schedule")
        plan = plan_schedule(room, prompt, when, now=self._clock.now(), schedule=schedule, actor=actor)
        await self._store.append([plan.draft], jobs=[plan.job])
        return plan.schedule

    async def switch(self, room: str, schedule: str, *, on: bool, actor: str = "system") -> None:
        found = self.book.one(room, schedule)
        if found.on == on and (found.next is not None or not on):
            return
        due = found.when.due_after(self._clock.now()) if on else None
        if on and due is None:
            raise BadSchedule("Its moment is over.", "Give it another one.")
        draft = Draft(room, ScheduleSwitched(schedule=schedule, on=on, next=due), actor)
        await self._store.append([draft], jobs=[self._run_at(room, schedule, due)] if due else [])

    async def remove(self, room: str, schedule: str, *, actor: str = "system") -> None:
        self.book.one(room, schedule)
        await self._store.append([Draft(room, ScheduleRemoved(schedule=schedule), actor)])

    async def run(self, job: Job) -> Outcome | None:
        found = self.book.find(str(job.payload["room"]), str(job.payload["schedule"]))
        if found is None or not found.on or found.next is None or to_micros(found.next) != job.payload["due"]:
            return None  # changed, switched off or removed since
        chat = self._kit.book.chat(found.room)
        errand = Errand(chat, f"{WOKEN}{job.id}")
        try:
            async with asyncio.timeout(self._patience_s):
                model = await self._channel.alone(chat, errand, found.prompt)
        except TimeoutError:
            return self._failed(found, f"It took longer than {self._patience_s:.0f} s.")
        except ModelError as error:
            return self._failed(found, mask(str(error)))
        outcome = errand.outcome(model)
        told = mask("\n\n".join(errand.said))
        after = self._after(found)
        ran = ScheduleRan(
            schedule=found.id, due=found.next, end="told" if told else "nothing", told=told[:500], next=after
        )
        jobs = [self._run_at(found.room, found.id, after)] if after else []
        return Outcome([Draft(found.room, ran, "schedule"), *outcome.drafts], [*outcome.jobs, *jobs])

    async def mend(self) -> int:
        """A run whose job was given up counts as a failure; how many there were."""
        lost = [found for found in self.book.all() if found.on and found.next and not self._owed(found)]
        # Looked at twice: a run may have been recorded between looking at the timetable and at the jobs.
        lost = [found for found in lost if self.book.find(found.room, found.id) == found]
        for found in lost:
            outcome = self._failed(found, _VANISHED)
            await self._store.append(outcome.drafts, jobs=outcome.jobs)
        return len(lost)

    def _failed(self, found: Scheduled, why: str) -> Outcome:
        over = found.failures + 1 >= MOST_FAILURES
        after = None if over else self._after(found)
        due = found.next or self._clock.now()
        ran = ScheduleRan(schedule=found.id, due=due, end="failed", told=why, next=after)
        drafts = [Draft(found.room, ran, "schedule")]
        if not over:
            return Outcome(drafts, [self._run_at(found.room, found.id, after)] if after else [])
        drafts.append(Draft(found.room, ScheduleSwitched(schedule=found.id, on=False, why=why), "schedule"))
        errand = Errand(self._kit.book.chat(found.room), f"{WOKEN}{found.id}:{to_micros(due)}")
        errand.said.append(
            f"“{found.prompt[:200]}” failed {MOST_FAILURES} times in a row, so I switched that schedule off. {why}"
        )
        told = errand.outcome()
        return Outcome([*drafts, *told.drafts], told.jobs)

    def _after(self, found: Scheduled) -> datetime | None:
        """From now, not from when it was due: what was missed is caught up with this one run."""
        return None if found.when.once else found.when.due_after(self._clock.now())

    def _run_at(self, room: str, schedule: str, due: datetime) -> NewJob:
        return run_job(room, schedule, due, self._clock.now())

    def _owed(self, found: Scheduled) -> bool:
        key = self._run_at(found.room, found.id, found.next or self._clock.now()).key
        return self._store.reader.jobs.state_of(key) in ("ready", "leased")
