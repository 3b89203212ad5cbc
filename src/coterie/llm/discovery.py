"""The models that can be used: of the servers on this machine, and of a provider by its own list.

Requests are short, go to all servers at once, and send a key only to the address it was given for: redirects are not
followed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from coterie.base.errors import ConfigError
from coterie.base.untrusted import one_line, parse_json
from coterie.base.values import is_loopback_url, parse_int64
from coterie.llm.errors import BadAnswer, Forbidden, KeyRejected, ModelError, RateLimited, ServerFault, Unreachable
from coterie.llm.model_info import ModelInfo, read_context, read_model_list
from coterie.llm.settings import PRESETS, ProviderSpec

if TYPE_CHECKING:
    import httpx

_LIST_TIMEOUT_S = 15.0
_MAX_LIST_BYTES = 20_000_000
_WHOLE_TIMES = 4
"""A whole response may take this many times as long as one part of it."""
_ANTHROPIC_VERSION = "2023-06-01"
_DEFAULT_PORTS = {"http": 80, "https": 443}


def key_address(base_url: str) -> str:
    """Scheme, host and port of an address: a key that was given for one is not sent to another. Empty if invalid."""
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        return ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}")


_HOST = re.compile(r"[A-Za-z0-9_.:-]{1,253}")


def check_base_url(text: str) -> str:
    """The address of an API without a slash at its end. `ConfigError` if it cannot be one."""
    url = text.strip().rstrip("/")
    example = "Give one such as https://api.example.org/v1 or http://127.0.0.1:8080/v1."
    if not key_address(url) or not _HOST.fullmatch(urlsplit(url).hostname or ""):
        raise ConfigError(f"{one_line(text, 80) or 'Nothing'} is not an address of an API.", example)
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError("The address contains more than scheme, host and path.", example)
    return url


@dataclass(frozen=True)
class LocalServer:
    """A model server that runs on this machine, with its models."""

    preset: str
    base_url: str
    models: tuple[str, ...]
    details: tuple[ModelInfo, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class _ServerSignature:
    """How a kind of server is recognised by its API, where it usually is, and where it lists its models."""

    path: str
    marker: str
    models_path: str
    addresses: tuple[str, ...]


_SIGNATURES = {
    "ollama": _ServerSignature("/api/tags", "models", "/api/tags", ()),
    "lmstudio": _ServerSignature("/api/v0/models", "data", "/api/v0/models", ()),
    "llamacpp": _ServerSignature("/props", "default_generation_settings", "/v1/models", ()),
    "vllm": _ServerSignature("/version", "version", "/v1/models", ("http://127.0.0.1:8000/v1",)),
}


async def find_local_servers(
    addresses: Mapping[str, str] | None = None, *, timeout_s: float = 0.5
) -> list[LocalServer]:
    """The servers that answer, in a fixed order. `addresses` (preset → base URL) replaces the usual loopback ports."""
    import httpx

    places = [
        (preset, url)
        for preset, signature in _SIGNATURES.items()
        for url in (
            [addresses[preset]]
            if addresses and preset in addresses
            else [PRESETS[preset].base_url, *signature.addresses]
            if addresses is None
            else []
        )
    ]
    async with httpx.AsyncClient(timeout=timeout_s, trust_env=False) as client:
        servers = await asyncio.gather(*(_identify(client, preset, url) for preset, url in places))
    return [server for server in servers if server is not None]


async def _identify(client: httpx.AsyncClient, preset: str, base_url: str) -> LocalServer | None:
    signature, root = _SIGNATURES[preset], base_url.removesuffix("/v1")
    first = await _get_json(client, root + signature.path)
    if first is None or signature.marker not in first:
        return None
    body = first if signature.models_path == signature.path else await _get_json(client, root + signature.models_path)
    if preset == "vllm" and not _is_vllm(body):
        return None
    details = read_model_list(body)
    if preset == "ollama":
        details = await _ollama_details(client, root, details)
    elif preset == "llamacpp":
        defaults = first.get("default_generation_settings")
        context = read_context(defaults.get("n_ctx")) if isinstance(defaults, dict) else None
        details = [info.model_copy(update={"context": context or info.context}) for info in details]
    return LocalServer(preset, base_url, tuple(info.name for info in details), tuple(details))


def _is_vllm(body: dict[str, Any] | None) -> bool:
    """vLLM's usual port is used by many servers, also by Coterie: only its own name tells."""
    models = body.get("data") if body else None
    return isinstance(models, list) and any(
        isinstance(model, dict) and model.get("owned_by") == "vllm" for model in models
    )


async def _ollama_details(client: httpx.AsyncClient, root: str, models: list[ModelInfo]) -> list[ModelInfo]:
    running = await _get_json(client, f"{root}/api/ps") or {}
    loaded = {info.name: info for info in read_model_list(running)}
    shown = await asyncio.gather(*(_get_json(client, f"{root}/api/show", {"model": one.name}) for one in models))
    return [
        _with_ollama_facts(info, show or {}, loaded.get(info.name)) for info, show in zip(models, shown, strict=True)
    ]


_OLLAMA_CONTEXT = 4_096
"""What Ollama loads a model with unless the model, its settings or its environment say otherwise."""
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)


