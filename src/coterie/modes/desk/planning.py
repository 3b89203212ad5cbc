"""Putting something on the timetable: what is recorded for it, and the job of its next run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from coterie.base.clock import to_micros
from coterie.kernel import NewEvent, NewJob
from coterie.modes.desk.errand import SCHEDULE_JOB, WORKER_PRIORITY, short_id
from coterie.modes.desk.errors import BadSchedule
from coterie.modes.desk.events import ScheduleSet
from coterie.modes.desk.when import ScheduleTime


@dataclass(frozen=True)
class PlannedSchedule:
    schedule: str
    new_event: NewEvent
    job: NewJob


def plan_schedule(
    room: str, prompt: str, when: ScheduleTime, *, now: datetime, schedule: str = "", actor: str
) -> PlannedSchedule:
    """The first run waits its interval."""
    when.check()
    due = when.due_after(now)
    if due is None:
        raise BadSchedule("That moment is over.", "Choose one that is still to come.")
    name = schedule or short_id("s")
    draft = NewEvent(room, ScheduleSet(schedule=name, prompt=prompt, when=when, next=due), actor)
    return PlannedSchedule(name, draft, schedule_job(room, name, due, now))


def schedule_job(room: str, schedule: str, due: datetime, now: datetime) -> NewJob:
    delay_s = max((due - now) / timedelta(seconds=1), 0.0)
    payload = {"room": room, "schedule": schedule, "due": to_micros(due)}
    key = f"{SCHEDULE_JOB}:{room}:{schedule}:{to_micros(due)}"
    return NewJob(SCHEDULE_JOB, key, payload, delay_s=delay_s, priority=WORKER_PRIORITY)
