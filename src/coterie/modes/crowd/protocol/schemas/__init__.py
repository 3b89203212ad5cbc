"""The JSON Schemas as files. `python -m coterie.modes.crowd.protocol.schemas` writes them anew from the models."""

from __future__ import annotations

import json
from pathlib import Path

from coterie.modes.crowd.protocol.messages import AuditRecord, ChatMessage, ChatPost, StreamContext, Trends, WireMessage

MESSAGE_TYPES: tuple[type[WireMessage], ...] = (ChatPost, ChatMessage, StreamContext, Trends, AuditRecord)
FOLDER = Path(__file__).parent
EXAMPLES = FOLDER.parent / "examples"


def schema_text(shape: type[WireMessage]) -> str:
    return json.dumps(shape.json_schema(), indent=2, ensure_ascii=False) + "\n"
