"""What every process at the desk has at hand: where to read, what to tell its model, whom to ask, what to keep in."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.llm.router import Models
from coterie.modes.desk.briefing import Briefing
from coterie.modes.desk.leaks import LeakGuard
from coterie.modes.desk.officebook import OfficeBook
from coterie.modes.desk.processes import Processes
from coterie.modes.desk.skills import Skills
from coterie.modes.desk.timetable import ScheduleBook


@dataclass(frozen=True)
class Kit:
    book: OfficeBook
    briefing: Briefing
    processes: Processes
    models: Models
    guard: LeakGuard
    schedules: ScheduleBook
    skills: Skills
