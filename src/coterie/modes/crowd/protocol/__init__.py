"""The contract between gateway, personas, context services and pages: what travels, and on which subjects.

Each shape is a pydantic model here, a JSON Schema in `schemas/` and an instance in `examples/`; tests hold the three
together. Fields may be added to a version; a field that changes its meaning, its type or goes away makes a new version
beside the old one. Whoever reads keeps fields it does not know and passes them on.
"""

from coterie.modes.crowd.protocol.messages import (
    AuditRecord,
    ChatAuthor,
    ChatMessage,
    ChatPost,
    StreamContext,
    StreamEvent,
    Subjects,
    Trace,
    Trends,
    Vision,
)

__all__ = [
    "AuditRecord",
    "ChatAuthor",
    "ChatMessage",
    "ChatPost",
    "StreamContext",
    "StreamEvent",
    "Subjects",
    "Trace",
    "Trends",
    "Vision",
]
