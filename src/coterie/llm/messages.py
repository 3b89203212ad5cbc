"""What is sent to a model and what comes back, in words of our own.

No provider's library appears in these types, so prompts can be counted, recorded, shown in the prompt inspector and
replayed without one. Everything here is immutable and turns into plain JSON and back.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Literal

from pydantic import Base64Bytes, BaseModel, ConfigDict


class _FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Image(_FrozenModel):
    media_type: str
    data: Base64Bytes


class ToolCall(_FrozenModel):
    id: str
    name: str
    arguments: str
    """JSON text, as the model wrote it: it may be malformed, and whoever runs the tool must check."""


class PromptMessage(_FrozenModel):
    role: Literal["system", "user", "assistant", "tool"]
    text: str
    images: tuple[Image, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    """Tools an assistant's message asked for."""
    answers: ToolCall | None = None
    """On a tool's message: the call that this is the result of."""


class ToolSpec(_FrozenModel):
    name: str
    description: str
    parameters: dict[str, Any]


class OutputSchema(_FrozenModel):
    """The JSON schema an answer must fit."""

    name: str
    definition: dict[str, Any]


class Prompt(_FrozenModel):
    messages: tuple[PromptMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    output_schema: OutputSchema | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None

    @classmethod
    def of(cls, user: str, *, system: str | None = None, **options: Any) -> Prompt:
        first = (PromptMessage(role="system", text=system),) if system else ()
        return cls(messages=(*first, PromptMessage(role="user", text=user)), **options)


class Priority(IntEnum):
    """Who goes first where a model is shared: the lower, the sooner."""

    PERSON = 0
    CHARACTER = 1
    BACKGROUND = 2


class CompletionRequest(_FrozenModel):
    model: str
    prompt: Prompt
    priority: Priority = Priority.PERSON
    owner: str = ""
    """Whose turn it is (a room, a character): callers of one priority take turns by owner."""


class Tokens(_FrozenModel):
    input: int = 0
    output: int = 0
    cached: int = 0
    """How many of `input` the provider had cached."""
    estimated: bool = False
    """True where the provider did not say, and we counted ourselves."""


class TextDelta(_FrozenModel):
    text: str


class ThinkingDelta(_FrozenModel):
    thinking: str


class ToolCallRequested(_FrozenModel):
    call: ToolCall


class Finished(_FrozenModel):
    """The last chunk of every whole answer."""

    reason: Literal["stop", "length", "tool", "filter", "other"]
    tokens: Tokens
    model: str


Chunk = TextDelta | ThinkingDelta | ToolCallRequested | Finished


class ModelAnswer(_FrozenModel):
    text: str
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    reason: str
    tokens: Tokens
    model: str
    """`provider/model` that answered, which may be a fallback."""
    first_token_ms: float | None
    total_ms: float
