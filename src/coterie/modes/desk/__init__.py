"""Desk: a character that gets work done and never goes silent while it works.

This is what surfaces may use of it; the rest is its own business.
"""

from coterie.modes.desk.conversation import DeskConversation
from coterie.modes.desk.desk import Desk
from coterie.modes.desk.errors import DeskError, NoSuchProcess, NotConfirmed
from coterie.modes.desk.officebook import DeskChat, Line, Process
from coterie.modes.desk.sandbox import Standing

__all__ = [
    "Desk",
    "DeskChat",
    "DeskConversation",
    "DeskError",
    "Line",
    "NoSuchProcess",
    "NotConfirmed",
    "Process",
    "Standing",
]
