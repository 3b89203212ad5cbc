"""Checks of configured providers, and a probe of a single model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field

from coterie.llm.discovery import auth_headers, list_problem, models_url, provider_label, unreachable
from coterie.llm.embedded.provider import EmbeddedProvider
from coterie.llm.errors import RoleUnset
from coterie.llm.messages import ModelAnswer, Prompt, TextDelta
from coterie.llm.router import Models
from coterie.llm.settings import PRESETS, Catalogue, ModelsSettings, ProviderSpec, Role, Target
from coterie.llm.structured import Classified, classify

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True)
class ProviderHealth:
    """Whether a provider was reached and accepted its key."""

    provider: str
    state: Literal["ok", "note", "bad"]
    what: str
    fix: str = ""


async def check_providers(catalogue: Catalogue, *, timeout_s: float = 5.0) -> list[ProviderHealth]:
    """Check each provider that a role uses, except the embedded one. Only lists models, so no tokens are spent."""
    import httpx

    specs = [catalogue.spec(name) for name in _providers_in_use(catalogue)]
    async with httpx.AsyncClient(timeout=timeout_s) as client:
        return list(await asyncio.gather(*(_check_provider(client, spec) for spec in specs)))


def _providers_in_use(catalogue: Catalogue) -> list[str]:
    used: set[str] = set()
    for role in Role:
        try:
            used |= {target.provider for target in catalogue.chain(role)}
        except RoleUnset:
            continue
    return sorted(used - {"embedded"})


async def _check_provider(client: httpx.AsyncClient, spec: ProviderSpec) -> ProviderHealth:
    import httpx

    name = spec.name
    label = provider_label(name, spec.preset, spec.base_url)
    if spec.api_key is None and PRESETS[spec.preset].needs_key:
        return ProviderHealth(name, "bad", f"{label} has no key.", "Enter one in Settings → Models.")
    try:
        response = await client.get(models_url(spec), headers=auth_headers(spec))
    except httpx.HTTPError as error:
        problem = unreachable(label, spec.base_url, error)
        return ProviderHealth(name, "note", problem.what, problem.fix)
    if response.status_code in (401, 403) and spec.api_key is not None:
        return ProviderHealth(
            name,
            "bad",
            f"{label} no longer accepts the saved key (HTTP {response.status_code}).",
            "Enter a new one in Settings → Models.",
        )
    if response.status_code in (401, 403) or response.status_code >= 500:
        found = list_problem(response.status_code, label, spec)
        if found is not None:
            return ProviderHealth(name, "note", found.what, found.fix)
    return ProviderHealth(name, "ok", f"{label} answers" + (" and accepts the key." if spec.api_key else "."))


_STREAM_PROMPT = Prompt.of("Tell me in two or three sentences what a fox does at night.", max_tokens=120)
_FORM_PROMPT = Prompt.of(
    "Mara the fox is seven years old and lives in the old mill. Fill in the form about her.", max_tokens=120
)


class ProbeForm(BaseModel):
    """The structured answer that a probe asks for."""

    name: str = ""
    age: int = Field(default=0, ge=0, le=200)
    place: str = Field(default="", max_length=60)


@dataclass(frozen=True)
class ProbeResult:
    """A model's streamed answer, its structured answer, and its memory use."""

    answer: ModelAnswer
    structured: Classified[ProbeForm]
    memory_mb: float | None
    """Memory of the embedded model's process; None for other models."""

    @property
    def tokens_per_s(self) -> float:
        seconds = (self.answer.total_ms - (self.answer.first_token_ms or 0.0)) / 1000
        return self.answer.tokens.output / seconds if seconds > 0 else 0.0


async def probe_model(
    settings: ModelsSettings, target: Target, on_text: Callable[[str], None], running: Models | None = None
) -> ProbeResult:
    """Ask one model, without fallbacks, for streamed text and for structured output. Text is passed to `on_text`.

    With `running`, its provider is used, so that a local model is not loaded twice.
    """
    chain = (str(target),)
    single = settings.model_copy(update={"roles": {Role.NARRATIVE: chain, Role.CLASSIFIER: chain}})
    models = Models(
        single,
        providers={target.provider: running.provider(target)} if running else None,
        info=running.catalogue.info if running else None,
        folder=running.catalogue.folder if running else None,
    )
    try:
        async with models.stream(Role.NARRATIVE, _STREAM_PROMPT) as reply:
            async for chunk in reply:
                if isinstance(chunk, TextDelta):
                    on_text(chunk.text)
        form = await classify(models, ProbeForm, _FORM_PROMPT, timeout_s=settings.deadline_s)
        provider = models.provider(target)
        process = provider.process if isinstance(provider, EmbeddedProvider) else None
        return ProbeResult(reply.answer, form, process.memory_mb if process else None)
    finally:
        if running is None:
            await models.close()
