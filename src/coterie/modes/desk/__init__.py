"""Desk: a character that gets work done and never goes silent while it works.

This is what surfaces may use of it; the rest is its own business.
"""

from coterie.modes.desk.conversation import DeskConversation
from coterie.modes.desk.desk import DeskService
from coterie.modes.desk.errors import BadSchedule, DeskError, NoSuchProcess, NoSuchSkill, NotConfirmed
from coterie.modes.desk.officebook import DeskChat, Process, WorkerStep
from coterie.modes.desk.sandbox import SandboxStatus
from coterie.modes.desk.skills import Skill
from coterie.modes.desk.timetable import DeskSchedule
from coterie.modes.desk.toolservers import McpServerState
from coterie.modes.desk.when import ScheduleTime

__all__ = [
    "BadSchedule",
    "DeskService",
    "DeskChat",
    "DeskConversation",
    "DeskError",
    "NoSuchProcess",
    "NoSuchSkill",
    "NotConfirmed",
    "Process",
    "DeskSchedule",
    "McpServerState",
    "Skill",
    "SandboxStatus",
    "WorkerStep",
    "ScheduleTime",
]