def _with_ollama_facts(info: ModelInfo, show: Mapping[str, Any], loaded: ModelInfo | None) -> ModelInfo:
    """Ollama cuts prompts silently at the context it loaded a model with, which is often less than the model's own."""
    facts = show.get("model_info")
    trained = (
        next((read_context(value) for key, value in facts.items() if key.endswith(".context_length")), None)
        if isinstance(facts, dict)
        else None
    )
    parameters = show.get("parameters")
    chosen = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    context = (loaded.context if loaded else None) or (read_context(parse_int64(chosen[1])) if chosen else None)
    if context is None and trained is not None:
        context = min(trained, _OLLAMA_CONTEXT)
    described = read_model_list([{"id": info.name, "capabilities": show.get("capabilities")}])[0]
    abilities = {"vision": described.vision, "tools": described.tools, "embedding": described.embedding}
    return info.model_copy(update={"context": context, **abilities})


async def _get_json(
    client: httpx.AsyncClient, url: str, body: Mapping[str, str] | None = None
) -> dict[str, Any] | None:
    import httpx

    try:
        status, content = await _read(client, url, body)
        answer = parse_json(content) if 200 <= status < 300 else None
    except (httpx.HTTPError, ValueError, _TooLarge):
        return None
    return answer if isinstance(answer, dict) else None


class _TooLarge(Exception):
    """A server sent more than a list of models has."""


async def _read(
    client: httpx.AsyncClient,
    url: str,
    body: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Status and body of a response, which is counted and timed as it arrives: any program may listen at an address."""
    import httpx

    content = bytearray()
    try:
        async with asyncio.timeout(_WHOLE_TIMES * (client.timeout.read or _LIST_TIMEOUT_S)):
            async with client.stream("GET" if body is None else "POST", url, json=body, headers=headers) as response:
                async for data in response.aiter_bytes(65_536):
                    content += data
                    if len(content) > _MAX_LIST_BYTES:
                        raise _TooLarge
    except TimeoutError as error:
        raise httpx.ReadTimeout("the response did not end") from error
    return response.status_code, bytes(content)


def provider_label(name: str, preset: str, base_url: str) -> str:
    """A provider as people know it: its brand, or the host of its address."""
    known = PRESETS.get(preset)
    if known is not None and preset != "openai-compatible":
        return known.label
    return urlsplit(base_url).netloc or name


async def list_models(spec: ProviderSpec, label: str, *, timeout_s: float = _LIST_TIMEOUT_S) -> list[ModelInfo]:
    """The models that a provider lists, which checks the key as well. `ModelError` says why there is no list."""
    import httpx

    try:
        async with httpx.AsyncClient(timeout=timeout_s, trust_env=not is_loopback_url(spec.base_url)) as client:
            status, content = await _read(client, models_url(spec), headers=auth_headers(spec))
    except _TooLarge:
        raise BadAnswer(
            f"{label} sent a list of models that is too large.", "Type the name of a model instead."
        ) from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise unreachable(label, spec.base_url, error) from error
    if (problem := list_problem(status, label, spec)) is not None:
        raise problem
    try:
        models = read_model_list(parse_json(content))
    except ValueError as error:
        raise BadAnswer(
            f"{label} did not answer with a list of models.",
            "Check the address: it usually ends in /v1 and speaks OpenAI's protocol.",
        ) from error
    if spec.preset == "ollama":
        async with httpx.AsyncClient(timeout=timeout_s, trust_env=False) as client:
            models = await _ollama_details(client, spec.base_url.removesuffix("/v1"), models)
    return models


def unreachable(label: str, base_url: str, error: Exception) -> ModelError:
    """The error for a server that did not answer."""
    import httpx

    place = key_address(base_url) or base_url
    if is_loopback_url(base_url):
        return Unreachable(f"{label} does not answer at {place}.", f"Start {label} and try again.")
    if isinstance(error, httpx.TimeoutException):
        return Unreachable(f"{label} did not answer in time ({place}).", "Try again in a moment.")
    return Unreachable(
        f"{label} could not be reached at {place}.", "Check the network connection and the address, then try again."
    )


def list_problem(status: int, label: str, spec: ProviderSpec) -> ModelError | None:
    """What a status of the list of models means for the person; None if all is well."""
    if status == 401:
        if spec.api_key is None:
            return KeyRejected(f"{label} needs a key.", "Enter one.", status=status)
        return KeyRejected(
            f"{label} does not accept this key.",
            "Check that it is complete and was not revoked, then enter it again.",
            status=status,
        )
    if status == 403:
        return Forbidden(f"{label} does not allow this key to list models.", "Check its permissions.", status=status)
    if status == 429:
        return RateLimited(f"{label} is limiting the rate of requests.", "Wait a minute and try again.", status=status)
    if status >= 500:
        return ServerFault(f"{label} has a problem at the moment (HTTP {status}).", "Try again later.", status=status)
    if status >= 300:
        return BadAnswer(
            f"There is no list of models at {models_url(spec)} (HTTP {status}).",
            "Check the address: it usually ends in /v1.",
            status=status,
        )
    return None


def models_url(spec: ProviderSpec) -> str:
    root = spec.base_url.rstrip("/")
    return f"{root}/v1/models?limit=1000" if spec.protocol == "anthropic" else f"{root}/models"


def auth_headers(spec: ProviderSpec) -> dict[str, str]:
    if spec.api_key is None:
        return {}
    key = spec.api_key.get_secret_value()
    if spec.protocol == "anthropic":
        return {"x-api-key": key, "anthropic-version": _ANTHROPIC_VERSION}
    return {"authorization": f"Bearer {key}"}
