"""Desk mode: a character that does tasks with files and commands and answers while they run."""

from coterie.modes.desk.agents.tools import McpServerState
from coterie.modes.desk.errors import BadSchedule, DeskError, NoSuchProcess, NoSuchSkill, NotConfirmed
from coterie.modes.desk.events import ScheduleTime
from coterie.modes.desk.queries import DeskChat, DeskSchedule, Process, WorkerStep
from coterie.modes.desk.sandbox.sandbox import SandboxStatus
from coterie.modes.desk.service import DeskConversation, DeskService
from coterie.modes.desk.skills import Skill

__all__ = [
    "BadSchedule",
    "DeskChat",
    "DeskConversation",
    "DeskError",
    "DeskSchedule",
    "DeskService",
    "McpServerState",
    "NoSuchProcess",
    "NoSuchSkill",
    "NotConfirmed",
    "Process",
    "SandboxStatus",
    "ScheduleTime",
    "Skill",
    "WorkerStep",
]
