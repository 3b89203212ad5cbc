"""Desk: a character that gets work done and never goes silent while it works.

This is what surfaces may use of it; the rest is its own business.
"""

from coterie.modes.desk.conversation import DeskConversation
from coterie.modes.desk.desk import Desk
from coterie.modes.desk.errors import BadSchedule, DeskError, NoSuchProcess, NoSuchSkill, NotConfirmed
from coterie.modes.desk.officebook import DeskChat, Process, Step
from coterie.modes.desk.sandbox import Standing
from coterie.modes.desk.skills import Skill
from coterie.modes.desk.timetable import Scheduled
from coterie.modes.desk.toolservers import ServerState
from coterie.modes.desk.when import When

__all__ = [
    "BadSchedule",
    "Desk",
    "DeskChat",
    "DeskConversation",
    "DeskError",
    "NoSuchProcess",
    "NoSuchSkill",
    "NotConfirmed",
    "Process",
    "Scheduled",
    "ServerState",
    "Skill",
    "Standing",
    "Step",
    "When",
]
