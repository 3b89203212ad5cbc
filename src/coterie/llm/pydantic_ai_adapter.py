"""Conversion between Coterie's types and pydantic-ai's: errors by status and type, prompts, parameters and settings.

Importing this module imports pydantic-ai, which takes seconds; only `hosted` does, on the first request.
"""

from __future__ import annotations

import json
from typing import Any, cast

from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelTimeoutError,
    UserError,
)
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from coterie.llm.errors import (
    BadAnswer,
    BadRequest,
    Forbidden,
    KeyRejected,
    ModelError,
    OutOfCredit,
    Overloaded,
    PaymentNeeded,
    RateLimited,
    ServerFault,
    TimedOut,
    UnknownModel,
    Unreachable,
)
from coterie.llm.messages import Prompt, PromptMessage

_RETRY_FIX = "Wait a little and try again, or set a fallback model in the settings."

_BY_STATUS: dict[int, tuple[type[ModelError], str, str]] = {
    400: (BadRequest, "did not accept the request", "Shorten or change it; the provider's message gives the reason."),
    401: (
        KeyRejected,
        "rejected the API key",
        "Check the key in the settings, or store it: coterie secrets set NAME",
    ),
    402: (PaymentNeeded, "requires a payment", "Top up the account, or choose another model."),
    403: (Forbidden, "does not allow this", "Check the permissions of the key, or choose another model."),
    404: (UnknownModel, "does not know this model", "List the models: coterie models list"),
    408: (TimedOut, "timed out", _RETRY_FIX),
    409: (ServerFault, "reported a conflict", _RETRY_FIX),
    413: (BadRequest, "rejected the request as too large", "Shorten it."),
    422: (BadRequest, "did not accept the request", "Shorten or change it; the provider's message gives the reason."),
    425: (ServerFault, "is not ready yet", _RETRY_FIX),
    429: (RateLimited, "is limiting the rate of requests", _RETRY_FIX),
    503: (Overloaded, "is overloaded", _RETRY_FIX),
    529: (Overloaded, "is overloaded", _RETRY_FIX),
}
_SERVER_FAULT = (ServerFault, "reported an internal error", _RETRY_FIX)
_MAX_QUOTE_LENGTH = 300


def map_error(error: AgentRunError | UserError, target: str) -> ModelError:
    if isinstance(error, ModelQuotaExceededError) and getattr(error, "status_code", 429) == 429:
        return OutOfCredit(
            f"{target} has no credit left{_quote(error)}.",
            "Top up the account, or choose another model.",
            status=429,
            retry_after=error.retry_after,
        )
    if isinstance(error, ModelHTTPError):
        default = _BY_STATUS[400] if error.status_code < 500 else _SERVER_FAULT
        kind, happened, fix = _BY_STATUS.get(error.status_code, default)
        return kind(
            f"{target} {happened} (status {error.status_code}){_quote(error)}.",
            fix,
            status=error.status_code,
            retry_after=error.retry_after,
        )
    if isinstance(error, ModelRateLimitError):
        return RateLimited(f"{target} is limiting the rate of requests.", _RETRY_FIX, retry_after=error.retry_after)
    if isinstance(error, ModelOverloadedError):
        return Overloaded(f"{target} is overloaded.", _RETRY_FIX, retry_after=error.retry_after)
    if isinstance(error, ModelTimeoutError):
        return TimedOut(f"{target} did not answer in time.", _RETRY_FIX)
    if isinstance(error, ModelConnectionError):
        return Unreachable(f"The connection to {target} failed.", "Check the network and the provider's address.")
    if isinstance(error, ModelAPIError) and error.body is not None:
        return ServerFault(f"{target} stopped with an error{_quote(error)}.", _RETRY_FIX)
    if isinstance(error, UserError):
        return BadRequest(f"{target} cannot take this request: {error}.", "Choose another model for it.")
    return BadAnswer(f"{target} sent an invalid response.", _RETRY_FIX)


def _quote(error: AgentRunError) -> str:
    """The provider's error message, quoted; empty if there is none."""
    body: object = getattr(error, "body", None)
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError:
            return ""
    if isinstance(body, dict):
        inner = body.get("error", body)
        message = inner.get("message") if isinstance(inner, dict) else inner
        if isinstance(message, str) and message.strip():
            return f': "{message.strip()[:_MAX_QUOTE_LENGTH]}"'
    return ""


def to_messages(prompt: Prompt, *, native_schema: bool) -> list[ModelMessage]:
    in_text = not native_schema and prompt.output_schema is not None
    messages: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    for message in _with_schema_in_text(prompt) if in_text else prompt.messages:
        if message.role == "assistant":
            if parts:
                messages.append(ModelRequest(parts=parts))
                parts = []
            messages.append(_response(message))
        else:
            parts.append(_part(message))
    if parts:
        messages.append(ModelRequest(parts=parts))
    return messages


def to_parameters(prompt: Prompt, *, native_schema: bool) -> ModelRequestParameters:
    tools = [
        ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
        for tool in prompt.tools
    ]
    if prompt.output_schema is not None and native_schema:
        schema = OutputObjectDefinition(json_schema=prompt.output_schema.definition, name=prompt.output_schema.name)
        return ModelRequestParameters(function_tools=tools, output_mode="native", output_object=schema)
    return ModelRequestParameters(function_tools=tools)


def to_settings(prompt: Prompt) -> ModelSettings:
    chosen: dict[str, Any] = {
        "max_tokens": prompt.max_tokens,
        "temperature": prompt.temperature,
        "top_p": prompt.top_p,
        "seed": prompt.seed,
        "presence_penalty": prompt.presence_penalty,
        "frequency_penalty": prompt.frequency_penalty,
        "extra_body": prompt.extra_body or None,
        "stop_sequences": list(prompt.stop) or None,
    }
    return cast(ModelSettings, {name: value for name, value in chosen.items() if value is not None})


def _response(message: PromptMessage) -> ModelResponse:
    text = [TextPart(message.text)] if message.text else []
    calls = [ToolCallPart(call.name, call.arguments, tool_call_id=call.id) for call in message.calls]
    return ModelResponse(parts=[*text, *calls])


def _part(message: PromptMessage) -> ModelRequestPart:
    if message.role == "system":
        return SystemPromptPart(message.text)
    if message.role == "tool":
        if message.answers is None:
            raise ValueError("A tool message must refer to the call that it answers.")
        return ToolReturnPart(message.answers.name, message.text, tool_call_id=message.answers.id)
    if not message.images:
        return UserPromptPart(message.text)
    content: list[UserContent] = [message.text]
    content += [BinaryContent(data=image.data, media_type=image.media_type) for image in message.images]
    return UserPromptPart(content)


def _with_schema_in_text(prompt: Prompt) -> list[PromptMessage]:
    """Add the schema to the last user message: many chat templates allow no system message after the first."""
    definition = prompt.output_schema.definition if prompt.output_schema else {}
    instruction = (
        "Answer with one JSON object and nothing else: no explanation, no code fence. "
        f"It must fit this JSON schema:\n{json.dumps(definition, ensure_ascii=False)}"
    )
    *before, last = prompt.messages
    if last.role != "user":
        return [*prompt.messages, PromptMessage(role="user", text=instruction)]
    return [*before, last.model_copy(update={"text": f"{last.text}\n\n{instruction}"})]
