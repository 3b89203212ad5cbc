"""The contract between gateway, personas, context services and pages: what travels, and on which subjects.

Each shape is a pydantic model here, a JSON Schema in `schemas/` and an instance in `examples/`; tests hold the three
together. Fields may be added to a version; a field that changes its meaning, its type or goes away makes a new version
beside the old one. Whoever reads keeps fields it does not know and passes them on.
"""

from coterie.modes.crowd.protocol.audit_record import AuditRecord
from coterie.modes.crowd.protocol.chat_message import ChatAuthor, ChatMessage, ChatPost, Trace
from coterie.modes.crowd.protocol.stream_context import StreamContext, StreamEvent, Vision
from coterie.modes.crowd.protocol.subjects import Subjects
from coterie.modes.crowd.protocol.trends import Trends

__all__ = [
    "AuditRecord",
    "ChatAuthor",
    "ChatMessage",
    "ChatPost",
    "StreamEvent",
    "StreamContext",
    "Subjects",
    "Trace",
    "Trends",
    "Vision",
]
