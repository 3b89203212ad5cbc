"""What is sent to a model and what comes back, in words of our own.

No provider's library appears in these types, so prompts can be counted, recorded, shown in the prompt inspector and
replayed without one. Everything here is immutable and turns into plain JSON and back.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Literal

from pydantic import Base64Bytes, BaseModel, ConfigDict


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Image(_Value):
    media_type: str
    data: Base64Bytes


class ToolCall(_Value):
    id: str
    name: str
    arguments: str
    """JSON text, as the model wrote it: it may be malformed, and whoever runs the tool must check."""


class Message(_Value):
    role: Literal["system", "user", "assistant", "tool"]
    text: str
    images: tuple[Image, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    """Tools an assistant's message asked for."""
    answers: ToolCall | None = None
    """On a tool's message: the call that this is the result of."""


class Tool(_Value):
    name: str
    description: str
    parameters: dict[str, Any]


class Shape(_Value):
    """The JSON schema an answer must fit."""

    name: str
    definition: dict[str, Any]


class Prompt(_Value):
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    shape: Shape | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None

    @classmethod
    def of(cls, user: str, *, system: str | None = None, **options: Any) -> Prompt:
        first = (Message(role="system", text=system),) if system else ()
        return cls(messages=(*first, Message(role="user", text=user)), **options)


class Priority(IntEnum):
    """Who goes first where a model is shared: the lower, the sooner."""

    PERSON = 0
    CHARACTER = 1
    BACKGROUND = 2


class Request(_Value):
    model: str
    prompt: Prompt
    priority: Priority = Priority.PERSON
    owner: str = ""
    """Whose turn it is (a room, a character): callers of one priority take turns by owner."""


class Tokens(_Value):
    input: int = 0
    output: int = 0
    cached: int = 0
    """How many of `input` the provider had cached."""
    estimated: bool = False
    """True where the provider did not say, and we counted ourselves."""


class TextDelta(_Value):
    text: str


class ThinkingDelta(_Value):
    thinking: str


class CallRequested(_Value):
    call: ToolCall


class Finished(_Value):
    """The last chunk of every whole answer."""

    reason: Literal["stop", "length", "tool", "filter", "other"]
    tokens: Tokens
    model: str


Chunk = TextDelta | ThinkingDelta | CallRequested | Finished


class Answer(_Value):
    text: str
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    reason: str
    tokens: Tokens
    model: str
    """`provider/model` that answered, which may be a fallback."""
    first_token_ms: float | None
    total_ms: float
