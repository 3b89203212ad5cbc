"""The messages between gateway, personas, stream services and pages, and their subjects.

Each message is a pydantic model, a JSON Schema in `schemas/` and an example in `examples/`; tests keep them in step.
Fields may be added to a version; a field that is removed or changes its type or meaning needs a new version.
"""

from coterie.modes.crowd.protocol.messages import (
    AuditRecord,
    ChatAuthor,
    ChatMessage,
    ChatPost,
    SenderPost,
    StreamContext,
    StreamEvent,
    Subjects,
    Trace,
    Trends,
    Vision,
    parse_post_answer,
)

__all__ = [
    "AuditRecord",
    "ChatAuthor",
    "ChatMessage",
    "ChatPost",
    "SenderPost",
    "StreamContext",
    "StreamEvent",
    "Subjects",
    "Trace",
    "Trends",
    "Vision",
    "parse_post_answer",
]
