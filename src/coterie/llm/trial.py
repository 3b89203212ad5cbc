"""A quick look at one model: does it stream, how fast, and can it hold to a schema?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel, Field

from coterie.llm.catalogue import Target
from coterie.llm.embedded import Embedded
from coterie.llm.messages import Answer, Prompt, TextDelta
from coterie.llm.roles import Role
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.llm.structured import Classified, classify

_TALK = Prompt.of("Tell me in two or three sentences what a fox does at night.", max_tokens=120)
_SORT = Prompt.of(
    "Mara the fox is seven years old and lives in the old mill. Fill in the form about her.", max_tokens=120
)


class Form(BaseModel):
    name: str = ""
    age: int = Field(default=0, ge=0, le=200)
    place: str = Field(default="", max_length=60)


@dataclass(frozen=True)
class Trial:
    answer: Answer
    form: Classified[Form]
    memory_mb: float | None
    """What the embedded model's process holds; None for others."""

    @property
    def tokens_per_s(self) -> float:
        seconds = (self.answer.total_ms - (self.answer.first_token_ms or 0.0)) / 1000
        return self.answer.tokens.output / seconds if seconds > 0 else 0.0


async def try_out(
    settings: ModelsSettings, target: Target, say: Callable[[str], None], beside: Models | None = None
) -> Trial:
    """Stream from one model, without fallbacks. What it says is passed to `say` as it comes.

    `beside` are the models of a house that runs: its provider is asked, so that no model is loaded twice.
    """
    chain = (str(target),)
    alone = settings.model_copy(update={"roles": {Role.NARRATIVE: chain, Role.CLASSIFIER: chain}})
    models = Models(alone, providers={target.provider: beside.provider(target.provider)} if beside else None)
    try:
        async with models.stream(Role.NARRATIVE, _TALK) as reply:
            async for chunk in reply:
                if isinstance(chunk, TextDelta):
                    say(chunk.text)
        form = await classify(models, Form, _SORT, timeout_s=settings.deadline_s)
        provider = models.provider(target.provider)
        child = provider.child if isinstance(provider, Embedded) else None
        return Trial(reply.answer, form, child.memory_mb if child else None)
    finally:
        if beside is None:
            await models.close()
