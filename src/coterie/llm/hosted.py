"""The provider for models reached over HTTP through pydantic-ai, with OpenAI's or Anthropic's protocol.

The client libraries take seconds to import, so the first request imports them, off the event loop. Their retries and
timeouts are switched off because the router handles both. Leaving the stream early closes its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.values import is_loopback_url, replace_surrogates, url_origin
from coterie.llm.errors import BadAnswer, KeyRejected, RequestsForbidden, Unreachable
from coterie.llm.messages import (
    Chunk,
    CompletionRequest,
    Finished,
    TextDelta,
    ThinkingDelta,
    Tokens,
    ToolCall,
    ToolCallRequested,
)
from coterie.llm.settings import ProviderSpec

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model, StreamedResponse

_log = get_logger(__name__)
_allowed = True


@contextmanager
def real_requests(*, allowed: bool) -> Iterator[None]:
    """Allow or forbid requests to real providers in the whole process, so that tests cannot send any by accident."""
    global _allowed
    before, _allowed = _allowed, allowed
    try:
        yield
    finally:
        _allowed = before


def check_real_requests(model: str) -> None:
    if not _allowed:
        raise RequestsForbidden(
            f"A request to {model} was stopped: real requests are switched off.",
            "Pass a scripted or recorded model, or allow it with real_requests(allowed=True).",
        )


_CONNECT_S = 10.0
_KEEP_ALIVE_S = 2.0
"""Shorter than the idle time after which servers close connections (llama.cpp: 5 s): a request on a connection that is
being closed fails without an answer."""
_NO_KEY = "none-needed"
_PLAIN_HEADERS = (
    *("host", "connection", "accept", "user-agent", "content-", "transfer-encoding", "x-stainless-"),
    *("anthropic-version", "anthropic-beta"),
)
"""Prefixes of the headers that hold no credentials."""
_REASONS: dict[str | None, Literal["stop", "length", "tool", "filter"]] = {
    "stop": "stop",
    "length": "length",
    "tool_call": "tool",
    "content_filter": "filter",
}


class HostedProvider:
    """A provider with an HTTP API; connections are opened on first use, one client per model."""

    def __init__(self, spec: ProviderSpec) -> None:
        self.name = spec.name
        self._spec = spec
        self._models: dict[str, Model] = {}
        self._connect_lock = asyncio.Lock()

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        target = f"{self.name}/{request.model}"
        check_real_requests(target)
        model = await self._model(request.model)
        from pydantic_ai.exceptions import AgentRunError, UserError
        from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

        from coterie.llm.pydantic_ai_adapter import map_error, to_messages, to_parameters, to_settings

        prompt = request.prompt
        native = bool(self._spec.native_schema and model.profile.get("supports_json_schema_output"))
        messages = to_messages(prompt, native_schema=native)
        parameters = to_parameters(prompt, native_schema=native)
        try:
            async with model.request_stream(messages, to_settings(prompt), parameters) as response:
                async for event in response:
                    if type(event) is PartDeltaEvent and type(event.delta) is TextPartDelta:
                        if event.delta.content_delta:
                            yield TextDelta(text=_text(event.delta.content_delta))
                    elif type(event) is PartStartEvent and type(event.part) is TextPart:
                        if event.part.content:
                            yield TextDelta(text=_text(event.part.content))
                    elif (chunk := _other_chunk(event)) is not None:
                        yield chunk
                yield _finished(response, target)
        except (AgentRunError, UserError) as error:
            raise map_error(error, target) from error
        except CoterieError:
            raise
        except Exception as error:
            # A server can send JSON of any shape, and the libraries check little of it.
            _log.warning("a model's response could not be read", model=target, exc_info=error)
            raise BadAnswer(f"{target} sent an invalid response ({type(error).__name__}).", "Try again.") from error

    async def close(self) -> None:
        models, self._models = self._models, {}
        for model in models.values():
            await model.client.close()  # type: ignore[attr-defined]  # each kind has its own

    async def _model(self, name: str) -> Model:
        async with self._connect_lock:
            if name not in self._models:
                # Importing the libraries takes seconds; do not block the event loop meanwhile.
                await asyncio.to_thread(import_libraries, self._spec.protocol)
                self._models[name] = self._connect(name)
            return self._models[name]

    def _connect(self, name: str) -> Model:
        import httpx2

        key = self._spec.api_key.get_secret_value() if self._spec.api_key else ""
        timeout = httpx2.Timeout(None, connect=_CONNECT_S)
        # A proxy from the environment cannot reach this machine's loopback addresses. A key is for its address only.
        http = httpx2.AsyncClient(
            timeout=timeout,
            trust_env=not is_loopback_url(self._spec.base_url),
            follow_redirects=not key,
            limits=httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=_KEEP_ALIVE_S),
            event_hooks={"request": [partial(_set_key, self._spec)]},
        )
        if self._spec.protocol == "anthropic":
            from anthropic import AsyncAnthropic
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            if not key:
                raise KeyRejected(f"{self.name} needs a key.", "Store one: coterie secrets set NAME")
            claude = AsyncAnthropic(
                api_key=key, base_url=self._spec.base_url, max_retries=0, timeout=timeout, http_client=http
            )
            return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=claude))
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.profiles.openai import OpenAIModelProfile
        from pydantic_ai.providers.openai import OpenAIProvider

        from coterie.llm.openai_client import PlainMessagesClient

        client = PlainMessagesClient(
            api_key=key or _NO_KEY,
            base_url=self._spec.base_url,
            max_retries=0,
            timeout=timeout,
            http_client=http,
        )
        # The server decides whether schemas are supported, not the model's name.
        profile = OpenAIModelProfile(supports_json_schema_output=self._spec.native_schema)
        return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client), profile=profile)


async def _set_key(spec: ProviderSpec, request: httpx2.Request) -> None:
    """Send the key, to the address it was given for, and no other credentials.

    A redirect may lead to another address, and the libraries read credentials and whole headers from environment
    variables of their own.
    """
    for name in [name for name in request.headers if not name.startswith(_PLAIN_HEADERS)]:
        del request.headers[name]
    if url_origin(str(request.url)) == url_origin(spec.base_url):
        key = spec.api_key.get_secret_value() if spec.api_key else _NO_KEY
        is_anthropic = spec.protocol == "anthropic"
        request.headers["x-api-key" if is_anthropic else "authorization"] = key if is_anthropic else f"Bearer {key}"


def import_libraries(*protocols: str) -> None:
    for protocol in protocols:
        if protocol == "anthropic":
            import pydantic_ai.models.anthropic
        else:
            import pydantic_ai.models.openai  # noqa: F401


def _text(value: object) -> str:
    """Text from a server, whose JSON may hold anything in its place and half characters in it."""
    if not isinstance(value, str):
        raise ValueError(f"text is {type(value).__name__}")
    return replace_surrogates(value)


def _other_chunk(event: object) -> Chunk | None:
    from pydantic_ai.messages import (
        PartDeltaEvent,
        PartEndEvent,
        PartStartEvent,
        ThinkingPart,
        ThinkingPartDelta,
        ToolCallPart,
    )

    if isinstance(event, PartStartEvent) and isinstance(event.part, ThinkingPart) and event.part.content:
        return ThinkingDelta(thinking=_text(event.part.content))
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, ThinkingPartDelta) and event.delta.content_delta:
        return ThinkingDelta(thinking=_text(event.delta.content_delta))
    if isinstance(event, PartEndEvent) and isinstance(event.part, ToolCallPart):
        part = event.part
        return ToolCallRequested(
            call=ToolCall(
                id=_text(part.tool_call_id), name=_text(part.tool_name), arguments=_text(part.args_as_json_str())
            )
        )
    return None


def _finished(response: StreamedResponse, target: str) -> Finished:
    raw_reason = (response.provider_details or {}).get("finish_reason")
    if not raw_reason and response.finish_reason != "content_filter":
        # For the library a stream that breaks off is complete, and it makes up a reason; only the server's own reason
        # shows that it is. A refusal has none.
        raise Unreachable(f"{target} broke off before the end of its answer.", "Try again.")
    usage = response.usage
    return Finished(
        reason=_REASONS.get(response.finish_reason, "other"),
        tokens=Tokens(
            input=usage.input_tokens,
            output=usage.output_tokens,
            cached=usage.cache_read_tokens,
            estimated=usage.input_tokens == 0,
        ),
        model=_text(response.model_name or target),
    )
