"""Whether the providers that roles use would take a call: reached, and the key accepted. Nothing is written for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from coterie.llm.catalogue import Catalogue, ProviderSpec
from coterie.llm.errors import RoleUnset
from coterie.llm.presets import PRESETS
from coterie.llm.roles import Role

if TYPE_CHECKING:
    import httpx

_ANTHROPIC_VERSION = "2023-06-01"


@dataclass(frozen=True)
class ProviderHealth:
    provider: str
    state: Literal["ok", "note", "bad"]
    what: str
    fix: str = ""


async def check_providers(catalogue: Catalogue, *, timeout_s: float = 5.0) -> list[ProviderHealth]:
    """One per provider that some role uses, but for the embedded model."""
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
    again = f"Keep the right one: coterie secrets set {name}"
    if spec.api_key is None and name in PRESETS and PRESETS[name].needs_key:
        return ProviderHealth(name, "bad", "no key is set", f"Keep one (coterie secrets set {name}) and refer to it.")
    try:
        answer = await client.get(_models_url(spec), headers=_headers(spec))
    except httpx.HTTPError as error:
        return ProviderHealth(
            name, "note", f"not reached ({type(error).__name__})", "Is it running, and is the network there?"
        )
    if answer.status_code in (401, 403):
        return ProviderHealth(name, "bad", f"the key was refused (HTTP {answer.status_code})", again)
    if answer.status_code >= 500:
        return ProviderHealth(name, "note", f"it has trouble (HTTP {answer.status_code})", "Try again later.")
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
