"""Structured output: an answer that fits a schema, or the schema's default.

The provider's native schema mode is used if there is one. Every answer is validated; an invalid one or a refusal is
asked for once more with stricter instructions. If that fails too, the default is used and the failure is recorded.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from coterie.base.redaction import redact
from coterie.llm.errors import BadRequest, ModelError, NothingRecorded, RequestsForbidden
from coterie.llm.messages import OutputSchema, Prompt, PromptMessage
from coterie.llm.router import Caller, Models
from coterie.llm.settings import Role
from coterie.llm.usage import ClassifierFailed

# Plain text counts as a refusal by its beginning; text inside valid JSON only by whole phrases that cannot be a fact,
# because "I can't swim" can be a fact about a character.
_SORRY = r"(?:i['’]?m|i am) (?:very |so |truly )?sorry|(?:i )?apologi[sz]e|sorry"
_CANNOT = r"i (?:can['’]?t|cannot|can not|won['’]?t|will not|am unable to|['’]?m unable to|must decline)"
_HELP = (
    r"(?:help|assist|comply|provide|create|generate|engage|fulfil|participate|continue|do that|discuss|write|produce)"
)

_REFUSAL_START = re.compile(
    rf"\W*(?:(?:{_SORRY})\b|{_CANNOT}\b|i['’]m unable to\b|as an ai\b|as a (?:large )?language model\b)", re.I
)
_REFUSAL_PHRASE = re.compile(
    rf"\bas an ai (?:language )?(?:model|assistant)\b|\bas a large language model\b"
    rf"|(?:{_SORRY})[,.]? (?:but )?{_CANNOT}|{_CANNOT} {_HELP}\b",
    re.I,
)


def is_refusal(text: str) -> bool:
    return _REFUSAL_START.match(text) is not None


def contains_refusal(value: Any) -> bool:
    """Whether any string in parsed JSON contains a refusal."""
    if isinstance(value, str):
        return _REFUSAL_PHRASE.search(value) is not None
    if isinstance(value, dict):
        return any(map(contains_refusal, value.values()))
    if isinstance(value, list):
        return any(map(contains_refusal, value))
    return False


T = TypeVar("T", bound=BaseModel)
FailureKind = Literal["refused", "not_json", "not_the_schema", "unavailable"]
_MAX_RAW_LENGTH = 2_000


@dataclass(frozen=True)
class Classified(Generic[T]):
    """A structured answer, or the default with the failure."""

    value: T
    failure: ClassifierFailed | None = None
    error: ModelError | None = None
    """The model error, if no model answered."""

    @property
    def ok(self) -> bool:
        return self.failure is None


class _InvalidAnswer(Exception):
    def __init__(self, kind: FailureKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


async def classify(
    models: Models,
    output: type[T],
    prompt: Prompt,
    *,
    role: Role = Role.CLASSIFIER,
    caller: Caller = Caller(),  # noqa: B008 - it is immutable
    default: T | None = None,
    timeout_s: float | None = None,
) -> Classified[T]:
    """Ask for an `output`. `timeout_s` limits all attempts together (default: `classifier_timeout_s`)."""
    fallback = output() if default is None else default
    limit = models.catalogue.settings.classifier_timeout_s if timeout_s is None else timeout_s
    deadline = asyncio.get_running_loop().time() + limit
    schema = OutputSchema(name=output.__name__, definition=output.model_json_schema())
    current = prompt.model_copy(update={"output_schema": schema})
    kind: FailureKind = "unavailable"
    raw, model, error = "", str(models.catalogue.chain(role)[0]), None
    attempts = 0
    for attempts in (1, 2):
        remaining_s = deadline - asyncio.get_running_loop().time()
        if remaining_s <= 0:
            attempts -= 1
            break
        try:
            answer = await models.ask(role, current, caller=caller, deadline_s=remaining_s)
        except (RequestsForbidden, NothingRecorded):
            raise
        except ModelError as failed:
            kind, raw, error = "unavailable", failed.what, failed
            if not isinstance(failed, BadRequest):
                break
            # The provider may have rejected the schema: give it as text instead.
            current = _with_schema_as_text(prompt, schema)
            continue
        raw, model = answer.text, answer.model
        try:
            return Classified(parse_answer(output, raw))
        except _InvalidAnswer as invalid:
            kind, error = invalid.kind, None
            current = _retry_prompt(current, schema, raw, str(invalid))
    failure = ClassifierFailed(
        role=role.value,
        schema_name=output.__name__,
        model=model,
        failure=kind,
        raw=redact(raw)[:_MAX_RAW_LENGTH],
        attempts=attempts,
        room=caller.room,
        character=caller.character,
    )
    await models.ledger.record(failure)
    return Classified(fallback, failure, error)


def parse_answer(output: type[T], raw: str) -> T:
    """Parse an answer. Code fences and text around the JSON are ignored; anything else invalid is an error."""
    if is_refusal(raw):
        raise _InvalidAnswer("refused", "It declined instead of answering.")
    start = raw.find("{")
    try:
        if start < 0:
            raise ValueError("there is no JSON object in it")
        found, _ = json.JSONDecoder().raw_decode(raw, start)
    except (ValueError, RecursionError) as error:
        raise _InvalidAnswer("not_json", f"It was not JSON: {error}.") from None
    if contains_refusal(found):
        raise _InvalidAnswer("refused", "It declined instead of answering.")
    try:
        return output.model_validate(found)
    except ValidationError as error:
        reasons = "; ".join(
            f"{'.'.join(map(str, detail['loc'])) or 'the object'}: {detail['msg']}" for detail in error.errors()[:5]
        )
        raise _InvalidAnswer("not_the_schema", f"It did not fit the schema: {reasons}.") from None


def _retry_prompt(prompt: Prompt, schema: OutputSchema, raw: str, reason: str) -> Prompt:
    instruction = (
        f"Your last answer could not be used. {reason} This is a data extraction step inside a program; "
        f"nobody reads it as prose. Answer again. {_schema_instruction(schema)}"
    )
    retry = (PromptMessage(role="assistant", text=raw[:_MAX_RAW_LENGTH]), PromptMessage(role="user", text=instruction))
    return prompt.model_copy(update={"messages": (*prompt.messages, *retry), "temperature": 0.0})


def _with_schema_as_text(prompt: Prompt, schema: OutputSchema) -> Prompt:
    instruction = PromptMessage(role="user", text=_schema_instruction(schema))
    return prompt.model_copy(update={"messages": (*prompt.messages, instruction)})


def _schema_instruction(schema: OutputSchema) -> str:
    return (
        "Write exactly one JSON object, starting with { and ending with }, that fits this schema:\n"
        f"{json.dumps(schema.definition, ensure_ascii=False)}"
    )
