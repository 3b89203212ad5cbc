"""Our prompts in pydantic-ai's words. The only file besides hosted.py and faults.py that knows its types."""

from __future__ import annotations

import json
from typing import Any, cast

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

from coterie.llm.messages import OutputSchema, Prompt, PromptMessage


def to_messages(prompt: Prompt, *, native_schema: bool) -> list[ModelMessage]:
    messages: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    for message in (
        prompt.messages
        if native_schema or prompt.output_schema is None
        else _with_schema_in_text(prompt.output_schema, prompt)
    ):
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
        shape = OutputObjectDefinition(json_schema=prompt.output_schema.definition, name=prompt.output_schema.name)
        return ModelRequestParameters(function_tools=tools, output_mode="native", output_object=shape)
    return ModelRequestParameters(function_tools=tools)


def to_settings(prompt: Prompt) -> ModelSettings:
    chosen: dict[str, Any] = {
        "max_tokens": prompt.max_tokens,
        "temperature": prompt.temperature,
        "top_p": prompt.top_p,
        "seed": prompt.seed,
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
            raise ValueError("A tool's message must say which call it answers.")
        return ToolReturnPart(message.answers.name, message.text, tool_call_id=message.answers.id)
    if not message.images:
        return UserPromptPart(message.text)
    content: list[UserContent] = [message.text]
    content += [BinaryContent(data=image.data, media_type=image.media_type) for image in message.images]
    return UserPromptPart(content)


def _with_schema_in_text(shape: OutputSchema, prompt: Prompt) -> list[PromptMessage]:
    """The schema in words, in the last message: many chat templates allow no system message after the first."""
    told = (
        "Answer with one JSON object and nothing else: no explanation, no code fence. "
        f"It must fit this JSON schema:\n{json.dumps(shape.definition, ensure_ascii=False)}"
    )
    *before, last = prompt.messages
    if last.role != "user":
        return [*prompt.messages, PromptMessage(role="user", text=told)]
    return [*before, last.model_copy(update={"text": f"{last.text}\n\n{told}"})]
