"""Answers that fit a schema, or its default: a classifier never leaves its caller with nothing.

The provider's own schema mode does most of the work where there is one. Whatever comes back is checked; what does
not fit, or is a refusal, is asked for once more in stricter words; then the default is used, and the failure is
recorded.
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

_OPENS = re.compile(
    rf"\W*(?:(?:{_SORRY})\b|{_CANNOT}\b|i['’]m unable to\b|as an ai\b|as a (?:large )?language model\b)", re.I
)
_PHRASE = re.compile(
    rf"\bas an ai (?:language )?(?:model|assistant)\b|\bas a large language model\b"
    rf"|(?:{_SORRY})[,.]? (?:but )?{_CANNOT}|{_CANNOT} {_HELP}\b",
    re.I,
)


def is_refusal(text: str) -> bool:
    return _OPENS.match(text) is not None


def contains_refusal(value: Any) -> bool:
    """Whether any text in parsed JSON is a refusal put in a field."""
    if isinstance(value, str):
        return _PHRASE.search(value) is not None
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
    value: T
    failure: ClassifierFailed | None = None
    error: ModelError | None = None
    """Why no model could be asked, where that was it."""

    @property
    def ok(self) -> bool:
        return self.failure is None


class _InvalidAnswer(Exception):
    def __init__(self, wrong: FailureKind, why: str) -> None:
        super().__init__(why)
        self.kind = wrong


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
    """Ask for an `output`. All tries together have `timeout_s` (classifier_timeout_s, unless given)."""
    fallback = output() if default is None else default
    within = models.catalogue.settings.classifier_timeout_s if timeout_s is None else timeout_s
    deadline = asyncio.get_running_loop().time() + within
    shape = OutputSchema(name=output.__name__, definition=output.model_json_schema())
    asking = prompt.model_copy(update={"output_schema": shape})
    wrong: FailureKind = "unavailable"
    raw, model, error = "", str(models.catalogue.chain(role)[0]), None
    attempts = 0
    for attempts in (1, 2):
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            attempts -= 1
            break
        try:
            answer = await models.ask(role, asking, caller=caller, deadline_s=left)
        except (RequestsForbidden, NothingRecorded):
            raise
        except ModelError as failed:
            wrong, raw, error = "unavailable", failed.what, failed
            if not isinstance(failed, BadRequest):
                break
            # Perhaps it was the schema that the provider did not take: ask in words alone.
            asking = _with_schema_as_text(prompt, shape)
            continue
        raw, model = answer.text, answer.model
        try:
            return Classified(parse_answer(output, raw))
        except _InvalidAnswer as unfit:
            wrong, error = unfit.kind, None
            asking = _retry_prompt(asking, shape, raw, str(unfit))
    failure = ClassifierFailed(
        role=role.value,
        schema_name=output.__name__,
        model=model,
        failure=wrong,
        raw=redact(raw)[:_MAX_RAW_LENGTH],
        attempts=attempts,
        room=caller.room,
        character=caller.character,
    )
    await models.ledger.record(failure)
    return Classified(fallback, failure, error)


def parse_answer(output: type[T], raw: str) -> T:
    """The value in an answer. Code fences and chatter around the JSON are forgiven; anything else is not."""
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


def _retry_prompt(prompt: Prompt, shape: OutputSchema, raw: str, why: str) -> Prompt:
    told = (
        f"Your last answer could not be used. {why} This is a data extraction step inside a program; nobody reads it "
        f"as prose. Answer again. {_schema_instruction(shape)}"
    )
    retry = (PromptMessage(role="assistant", text=raw[:_MAX_RAW_LENGTH]), PromptMessage(role="user", text=told))
    return prompt.model_copy(update={"messages": (*prompt.messages, *retry), "temperature": 0.0})


def _with_schema_as_text(prompt: Prompt, shape: OutputSchema) -> Prompt:
    return prompt.model_copy(
        update={"messages": (*prompt.messages, PromptMessage(role="user", text=_schema_instruction(shape)))}
    )


def _schema_instruction(shape: OutputSchema) -> str:
    return (
        "Write exactly one JSON object, starting with { and ending with }, that fits this schema:\n"
        f"{json.dumps(shape.definition, ensure_ascii=False)}"
    )
