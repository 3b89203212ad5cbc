"""The messages between gateway, personas, stream services and pages, and their subjects.

Each message is a pydantic model, a JSON Schema in `schemas/` and an example in `examples/`; tests keep them in step.
Fields may be added to a version; a field that is removed or changes its type or meaning needs a new version.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from coterie.base.paths import write_atomic
from coterie.modes.crowd.errors import BadWireMessage, MessageRefused

# The crowd's wire messages, their subjects and their JSON Schema files.
#
# Docstrings of messages and fields are the descriptions in the schema files, which `write_schemas` generates.


_set_attribute = object.__setattr__


class WireModel(BaseModel):
    """Part of a message. Unknown fields are kept, because a newer producer may send more."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)


class WireMessage(WireModel):
    message_type: ClassVar[str]
    version: ClassVar[int] = 1

    @classmethod
    def from_json(cls, raw: str | bytes) -> Self:
        """Parse JSON. Raises `BadWireMessage` with the first field that does not match."""
        try:
            return cls.model_validate_json(raw)
        except ValidationError as error:
            raise bad_wire_message(cls.message_type, error) from None

    @classmethod
    def from_validated(cls, fields: dict[str, Any], extra: dict[str, Any]) -> Self:
        """Create a message from all its fields, in order, without validating them again."""
        message = cls.__new__(cls)
        _set_attribute(message, "__dict__", fields)
        _set_attribute(message, "__pydantic_fields_set__", _all_fields(cls))
        _set_attribute(message, "__pydantic_extra__", extra)
        _set_attribute(message, "__pydantic_private__", None)
        return message

    @classmethod
    def schema_name(cls) -> str:
        return f"{cls.message_type}.v{cls.version}"

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"urn:coterie:crowd:{cls.message_type}:{cls.version}",
            **cls.model_json_schema(),
        }

    def to_json(self) -> str:
        """Return JSON without fields that are None."""
        return self.model_dump_json(exclude_none=True)


def bad_wire_message(message_type: str, error: ValidationError) -> BadWireMessage:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"])) or "message"
    return BadWireMessage(
        f"Not a valid {message_type}: {place}: {first['msg']}.", f"See schemas/{message_type}.v1.json."
    )


@cache
def _all_fields(message_type: type[WireMessage]) -> set[str]:
    """Shared by all messages of a type, which are frozen; a copy copies it."""
    return set(message_type.model_fields)


MAX_MESSAGE_CHARS = 500

ONE_LINE = r"^[^\x00-\x1f\x7f\u2028\u2029]+$"
AuthorName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f@\u2028\u2029]+$", max_length=40)]
LineText = Annotated[str, StringConstraints(pattern=ONE_LINE, max_length=MAX_MESSAGE_CHARS)]
MessageId = Annotated[str, StringConstraints(pattern=r"^[!-~]+$", max_length=64)]
RoomName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64)]
AuthorKind = Literal["human", "persona", "system"]
SpeakReason = Literal["base", "event", "mention", "reply", "trend", "greeting", "tease"]


RESERVED_NAMES = ("streamer", "system", "assistant", "user", "moderator", "gateway", "owner", "room")
"""Names that a guest cannot have, because prompts and audit records use them."""


class ChatAuthor(WireModel):
    name: AuthorName
    kind: AuthorKind
    badges: tuple[str, ...] = ()
    colour: Annotated[str, StringConstraints(pattern=r"^#[0-9a-f]{6}$")] | None = None


class Trace(WireModel):
    """Why a line was written, and when each stage on its way to the chat ended, in milliseconds since 1970."""

    because: SpeakReason | None = None
    spoken_ms: int | None = None
    """When the last of the stream's words that caused it was spoken."""
    heard_ms: int | None = None
    """When the words or the message that caused it arrived."""
    decided_ms: int | None = None
    written_ms: int | None = None
    posted_ms: int | None = None
    decision: str | None = None
    """The decision, as `persona@tick`."""
    model: str | None = None
    """What wrote the line: `provider/model`, or `phrasebook` for a line of the persona's file."""
    fallback: str | None = None
    """Why the model's line was not used, if the line is from the persona's file instead."""


