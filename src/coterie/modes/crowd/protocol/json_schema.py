"""The JSON Schema files of the wire messages.

`python -m coterie.modes.crowd.protocol.json_schema` writes them again from the pydantic models.
"""

from __future__ import annotations

import json
from pathlib import Path

from coterie.modes.crowd.protocol.messages import AuditRecord, ChatMessage, ChatPost, StreamContext, Trends, WireMessage

MESSAGE_TYPES: tuple[type[WireMessage], ...] = (ChatPost, ChatMessage, StreamContext, Trends, AuditRecord)
SCHEMAS = Path(__file__).parent / "schemas"
EXAMPLES = Path(__file__).parent / "examples"


def schema_text(message_type: type[WireMessage]) -> str:
    return json.dumps(message_type.json_schema(), indent=2, ensure_ascii=False) + "\n"


def write_schemas() -> None:
    for message_type in MESSAGE_TYPES:
        (SCHEMAS / f"{message_type.schema_name()}.json").write_text(schema_text(message_type), encoding="utf-8")


if __name__ == "__main__":
    write_schemas()
