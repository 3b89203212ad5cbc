"""What is sent to a model and what comes back, in words of our own.

No provider's library appears in these types, so prompts can be counted, recorded, shown in the prompt inspector and
replayed without one. Everything here is immutable and turns into plain JSON and back.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from enum import IntEnum
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from pydantic import Base64Bytes, BaseModel, ConfigDict

from coterie.llm.errors import ModelError


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


# The port behind which every model stands: hosted, embedded, recorded or scripted.
#
# One method that matters, `stream`: an async generator of chunks, the last of which is `Finished`. Closing the
# generator (or cancelling the task that iterates it) must close the connection behind it at once; whatever goes wrong
# is raised as a `ModelError` of the right kind. tests/contracts/provider_contract.py is the suite that every
# implementation passes.


class Provider(Protocol):
    @property
    def name(self) -> str: ...

    def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]: ...

    async def close(self) -> None:
        """Give back connections and processes. The provider may be used again: it starts anew."""
        ...


# An answer that is still being given.
#
# Iterate it for its chunks; leave it early (`break` inside `async with`, `stop()`, or cancelling the task) and the
# connection behind it is closed at once. What was said so far stays readable in `text`, whatever happened. What it cost
# is durable once it was stopped or left, also where it came to its end.


class PartialAnswer:
    """What a model has said so far in one attempt. A new attempt, where nobody saw the last one, starts over."""

    def __init__(self) -> None:
        self.model = ""
        """`provider/model` that speaks, which may be a fallback."""
        self._text: list[str] = []
        self._thinking: list[str] = []
        self.calls: list[ToolCall] = []

    def add(self, chunk: Chunk) -> None:
        if isinstance(chunk, TextDelta):
            self._text.append(chunk.text)
        elif isinstance(chunk, ThinkingDelta):
            self._thinking.append(chunk.thinking)
        elif isinstance(chunk, ToolCallRequested):
            self.calls.append(chunk.call)

    def restart(self, model: str) -> None:
        self.model = model
        self._text.clear()
        self._thinking.clear()
        self.calls.clear()

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def thinking(self) -> str:
        return "".join(self._thinking)

    @property
    def has_content(self) -> bool:
        return bool(self._text or self.calls)


class StreamedReply:
    def __init__(self, partial: PartialAnswer, chunks: AsyncGenerator[Chunk | ModelAnswer, None]) -> None:
        self._partial = partial
        self._chunks = chunks
        self._answer: ModelAnswer | None = None

    @property
    def text(self) -> str:
        return self._partial.text

    @property
    def model(self) -> str:
        """Who said it, also where it was left early; empty as long as nothing was said."""
        return self._partial.model if self._partial.has_content else ""

    @property
    def answer(self) -> ModelAnswer:
        """The whole answer. Only there once the reply has been read to its end."""
        if self._answer is None:
            raise RuntimeError("The reply has not been read to its end.")
        return self._answer

    async def finish(self) -> ModelAnswer:
        async for _ in self:
            pass
        await self.stop()
        return self.answer

    async def stop(self) -> None:
        await self._chunks.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        try:
            chunk = await anext(self._chunks)
        except ModelError as error:
            error.partial = self._partial.text
            raise
        if isinstance(chunk, ModelAnswer):
            self._answer = chunk
            raise StopAsyncIteration
        return chunk

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
