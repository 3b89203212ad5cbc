"""What every process at the desk has at hand: where to read, what to tell its model, whom to ask, what to keep in."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.llm.router import Models
from coterie.modes.desk.briefing import PromptBuilder
from coterie.modes.desk.leaks import LeakGuard
from coterie.modes.desk.officebook import DeskQueries
from coterie.modes.desk.processes import Processes
from coterie.modes.desk.skills import Skills
from coterie.modes.desk.timetable import ScheduleQueries


@dataclass(frozen=True)
class AgentDeps:
    queries: DeskQueries
    prompts: PromptBuilder
    processes: Processes
    models: Models
    guard: LeakGuard
    schedules: ScheduleQueries
    skills: Skills