class ChatPost(WireMessage):
    """A message as sent to the gateway, which decides whether it is admitted."""

    message_type = "chat_post"

    id: MessageId
    """Chosen by the sender; a post that repeats an id is admitted only once."""
    room: RoomName
    author: ChatAuthor
    text: str = Field(min_length=1)
    """Checked against the room's rules by the gateway, so that a violation is reported and audited."""
    reply_to: MessageId | None = None
    trace: Trace | None = None


class SenderPost(BaseModel):
    """What a person decides about a post. All other fields of it are ignored: the receiver sets them."""

    model_config = ConfigDict(frozen=True)

    id: MessageId
    room: RoomName
    text: str = Field(min_length=1)
    reply_to: MessageId | None = None

    @classmethod
    def from_json(cls, raw: str | bytes) -> Self:
        """Parse JSON. Raises `BadWireMessage` with the first field that does not match."""
        try:
            return cls.model_validate_json(raw)
        except ValidationError as error:
            raise bad_wire_message("chat_post", error) from None


class ChatMessage(WireMessage):
    message_type = "chat_message"

    id: MessageId
    """`room-number`; numbers increase, and a reader resumes after the last one it received."""
    number: int = Field(ge=1)
    room: RoomName
    author: ChatAuthor
    text: LineText
    reply_to: MessageId | None = None
    mentions: tuple[str, ...] = ()
    """Mentioned names, spelled as in the room."""
    emotes: tuple[str, ...] = ()
    ts: int
    """Milliseconds since 1970, by the gateway's clock."""
    nonce: MessageId | None = None
    """The id of the post."""
    trace: Trace | None = None


class _PostAnswer(BaseModel):
    """A gateway's answer to a post: the stored message, or why it was refused."""

    message: ChatMessage | None = None
    rule: str = ""
    error: str = ""
    fix: str = ""


def parse_post_answer(raw: str | bytes) -> ChatMessage:
    """The stored message. Raises `MessageRefused`, or `BadWireMessage` for what is not an answer."""
    try:
        answer = _PostAnswer.model_validate_json(raw)
    except ValidationError as error:
        raise bad_wire_message("answer", error) from None
    if answer.message is None:
        raise MessageRefused(answer.rule, answer.error, answer.fix)
    return answer.message


AuditAction = Literal[
    "refused",
    "redacted",
    "flagged",
    "dropped",
    "timeout",
    "ban",
    "pardon",
    "setting",
    "killed",
    "revived",
    "deleted",
]


class AuditRecord(WireMessage):
    message_type = "audit_record"

    room: RoomName
    ts: int
    action: AuditAction
    rule: str
    """The name of the rule: `blocklist:slur`, `rate`, `links`, `redact:email`."""
    reason: str
    """An explanation for moderators, without the redacted text."""
    author: ChatAuthor
    message: str | None = None
    """The id of the message if it was admitted, else the id of the post."""
    by: str = "gateway"


MAX_CONTEXT_BYTES = 4_096
"""Limit for a context. Raw audio and video frames are never sent."""

EVENT_KINDS = ("chat_question", "hype", "win", "fail", "clutch", "topic_change", "scene_change", "raid")
"""Known kinds of events. Others may occur and have no effect on decisions unless a room tunes them."""


class StreamEvent(WireModel):
    kind: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z_]*$", max_length=40)]
    confidence: float = Field(ge=0, le=1)
    at: int
    """Milliseconds since 1970."""
    about: str = Field(default="", max_length=200)


class Vision(WireModel):
    """What a stream shows. Frames are not part of it."""

    caption: str = Field(default="", max_length=500)
    on_screen_text: tuple[str, ...] = Field(default=(), max_length=20)
    scene: str = Field(default="", max_length=80)


