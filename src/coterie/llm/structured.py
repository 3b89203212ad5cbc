"""Answers that fit a schema, or its default: a classifier never leaves its caller with nothing.

The provider's own schema mode does most of the work where there is one. Whatever comes back is checked; what does
not fit, or is a refusal, is asked for once more in stricter words; then the default is used, and the failure is
recorded.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from coterie.base.masking import mask
from coterie.llm.errors import BadRequest, ModelError, NothingRecorded, RequestsForbidden
from coterie.llm.events import ClassifierFailed
from coterie.llm.messages import Message, Prompt, Shape
from coterie.llm.refusal import is_refusal, refusal_inside
from coterie.llm.roles import Role
from coterie.llm.router import Caller, Models

T = TypeVar("T", bound=BaseModel)
Wrong = Literal["refused", "not_json", "not_the_schema", "unavailable"]
_LONGEST_RAW = 2_000


@dataclass(frozen=True)
class Classified(Generic[T]):
    value: T
    failure: ClassifierFailed | None = None
    error: ModelError | None = None
    """Why no model could be asked, where that was it."""

    @property
    def ok(self) -> bool:
        return self.failure is None


class _Unfit(Exception):
    def __init__(self, wrong: Wrong, why: str) -> None:
        super().__init__(why)
        self.wrong = wrong


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
    shape = Shape(name=output.__name__, definition=output.model_json_schema())
    asking = prompt.model_copy(update={"shape": shape})
    wrong: Wrong = "unavailable"
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
            asking = _in_words(prompt, shape)
            continue
        raw, model = answer.text, answer.model
        try:
            return Classified(read_answer(output, raw))
        except _Unfit as unfit:
            wrong, error = unfit.wrong, None
            asking = _stricter(asking, shape, raw, str(unfit))
    failure = ClassifierFailed(
        role=role.value,
        schema_name=output.__name__,
        model=model,
        failure=wrong,
        raw=mask(raw)[:_LONGEST_RAW],
        attempts=attempts,
        room=caller.room,
        character=caller.character,
    )
    await models.ledger.write(failure)
    return Classified(fallback, failure, error)


def read_answer(output: type[T], raw: str) -> T:
    """The value in an answer. Code fences and chatter around the JSON are forgiven; anything else is not."""
    if is_refusal(raw):
        raise _Unfit("refused", "It declined instead of answering.")
    start = raw.find("{")
    try:
        if start < 0:
            raise ValueError("there is no JSON object in it")
        found, _ = json.JSONDecoder().raw_decode(raw, start)
    except (ValueError, RecursionError) as error:
        raise _Unfit("not_json", f"It was not JSON: {error}.") from None
    if refusal_inside(found):
        raise _Unfit("refused", "It declined instead of answering.")
    try:
        return output.model_validate(found)
    except ValidationError as error:
        reasons = "; ".join(
            f"{'.'.join(map(str, detail['loc'])) or 'the object'}: {detail['msg']}" for detail in error.errors()[:5]
        )
        raise _Unfit("not_the_schema", f"It did not fit the schema: {reasons}.") from None


def _stricter(prompt: Prompt, shape: Shape, raw: str, why: str) -> Prompt:
    told = (
        f"Your last answer could not be used. {why} This is a data extraction step inside a program; nobody reads it "
        f"as prose. Answer again. {_rule(shape)}"
    )
    retry = (Message(role="assistant", text=raw[:_LONGEST_RAW]), Message(role="user", text=told))
    return prompt.model_copy(update={"messages": (*prompt.messages, *retry), "temperature": 0.0})


def _in_words(prompt: Prompt, shape: Shape) -> Prompt:
    return prompt.model_copy(update={"messages": (*prompt.messages, Message(role="user", text=_rule(shape)))})


def _rule(shape: Shape) -> str:
    return (
        "Write exactly one JSON object, starting with { and ending with }, that fits this schema:\n"
        f"{json.dumps(shape.definition, ensure_ascii=False)}"
    )
