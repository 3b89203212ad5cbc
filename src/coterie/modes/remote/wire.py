"""What goes over the line between the house and an agent: JSON objects, one in each text frame. P12

The house calls. Both say `hello`; then every message of a person goes out under an id, and what the agent makes of it
comes back numbered from 1. After a line broke, the house sends the message again and says what it has (`after`): an
agent that knows the id goes on from there, so that nothing is lost and nothing is done twice. docs/agents.md tells all
of it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from coterie.modes.remote.errors import AgentGarbled

VERSION = 1
PIECE = 192 * 1024
"""Bytes of a file in one frame; as text they take a third more."""
LARGEST_FRAME = 1024 * 1024
_Id = Annotated[str, Field(min_length=1, max_length=200)]
_Text = Annotated[str, Field(max_length=200_000)]


class _Frame(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    def line(self) -> str:
        return self.model_dump_json()


class Hello(_Frame):
    type: Literal["hello"] = "hello"
    version: int = VERSION
    name: _Text = ""
    """Of the character, from the house; of the program, from the agent."""
    epoch: _Text = ""
    """The agent's: another one means that it started anew and knows nothing of what was going on."""


class Who(_Frame):
    id: str
    name: str


class FileNote(_Frame):
    name: str
    media_type: str = "application/octet-stream"
    size: int = 0


class Say(_Frame):
    """A message of a person. The same id again is the same message: tell what comes after `after`."""

    type: Literal["message"] = "message"
    id: str
    chat: str
    person: Who
    text: str
    files: tuple[FileNote, ...] = ()
    """They follow, piece by piece, in this order."""
    after: int = 0


class FilePiece(_Frame):
    type: Literal["file_piece"] = "file_piece"
    message: str
    file: int
    data: str
    """Base64."""
    last: bool = False


class Stop(_Frame):
    type: Literal["stop"] = "stop"
    message: str


class Settled(_Frame):
    """The house has kept what there was: the agent may forget it."""

    type: Literal["settled"] = "settled"
    message: str = ""
    push: str = ""


ToAgent = Hello | Say | FilePiece | Stop | Settled


class _Numbered(_Frame):
    message: _Id
    number: int = Field(ge=1)


class TextChunk(_Numbered):
    type: Literal["text"] = "text"
    text: _Text


class ToolCall(_Numbered):
    type: Literal["tool_call"] = "tool_call"
    name: _Text
    text: _Text = ""


class ToolResult(_Numbered):
    type: Literal["tool_result"] = "tool_result"
    name: _Text
    text: _Text = ""


class Progress(_Numbered):
    type: Literal["progress"] = "progress"
    text: _Text


class SendFile(_Numbered):
    """A piece of a file for the person; the name and type of its first piece count."""

    type: Literal["file"] = "file"
    name: _Text = "file"
    media_type: Annotated[str, Field(max_length=200)] = "application/octet-stream"
    data: str
    last: bool = True


class Done(_Numbered):
    type: Literal["done"] = "done"


class Failed(_Numbered):
    type: Literal["error"] = "error"
    text: _Text = ""


Step = TextChunk | ToolCall | ToolResult | Progress | SendFile | Done | Failed


class Beat(_Frame):
    """Still working on these. Said at least every second or two, because silence means that something hangs."""

    type: Literal["beat"] = "beat"
    messages: tuple[str, ...] = ()


class Push(_Frame):
    """Something nobody asked for just now, for the room where a chat is held."""

    type: Literal["task_done", "task_error", "task_progress"]
    id: _Id
    chat: str
    text: _Text


FromAgent = Hello | Step | Beat | Push
_FROM_AGENT: TypeAdapter[FromAgent] = TypeAdapter(Annotated[FromAgent, Field(discriminator="type")])
_TO_AGENT: TypeAdapter[ToAgent] = TypeAdapter(Annotated[ToAgent, Field(discriminator="type")])


def from_agent(frame: str | bytes) -> FromAgent:
    try:
        return _FROM_AGENT.validate_json(frame)
    except ValidationError as error:
        raise AgentGarbled("What the agent sent cannot be understood.", _reason(error)) from None


def to_agent(frame: str | bytes) -> ToAgent:
    try:
        return _TO_AGENT.validate_json(frame)
    except ValidationError as error:
        raise AgentGarbled("What the house sent cannot be understood.", _reason(error)) from None


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unpacked(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AgentGarbled("A piece of a file is not Base64.") from None


def _reason(error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or "the frame"
    return f"{place}: {first['msg']}."