class TimeWindow(WireModel):
    start: int
    end: int


class StreamContext(WireMessage):
    message_type = "stream_context"

    room: RoomName
    number: int = Field(ge=1)
    window: TimeWindow
    transcript: str = Field(default="", max_length=2_000)
    latest: str | None = Field(default=None, max_length=500)
    """The sentence that was said last; empty if the context is about something else. None in older recordings, whose
    `summary` is this sentence."""
    summary: str = Field(default="", max_length=500)
    """What the last minutes were about."""
    keywords: tuple[str, ...] = Field(default=(), max_length=20)
    events: tuple[StreamEvent, ...] = Field(default=(), max_length=20)
    speakers: tuple[str, ...] = Field(default=(), max_length=10)
    vision: Vision | None = None


@dataclass(frozen=True, slots=True)
class Subjects:
    """The bus subjects of a room, the same in one process and over a broker."""

    room: str

    @property
    def ingest(self) -> str:
        """Anyone → gateway."""
        return f"chat.ingest.{self.room}"

    @property
    def firehose(self) -> str:
        """Gateway → all."""
        return f"chat.firehose.{self.room}"

    @property
    def context(self) -> str:
        return f"stream.context.{self.room}"

    @property
    def trends(self) -> str:
        return f"chat.trends.{self.room}"

    @property
    def audit(self) -> str:
        return f"chat.audit.{self.room}"

    @property
    def record(self) -> str:
        """Persona workers → gateway: decisions and outcomes, for the log."""
        return f"chat.record.{self.room}"

    @property
    def recall(self) -> str:
        """Persona workers → gateway: a question about what a persona remembers, answered at once."""
        return f"chat.recall.{self.room}"


class TrendCount(WireModel):
    what: str
    times: int = Field(ge=1)


class Tick(WireModel):
    """A moment at which personas decide, the same for all processes that run some of them."""

    session: int
    """When the session began, in milliseconds since 1970."""
    number: int = Field(ge=1)
    upto: int = Field(ge=0)
    """The number of the last message that personas take into account."""
    context: int = Field(default=0, ge=0)
    """The number of the stream context that they take into account; 0 without one."""
    edit: int = Field(default=0, ge=0)
    """The number of the latest edit of the room or its personas that applies; 0 before the first."""


class Trends(WireMessage):
    message_type = "trends"

    room: RoomName
    ts: int
    velocity: float = Field(ge=0)
    """Messages per second, over the last ten seconds."""
    top_tokens: tuple[TrendCount, ...] = ()
    top_emotes: tuple[TrendCount, ...] = ()
    bot_fraction: float = Field(ge=0, le=1)
    top_mentions: tuple[TrendCount, ...] = ()
    mood: float = Field(ge=-1, le=1)
    """From negative to positive."""
    tick: Tick | None = None
    """Set by a trends service of a session that is divided among processes."""


def room_subject(room: str) -> str:
    """The bus subject of a room's messages."""
    return Subjects(room).firehose


MESSAGE_TYPES: tuple[type[WireMessage], ...] = (ChatPost, ChatMessage, StreamContext, Trends, AuditRecord)
SCHEMAS = Path(__file__).parent / "schemas"
EXAMPLES = Path(__file__).parent / "examples"


def schema_text(message_type: type[WireMessage]) -> str:
    return json.dumps(message_type.json_schema(), indent=2, ensure_ascii=False) + "\n"


def write_schemas() -> None:
    """Write the schema files again, after a change of the models."""
    for message_type in MESSAGE_TYPES:
        write_atomic(SCHEMAS / f"{message_type.schema_name()}.json", schema_text(message_type).encode())


__all__ = [
    "AuditRecord",
    "ChatAuthor",
    "ChatMessage",
    "ChatPost",
    "SenderPost",
    "StreamContext",
    "StreamEvent",
    "Subjects",
    "Tick",
    "Trace",
    "Trends",
    "Vision",
    "parse_post_answer",
]
