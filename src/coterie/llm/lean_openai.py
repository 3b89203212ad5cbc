"""The OpenAI client with a quicker way to send a long talk, and to read what is streamed.

The client compares every message with every kind of message there is before it sends them, to rename fields that none
of them has: a talk of 200 turns waits 40 ms for that. Here messages are sent as they are.

It builds each chunk field by field in Python, tolerant of anything; that is half of the CPU a token costs. Here
pydantic's compiled validator does it, and only a chunk that does not fit the published types (local servers bend them)
takes the tolerant way. Chunks that came together and hold nothing but words are joined before they are built at all.
`bench.llm` compares both ways; contract tests notice if the methods below are ever renamed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from openai import AsyncOpenAI
from openai._streaming import ServerSentEvent, SSEDecoder, _SSELineDecoder
from openai.resources.chat import AsyncChat, AsyncCompletions
from openai.types.chat import ChatCompletionChunk
from pydantic import ValidationError

_SAYS_NOTHING: tuple[object, ...] = (None, [], {})


class LeanOpenAI(AsyncOpenAI):
    @cached_property
    def chat(self) -> AsyncChat:
        return _Chat(self)

    def _make_sse_decoder(self) -> SSEDecoder:
        return _Joining()

    def _process_response_data(self, *, data: object, cast_to: Any, response: Any) -> Any:
        if cast_to is ChatCompletionChunk:
            try:
                return ChatCompletionChunk.model_validate(data)
            except ValidationError:
                pass
        return super()._process_response_data(data=data, cast_to=cast_to, response=response)


class _Chat(AsyncChat):
    @cached_property
    def completions(self) -> AsyncCompletions:
        return _Completions(self._client)


class _Completions(AsyncCompletions):
    async def create(  # type: ignore[override]  # it takes what the client's own takes, and gives what that gives
        self, *, messages: Iterable[Any], extra_body: Mapping[str, Any] | None = None, **given: Any
    ) -> Any:
        body = {**(extra_body or {}), "messages": list(messages)}
        return await super().create(messages=(), extra_body=body, **given)


class _Joining(SSEDecoder):
    async def aiter_bytes(self, iterator: AsyncIterator[bytes]) -> AsyncIterator[ServerSentEvent]:
        lines = _SSELineDecoder()
        try:
            async for piece in iterator:
                for event in joined(self._decode_lines(lines.feed(piece))):
                    yield event
            for event in self._decode_lines(lines.finish()):
                yield event
        finally:
            self._reset()


class _Words(ServerSentEvent):
    """One or several events that hold nothing but words, already read."""

    def __init__(self, first: dict[str, Any], text: str) -> None:
        super().__init__(data="")
        self._first = first
        self.texts = [text]

    def json(self) -> Any:
        self._first["choices"][0]["delta"]["content"] = "".join(self.texts)
        return self._first


def joined(events: Iterable[ServerSentEvent]) -> Iterator[ServerSentEvent]:
    """The same, with words that follow each other in one event."""
    words: _Words | None = None
    for event in events:
        data = _read(event)
        text = _only_words(data)
        if text is not None and words is not None:
            words.texts.append(text)
            continue
        if words is not None:
            yield words
            words = None
        if text is not None:
            words = _Words(data, text)
        else:
            yield event
    if words is not None:
        yield words


def _read(event: ServerSentEvent) -> Any:
    try:
        return event.json() if event.data.startswith("{") else None
    except ValueError:
        return None  # whoever handles the event tells of it


def _only_words(data: Any) -> str | None:
    """What a chunk says, if it says nothing else: no other choice, no end, no tool, no count."""
    if not isinstance(data, dict) or data.get("usage") or data.get("error"):
        return None
    choices = data.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        return None
    delta = choices[0].get("delta")
    if choices[0].get("finish_reason") or choices[0].get("logprobs") or not isinstance(delta, dict):
        return None
    text = delta.get("content")
    says_more = any(value not in _SAYS_NOTHING for name, value in delta.items() if name not in ("content", "role"))
    return text if isinstance(text, str) and text and not says_more else None
