"""Putting something on the timetable: what is recorded for it, and the job of its next run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from coterie.base.clock import to_micros
from coterie.kernel import Draft, NewJob
from coterie.modes.desk.errand import SCHEDULE, WORKS, short_id
from coterie.modes.desk.errors import BadSchedule
from coterie.modes.desk.events import ScheduleSet
from coterie.modes.desk.when import When


@dataclass(frozen=True)
class Plan:
    schedule: str
    draft: Draft
    job: NewJob


def plan_schedule(room: str, prompt: str, when: When, *, now: datetime, schedule: str = "", actor: str) -> Plan:
    """The first run waits its interval."""
    when.check()
    due = when.due_after(now)
    if due is None:
        raise BadSchedule("That moment is over.", "Choose one that is still to come.")
    name = schedule or short_id("s")
    draft = Draft(room, ScheduleSet(schedule=name, prompt=prompt, when=when, next=due), actor)
    return Plan(name, draft, run_job(room, name, due, now))


def run_job(room: str, schedule: str, due: datetime, now: datetime) -> NewJob:
    delay_s = max((due - now) / timedelta(seconds=1), 0.0)
    payload = {"room": room, "schedule": schedule, "due": to_micros(due)}
    key = f"{SCHEDULE}:{room}:{schedule}:{to_micros(due)}"
    return NewJob(SCHEDULE, key, payload, delay_s=delay_s, priority=WORKS)
