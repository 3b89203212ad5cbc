"""Changes as JSON that the provider itself holds to a schema: for models too small to keep to any other form. F5

The schema lists the document's own sentences as the only originals there are, so that even the embedded model cannot
misquote. The price is that nothing of the reply can be told before all of it is there.
"""

from __future__ import annotations

import json
import re

from pydantic import BaseModel, ConfigDict, ValidationError

from coterie.llm.messages import OutputSchema
from coterie.modes.draft.blocks import BrokenBlock, EditBlock, ReplyParser, ReplyPart, ReplyText
from coterie.modes.draft.fences import FenceStripper
from coterie.modes.draft.tags import TagParser

_SENTENCE = re.compile(r"[^\s#>|`*+-][^\n]*?(?:[.!?](?=\s|\Z)|(?=\n)|\Z)")
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_SHORTEST, _MOST_SENTENCES, _MOST_CHANGES = 12, 60, 3


class _Change(BaseModel):
    model_config = ConfigDict(extra="ignore")

    original: str
    proposed: str
    reason: str = ""


class _Reply(BaseModel):
    model_config = ConfigDict(extra="ignore")

    say: str = ""
    changes: list[_Change] = []


class JsonParser:
    """Whoever answers without JSON, a provider that knows no schemas or a script, is read as one who writes tags."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._tags: ReplyParser | None = None
        self._is_json = False

    def feed(self, text: str) -> list[ReplyPart]:
        if self._tags is not None:
            return self._tags.feed(text)
        self._parts.append(text)
        self._is_json = self._is_json or text.lstrip().startswith("{")
        if self._is_json or not text.strip():
            return []
        self._tags = FenceStripper(TagParser())
        return self._tags.feed("".join(self._parts))

    def end(self) -> list[ReplyPart]:
        if self._tags is not None:
            return self._tags.end()
        raw = "".join(self._parts)
        self._parts = []
        if not raw.strip():
            return [ReplyText(raw)] if raw else []
        try:
            reply = _Reply.model_validate(json.loads(raw))
        except (ValueError, ValidationError, RecursionError):
            return [ReplyText(raw), BrokenBlock("garbled")]
        said: list[ReplyPart] = [ReplyText(reply.say)] if reply.say else []
        # Small models repeat themselves.
        for change in {(one.original, one.proposed): one for one in reply.changes}.values():
            if change.original != change.proposed and (change.original.strip() or change.proposed.strip()):
                block = change.model_dump_json()
                said.append(EditBlock(change.original, change.proposed, change.reason.strip(), block))
        return said


def reply_schema(document: str) -> OutputSchema:
    """What a reply about this document may be."""
    sentences = quotable_sentences(document)
    original: dict[str, object] = {"type": "string", "enum": sentences} if sentences else {"type": "string"}
    text = {"type": "string", "maxLength": 400}
    change = {
        "type": "object",
        "properties": {"original": original, "proposed": text, "reason": {"type": "string", "maxLength": 160}},
        "required": ["original", "proposed", "reason"],
        "additionalProperties": False,
    }
    return OutputSchema(
        name="Reply",
        definition={
            "type": "object",
            "properties": {"say": text, "changes": {"type": "array", "items": change, "maxItems": _MOST_CHANGES}},
            "required": ["say", "changes"],
            "additionalProperties": False,
        },
    )


def quotable_sentences(document: str) -> list[str]:
    """Sentences of the prose that stand there once: code is left alone."""
    prose = _FENCED.sub(lambda code: "\n" * code.group().count("\n"), document)
    found = dict.fromkeys(match.group().strip() for match in _SENTENCE.finditer(prose))
    return [one for one in found if len(one) >= _SHORTEST and document.count(one) == 1][:_MOST_SENTENCES]
