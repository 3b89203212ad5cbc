"""Finds model servers that already run on this machine, so that they can be offered. Looks at loopback only."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coterie.llm.presets import PRESETS

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True)
class LocalServer:
    preset: str
    base_url: str
    models: tuple[str, ...]


@dataclass(frozen=True)
class _ServerSignature:
    """How a server is told from anything else that might listen on its port, and where its models are listed."""

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
    """Those that answer, in a fixed order. `addresses` (preset → base URL) replaces the usual places."""
    import httpx

    places = {preset: (addresses or {}).get(preset, PRESETS[preset].base_url) for preset in _SIGNATURES}
    async with httpx.AsyncClient(timeout=timeout_s, trust_env=False) as client:
        found = await asyncio.gather(*(_identify_server(client, preset, url) for preset, url in places.items()))
    return [server for server in found if server is not None]


async def _identify_server(client: httpx.AsyncClient, preset: str, base_url: str) -> LocalServer | None:
    sign, root = _SIGNATURES[preset], base_url.removesuffix("/v1")
    told = await _get_json(client, root + sign.path)
    if told is None or sign.marker_key not in told:
        return None
    listing = told if sign.models_path == sign.path else await _get_json(client, root + sign.models_path) or {}
    listed = listing.get(sign.models_key)
    names = (
        [item.get(sign.model_name_key) for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    )
    return LocalServer(preset, base_url, tuple(name for name in names if isinstance(name, str)))


async def _get_json(client: httpx.AsyncClient, url: str) -> dict[str, Any] | None:
    import httpx

    try:
        answer = await client.get(url)
        told = answer.json() if answer.is_success else None
    except (httpx.HTTPError, ValueError):
        return None
    return told if isinstance(told, dict) else None
