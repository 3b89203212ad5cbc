"""The protocol between the server and a remote agent: one JSON object per WebSocket text frame.

The server connects, and both sides send `hello`. The server sends each message under an id; the agent replies with
steps numbered from 1. After a lost connection the server sends the message again with the number of the last step it
has (`after`), and the agent continues from there. docs/agents.md describes the frames.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from coterie.base.errors import CoterieError

_TRY_AGAIN = "Try again later."


class AgentError(CoterieError):
    """An agent cannot reply; the person sees the message."""

    exit_code = 34

    def __init__(self, what: str, fix: str = _TRY_AGAIN) -> None:
        super().__init__(what, fix)


class AgentUnreachable(AgentError):
    """There is no connection to the agent."""


class AgentSilent(AgentError):
    """The agent is connected and sends nothing."""


class AgentProtocolError(AgentError):
    """A frame does not follow the protocol."""


class AgentRefused(AgentError):
    """The agent refuses the connection."""


class AgentFailed(AgentError):
    """The agent reports that it failed."""


PROTOCOL_VERSION = 1
CHUNK_SIZE = 192 * 1024
"""Bytes of a file in one frame; Base64 adds a third."""
MAX_FRAME_SIZE = 1024 * 1024
_Id = Annotated[str, Field(min_length=1, max_length=200)]
_Text = Annotated[str, Field(max_length=200_000)]


class _Frame(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    def to_json(self) -> str:
        return self.model_dump_json()


class HelloFrame(_Frame):
    type: Literal["hello"] = "hello"
    version: int = PROTOCOL_VERSION
    name: _Text = ""
    """The character's from the server, the program's from the agent."""
    epoch: _Text = ""
    """The agent's; another one means that it was restarted and does not know earlier messages."""


class PersonInfo(_Frame):
    id: str
    name: str


class FileInfo(_Frame):
    name: str
    media_type: str = "application/octet-stream"
    size: int = 0


class MessageFrame(_Frame):
    """A message of a person. If the id is known, the agent sends only the steps after `after`."""

    type: Literal["message"] = "message"
    id: str
    chat: str
    person: PersonInfo
    text: str
    files: tuple[FileInfo, ...] = ()
    """Their contents follow in chunks, in this order."""
    after: int = 0


class FileChunkFrame(_Frame):
    type: Literal["file_piece"] = "file_piece"
    message: str
    file: int
    data: str
    """Base64."""
    last: bool = False


class StopFrame(_Frame):
    type: Literal["stop"] = "stop"
    message: str


class SettledFrame(_Frame):
    """The server has stored a reply or a push; the agent may discard it."""

    type: Literal["settled"] = "settled"
    message: str = ""
    push: str = ""


ServerFrame = HelloFrame | MessageFrame | FileChunkFrame | StopFrame | SettledFrame


class _StepFrame(_Frame):
    message: _Id
    number: int = Field(ge=1)


class TextStep(_StepFrame):
    type: Literal["text"] = "text"
    text: _Text


class ToolCallStep(_StepFrame):
    type: Literal["tool_call"] = "tool_call"
    name: _Text
    text: _Text = ""


class ToolResultStep(_StepFrame):
    type: Literal["tool_result"] = "tool_result"
    name: _Text
    text: _Text = ""


class ProgressStep(_StepFrame):
    type: Literal["progress"] = "progress"
    text: _Text


class FileStep(_StepFrame):
    """A chunk of a file for the person; the name and type of its first chunk count."""

    type: Literal["file"] = "file"
    name: _Text = "file"
    media_type: Annotated[str, Field(max_length=200)] = "application/octet-stream"
    data: str
    last: bool = True


class DoneStep(_StepFrame):
    type: Literal["done"] = "done"


class FailedStep(_StepFrame):
    type: Literal["error"] = "error"
    text: _Text = ""


Step = TextStep | ToolCallStep | ToolResultStep | ProgressStep | FileStep | DoneStep | FailedStep


class HeartbeatFrame(_Frame):
    """The messages that the agent still works on; sent at least every two seconds."""

    type: Literal["beat"] = "beat"
    messages: tuple[str, ...] = ()


class PushFrame(_Frame):
    """A notification without a message, for the room of a chat."""

    type: Literal["task_done", "task_error", "task_progress"]
    id: _Id
    chat: str
    text: _Text


AgentFrame = HelloFrame | Step | HeartbeatFrame | PushFrame
_AGENT_FRAME: TypeAdapter[AgentFrame] = TypeAdapter(Annotated[AgentFrame, Field(discriminator="type")])
_SERVER_FRAME: TypeAdapter[ServerFrame] = TypeAdapter(Annotated[ServerFrame, Field(discriminator="type")])


def parse_agent_frame(frame: str | bytes) -> AgentFrame:
    try:
        return _AGENT_FRAME.validate_json(frame)
    except ValidationError as error:
        raise AgentProtocolError("The agent sent an invalid frame.", _reason(error)) from None


def parse_server_frame(frame: str | bytes) -> ServerFrame:
    try:
        return _SERVER_FRAME.validate_json(frame)
    except ValidationError as error:
        raise AgentProtocolError("The server sent an invalid frame.", _reason(error)) from None


def encode_data(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode_data(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AgentProtocolError("A chunk of a file is not Base64.") from None


def _reason(error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or "the frame"
    return f"{place}: {first['msg']}."
