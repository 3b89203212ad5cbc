"""An answer that is still being given.

Iterate it for its chunks; leave it early (`break` inside `async with`, `stop()`, or cancelling the task) and the
connection behind it is closed at once. What was said so far stays readable in `text`, whatever happened. What it cost
is durable once it was stopped or left, also where it came to its end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Self

from coterie.llm.errors import ModelError
from coterie.llm.messages import (
    Chunk,
    ModelAnswer,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolCallRequested,
)


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
