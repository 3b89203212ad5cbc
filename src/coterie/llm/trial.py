"""A quick look at one model: does it stream, how fast, and can it hold to a schema?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel, Field

from coterie.llm.catalogue import Target
from coterie.llm.embedded import EmbeddedProvider
from coterie.llm.messages import ModelAnswer, Prompt, TextDelta
from coterie.llm.roles import Role
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.llm.structured import Classified, classify

_STREAM_PROMPT = Prompt.of("Tell me in two or three sentences what a fox does at night.", max_tokens=120)
_FORM_PROMPT = Prompt.of(
    "Mara the fox is seven years old and lives in the old mill. Fill in the form about her.", max_tokens=120
)


class ProbeForm(BaseModel):
    name: str = ""
    age: int = Field(default=0, ge=0, le=200)
    place: str = Field(default="", max_length=60)


@dataclass(frozen=True)
class ProbeResult:
    answer: ModelAnswer
    structured: Classified[ProbeForm]
    memory_mb: float | None
    """What the embedded model's process holds; None for others."""

    @property
    def tokens_per_s(self) -> float:
        seconds = (self.answer.total_ms - (self.answer.first_token_ms or 0.0)) / 1000
        return self.answer.tokens.output / seconds if seconds > 0 else 0.0


async def probe_model(
    settings: ModelsSettings, target: Target, on_text: Callable[[str], None], running: Models | None = None
) -> ProbeResult:
    """Stream from one model, without fallbacks. What it says is passed to `say` as it comes.

    `beside` are the models of a house that runs: its provider is asked, so that no model is loaded twice.
    """
    chain = (str(target),)
    alone = settings.model_copy(update={"roles": {Role.NARRATIVE: chain, Role.CLASSIFIER: chain}})
    models = Models(alone, providers={target.provider: running.provider(target.provider)} if running else None)
    try:
        async with models.stream(Role.NARRATIVE, _STREAM_PROMPT) as reply:
            async for chunk in reply:
                if isinstance(chunk, TextDelta):
                    on_text(chunk.text)
        form = await classify(models, ProbeForm, _FORM_PROMPT, timeout_s=settings.deadline_s)
        provider = models.provider(target.provider)
        child = provider.process if isinstance(provider, EmbeddedProvider) else None
        return ProbeResult(reply.answer, form, child.memory_mb if child else None)
    finally:
        if running is None:
            await models.close()
