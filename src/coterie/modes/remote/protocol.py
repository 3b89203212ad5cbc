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

from coterie.base.errors import CoterieError

# What can be wrong with a remote agent. Whatever it is, the person gets its sentence and nothing else happens.
#
# AgentError
# ├── AgentUnreachable      there is no line to it
# ├── AgentSilent           the line is there, and nothing comes
# ├── AgentGarbled          what it sends is not the protocol
# ├── AgentRefused          it does not let us in
# └── AgentFailed           it says itself that it cannot


TRY_AGAIN = "Ask again in a while."


class AgentError(CoterieError):
    exit_code = 34

    def __init__(self, what: str, fix: str = TRY_AGAIN) -> None:
        super().__init__(what, fix)


class AgentUnreachable(AgentError):
    pass


class AgentSilent(AgentError):
    pass


class AgentGarbled(AgentError):
    pass


class AgentRefused(AgentError):
    pass


class AgentFailed(AgentError):
    pass


PROTOCOL_VERSION = 1
CHUNK_SIZE = 192 * 1024
"""Bytes of a file in one frame; as text they take a third more."""
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
    """Of the character, from the house; of the program, from the agent."""
    epoch: _Text = ""
    """The agent's: another one means that it started anew and knows nothing of what was going on."""


class PersonInfo(_Frame):
    id: str
    name: str


class FileInfo(_Frame):
    name: str
    media_type: str = "application/octet-stream"
    size: int = 0


class MessageFrame(_Frame):
    """A message of a person. The same id again is the same message: tell what comes after `after`."""

    type: Literal["message"] = "message"
    id: str
    chat: str
    person: PersonInfo
    text: str
    files: tuple[FileInfo, ...] = ()
    """They follow, piece by piece, in this order."""
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
    """The house has kept what there was: the agent may forget it."""

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
    """A piece of a file for the person; the name and type of its first piece count."""

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
    """Still working on these. Said at least every second or two, because silence means that something hangs."""

    type: Literal["beat"] = "beat"
    messages: tuple[str, ...] = ()


class PushFrame(_Frame):
    """Something nobody asked for just now, for the room where a chat is held."""

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
        raise AgentGarbled("What the agent sent cannot be understood.", _reason(error)) from None


def parse_server_frame(frame: str | bytes) -> ServerFrame:
    try:
        return _SERVER_FRAME.validate_json(frame)
    except ValidationError as error:
        raise AgentGarbled("What the house sent cannot be understood.", _reason(error)) from None


def encode_data(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode_data(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AgentGarbled("A piece of a file is not Base64.") from None


def _reason(error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or "the frame"
    return f"{place}: {first['msg']}."
