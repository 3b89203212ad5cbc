"""Prompts, answers and chunks, the `Provider` protocol, and a reply that is still streaming.

The types are independent of any provider's library, so prompts can be counted, recorded, inspected and replayed without
one. The pydantic models are immutable and round-trip through JSON.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from enum import IntEnum
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from pydantic import Base64Bytes, BaseModel, ConfigDict, Field, JsonValue

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
    """JSON text as the model wrote it. It may be malformed; the code that runs the tool must check it."""


class PromptMessage(_FrozenModel):
    role: Literal["system", "user", "assistant", "tool"]
    text: str
    images: tuple[Image, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    """Tool calls that an assistant message requests."""
    answers: ToolCall | None = None
    """In a tool message: the call whose result this is."""


class ToolSpec(_FrozenModel):
    name: str
    description: str
    parameters: dict[str, Any]


class OutputSchema(_FrozenModel):
    """The JSON schema that an answer must match."""

    name: str
    definition: dict[str, Any]


class ScriptLine(_FrozenModel):
    speaker: str
    text: str


class Script(_FrozenModel):
    """A prompt as dialogue of a script, which small models continue better than they follow instructions."""

    speaker: str
    """Whose line comes next."""
    others: tuple[str, ...]
    """The names of everybody else who is present."""
    preface: str = ""
    """Who and where they are, in a few sentences."""
    examples: tuple[tuple[ScriptLine, ...], ...] = ()
    """Exchanges that the character's author wrote."""
    lines: tuple[ScriptLine, ...]
    """The dialogue so far; the last line is the one to answer."""
    author_lines: tuple[str, ...] = ()
    """Lines by the character's author, the most fitting first, for the case that no generated line can be used."""
    chat: bool = False
    """Lines of a chat: they need not end with a punctuation mark."""
    author_reply: str = ""
    """The author's reply to a message like the one to answer; empty if there is none. It is used as it is."""


class Prompt(_FrozenModel):
    messages: tuple[PromptMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    output_schema: OutputSchema | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    """Further fields of the request, such as samplers that only some providers have."""
    script: Script | None = None
    """The same prompt as a script, for models whose `prompt_form` is `script`."""

    def without_images(self) -> Prompt:
        """The same for a model that cannot see."""
        if not any(message.images for message in self.messages):
            return self
        blind = tuple(message.model_copy(update={"images": ()}) for message in self.messages)
        return self.model_copy(update={"messages": blind})

    @classmethod
    def of(cls, user: str, *, system: str | None = None, **options: Any) -> Prompt:
        first = (PromptMessage(role="system", text=system),) if system else ()
        return cls(messages=(*first, PromptMessage(role="user", text=user)), **options)


class Priority(IntEnum):
    """Order in the queue of a shared model: lower numbers go first."""

    PERSON = 0
    CHARACTER = 1
    BACKGROUND = 2


class CompletionRequest(_FrozenModel):
    model: str
    prompt: Prompt
    priority: Priority = Priority.PERSON
    owner: str = ""
    """The room or character that asks. Within one priority, owners take turns."""


class Tokens(_FrozenModel):
    input: int = 0
    output: int = 0
    cached: int = 0
    """How many of `input` the provider read from its cache."""
    estimated: bool = False
    """True if the provider reported no count and Coterie counted the tokens itself."""


class TextDelta(_FrozenModel):
    text: str


class ThinkingDelta(_FrozenModel):
    thinking: str


class ToolCallRequested(_FrozenModel):
    call: ToolCall


class Finished(_FrozenModel):
    """The last chunk of every complete answer."""

    reason: Literal["stop", "length", "tool", "filter", "other"]
    tokens: Tokens
    model: str
    selection: str = ""
    """How the answer was chosen among several candidates."""


Chunk = TextDelta | ThinkingDelta | ToolCallRequested | Finished


class ModelAnswer(_FrozenModel):
    text: str
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    reason: str
    tokens: Tokens
    model: str
    """The `provider/model` that answered, which may be a fallback."""
    first_token_ms: float | None
    total_ms: float
    redacted: bool = False
    """Whether a secret was removed from the text."""


class Provider(Protocol):
    """A source of completions: hosted, embedded, recorded or scripted.

    `stream` yields chunks, the last of which is `Finished`. Closing the generator, or cancelling the task that iterates
    it, must close the underlying connection immediately. Every failure is raised as a `ModelError`. All implementations
    pass the suite in tests/contracts/provider_contract.py.
    """

    @property
    def name(self) -> str: ...

    def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]: ...

    async def close(self) -> None:
        """Release connections and processes. The provider can be used again; it reconnects when needed."""
        ...


class PartialAnswer:
    """The output of the current attempt so far. `restart` discards it for a new attempt."""

    def __init__(self) -> None:
        self.model = ""
        """The `provider/model` of this attempt, which may be a fallback."""
        self.redacted = False
        """Whether a secret was removed from the text."""
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
        self.redacted = False
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
    """A reply that is still streaming: iterate it for its chunks.

    Leaving early (`break` inside `async with`, `stop()`, or cancelling the task) closes the connection immediately.
    `text` stays readable whatever happens. The usage event is durable once the reply was read to its end or stopped.
    """

    def __init__(self, partial: PartialAnswer, chunks: AsyncGenerator[Chunk | ModelAnswer, None]) -> None:
        self._partial = partial
        self._chunks = chunks
        self._answer: ModelAnswer | None = None

    @property
    def text(self) -> str:
        return self._partial.text

    @property
    def model(self) -> str:
        """The `provider/model` that replied; empty while there is no output."""
        return self._partial.model if self._partial.has_content else ""

    @property
    def answer(self) -> ModelAnswer:
        """The complete answer. Raises `RuntimeError` before the reply has been read to its end."""
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
