"""Checks of model servers: find those on this machine, test configured providers, probe a single model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field

from coterie.base.untrusted import parse_json
from coterie.llm.embedded.provider import EmbeddedProvider
from coterie.llm.errors import RoleUnset
from coterie.llm.messages import ModelAnswer, Prompt, TextDelta
from coterie.llm.router import Models
from coterie.llm.settings import PRESETS, Catalogue, ModelsSettings, ProviderSpec, Role, Target
from coterie.llm.structured import Classified, classify

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True)
class LocalServer:
    """A model server that runs on this machine, with its models."""

    preset: str
    base_url: str
    models: tuple[str, ...]


@dataclass(frozen=True)
class _ServerSignature:
    """How to recognise a kind of server by its API, and where it lists its models."""

    path: str
    marker_key: str
    models_path: str
    models_key: str
    model_name_key: str


_SIGNATURES = {
    "ollama": _ServerSignature("/api/tags", "models", "/api/tags", "models", "name"),
    "lmstudio": _ServerSignature("/api/v0/models", "data", "/api/v0/models", "data", "id"),
    "llamacpp": _ServerSignature("/props", "default_generation_settings", "/v1/models", "data", "id"),
}


async def find_local_servers(
    addresses: Mapping[str, str] | None = None, *, timeout_s: float = 0.5
) -> list[LocalServer]:
    """The servers that answer, in a fixed order. `addresses` (preset → base URL) replaces the usual loopback ports."""
    import httpx

    urls = {preset: (addresses or {}).get(preset, PRESETS[preset].base_url) for preset in _SIGNATURES}
    async with httpx.AsyncClient(timeout=timeout_s, trust_env=False) as client:
        servers = await asyncio.gather(*(_identify_server(client, preset, url) for preset, url in urls.items()))
    return [server for server in servers if server is not None]


async def _identify_server(client: httpx.AsyncClient, preset: str, base_url: str) -> LocalServer | None:
    signature, root = _SIGNATURES[preset], base_url.removesuffix("/v1")
    body = await _get_json(client, root + signature.path)
    if body is None or signature.marker_key not in body:
        return None
    if signature.models_path != signature.path:
        body = await _get_json(client, root + signature.models_path) or {}
    models = body.get(signature.models_key)
    items = models if isinstance(models, list) else []
    names = [item.get(signature.model_name_key) for item in items if isinstance(item, dict)]
    return LocalServer(preset, base_url, tuple(name for name in names if isinstance(name, str)))


async def _get_json(client: httpx.AsyncClient, url: str) -> dict[str, Any] | None:
    import httpx

    try:
        response = await client.get(url)
        body = parse_json(response.content) if response.is_success else None
    except (httpx.HTTPError, ValueError):
        return None
    return body if isinstance(body, dict) else None


_ANTHROPIC_VERSION = "2023-06-01"


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
    store_key = f"Store the right one: coterie secrets set {name}"
    if spec.api_key is None and name in PRESETS and PRESETS[name].needs_key:
        fix = f"Store one (coterie secrets set {name}) and refer to it in the settings."
        return ProviderHealth(name, "bad", "no key is set", fix)
    try:
        response = await client.get(_models_url(spec), headers=_headers(spec))
    except httpx.HTTPError as error:
        fix = "Check that it runs and that the network is up."
        return ProviderHealth(name, "note", f"not reached ({type(error).__name__})", fix)
    if response.status_code in (401, 403):
        return ProviderHealth(name, "bad", f"the key was refused (HTTP {response.status_code})", store_key)
    if response.status_code >= 500:
        return ProviderHealth(name, "note", f"server error (HTTP {response.status_code})", "Try again later.")
    return ProviderHealth(name, "ok", "reached, and the key is accepted" if spec.api_key else "reached")


def _models_url(spec: ProviderSpec) -> str:
    root = spec.base_url.rstrip("/")
    return f"{root}/v1/models" if spec.protocol == "anthropic" else f"{root}/models"


def _headers(spec: ProviderSpec) -> dict[str, str]:
    if spec.api_key is None:
        return {}
    key = spec.api_key.get_secret_value()
    if spec.protocol == "anthropic":
        return {"x-api-key": key, "anthropic-version": _ANTHROPIC_VERSION}
    return {"authorization": f"Bearer {key}"}


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
    models = Models(single, providers={target.provider: running.provider(target.provider)} if running else None)
    try:
        async with models.stream(Role.NARRATIVE, _STREAM_PROMPT) as reply:
            async for chunk in reply:
                if isinstance(chunk, TextDelta):
                    on_text(chunk.text)
        form = await classify(models, ProbeForm, _FORM_PROMPT, timeout_s=settings.deadline_s)
        provider = models.provider(target.provider)
        process = provider.process if isinstance(provider, EmbeddedProvider) else None
        return ProbeResult(reply.answer, form, process.memory_mb if process else None)
    finally:
        if running is None:
            await models.close()
