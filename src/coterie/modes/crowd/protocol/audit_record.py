"""What was done to a message or its author, by which rule, and why. Nothing is dropped silently. C4, C16"""

from __future__ import annotations

from typing import Literal

from coterie.modes.crowd.protocol.chat_message import ChatAuthor, RoomName
from coterie.modes.crowd.protocol.wire import WireMessage

AuditAction = Literal[
    "refused", "redacted", "flagged", "dropped", "timeout", "ban", "pardon", "setting", "killed", "revived"
]


class AuditRecord(WireMessage):
    shape = "audit_record"

    room: RoomName
    ts: int
    action: AuditAction
    rule: str
    """Which rule, by its name in the configuration: `blocklist:slur`, `rate`, `links`, `redact:email`."""
    reason: str
    """In words that a moderator can read. Never holds what was redacted."""
    author: ChatAuthor
    message: str | None = None
    """The id of the message, where one came of it; else the sender's own id."""
    by: str = "gateway"
