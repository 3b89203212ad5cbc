"""What is known about a model: context window, abilities, price. From the provider's own list, else from bundled data.

Providers list their models in many shapes; `read_model_list` understands those of the known ones and ignores what it
does not understand. Answers are kept in a file, so that they are known after a restart without a request.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coterie.base.logging import get_logger
from coterie.base.paths import write_atomic
from coterie.base.untrusted import one_line
from coterie.base.values import is_text

_log = get_logger(__name__)
_MAX_MODELS = 5_000
_MAX_NAME = 200
_MAX_CONTEXT = 1_000_000_000
_MAX_USD = 100_000.0


class ModelInfo(BaseModel):
    """A model as its provider describes it. None and "" mean that the provider does not tell."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    """The provider's name for it, as it is sent in requests."""
    title: str = ""
    context: int | None = Field(default=None, gt=0)
    """Tokens of prompt and answer together."""
    vision: bool | None = None
    tools: bool | None = None
    embedding: bool = False
    """Whether it makes vectors and not text."""
    usd_per_million_in: float | None = Field(default=None, ge=0)
    usd_per_million_out: float | None = Field(default=None, ge=0)
    bytes: int | None = None
    """Its size on disk, for a model on this machine."""
    parameters: str = ""
    """Its size as people write it: `8B`."""


def read_model_list(body: object) -> list[ModelInfo]:
    """The models in a provider's answer to `/models`, or in Ollama's to `/api/tags`, in the order of the answer."""
    items = body
    if isinstance(body, dict):
        items = next((body[key] for key in ("data", "models") if isinstance(body.get(key), list)), [])
    found: dict[str, ModelInfo] = {}
    for item in items[:_MAX_MODELS] if isinstance(items, list) else []:
        if isinstance(item, dict) and (info := _read_model(item)) is not None:
            found.setdefault(info.name, info)
    return list(found.values())


def _read_model(item: Mapping[str, Any]) -> ModelInfo | None:
    name = item.get("id") or item.get("name") or item.get("model")
    if not isinstance(name, str) or not name.strip() or len(name) > _MAX_NAME or not is_text(name):
        return None
    # Google writes the resource name in the list and accepts the bare one in requests.
    name = name.strip().removeprefix("models/")
    details = _table(item, "details")
    abilities = item.get("capabilities")
    price_in, price_out = _prices(item)
    try:
        return ModelInfo(
            name=name,
            title=one_line(_first_text(item, "display_name", "name", "displayName"), 120),
            context=_context(item),
            vision=_vision(item, abilities),
            tools=_tools(item, abilities),
            embedding=_is_embedding(name, item, abilities),
            usd_per_million_in=price_in,
            usd_per_million_out=price_out,
            bytes=_whole(item.get("size")),
            parameters=one_line(_first_text(details, "parameter_size") or parameters_in(name), 20),
        )
    except ValidationError:
        return ModelInfo(name=name)


def _table(item: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = item.get(key)
    return value if isinstance(value, dict) else {}


def _first_text(item: Mapping[str, Any], *keys: str) -> str:
    return next((item[key] for key in keys if isinstance(item.get(key), str)), "")


def _whole(value: object, most: int = 10**15) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 1 <= value <= most else None


def read_context(value: object) -> int | None:
    """A context window in tokens as a provider tells it; None for what cannot be one."""
    return _whole(value, _MAX_CONTEXT)


_CONTEXT_KEYS = (
    "loaded_context_length",  # LM Studio: what it was loaded with
    "context_length",  # OpenRouter, Featherless, Together
    "max_model_len",  # vLLM
    "context_window",  # Groq
    "max_context_length",  # Mistral, LM Studio
    "max_input_tokens",  # Anthropic
    "inputTokenLimit",
)


def _context(item: Mapping[str, Any]) -> int | None:
    for place in (item, _table(item, "top_provider"), _table(item, "meta")):
        for key in (*_CONTEXT_KEYS, "n_ctx"):
            if (value := read_context(place.get(key))) is not None:
                return value
    return None


def _vision(item: Mapping[str, Any], abilities: object) -> bool | None:
    inputs = _table(item, "architecture").get("input_modalities")
    if isinstance(inputs, list):
        return "image" in inputs
    if isinstance(abilities, list):
        return "vision" in abilities
    if isinstance(abilities, dict) and isinstance(abilities.get("vision"), bool):
        return bool(abilities["vision"])
    return True if item.get("type") == "vlm" else None


def _tools(item: Mapping[str, Any], abilities: object) -> bool | None:
    supported = item.get("supported_parameters")
    if isinstance(supported, list):
        return "tools" in supported
    if isinstance(abilities, list):
        return "tools" in abilities or "tool_use" in abilities
    if isinstance(abilities, dict) and isinstance(abilities.get("function_calling"), bool):
        return bool(abilities["function_calling"])
    return None


_EMBEDDING_NAME = re.compile(r"embed|\bbge-|\be5-|minilm|nomic-|rerank", re.IGNORECASE)
_OTHER_NAME = re.compile(
    r"whisper|tts|dall-e|moderation|transcribe|imagen|veo-|audio|realtime|image|sora", re.IGNORECASE
)


def _is_embedding(name: str, item: Mapping[str, Any], abilities: object) -> bool:
    if isinstance(abilities, list) and "embedding" in abilities:
        return "completion" not in abilities
    if isinstance(item.get("type"), str):
        return str(item["type"]).startswith("embedding")
    return bool(_EMBEDDING_NAME.search(name))


def writes_text(info: ModelInfo) -> bool:
    """Whether a model can hold a conversation, as far as its description and name tell."""
    return not info.embedding and not _OTHER_NAME.search(info.name)


def _prices(item: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Dollars per million tokens. OpenRouter gives dollars per token as text, Together dollars per million."""
    pricing = _table(item, "pricing")
    if "prompt" in pricing:
        per_million = 1_000_000.0
        pair = (pricing.get("prompt"), pricing.get("completion"))
    else:
        per_million = 1.0
        pair = (pricing.get("input"), pricing.get("output"))
    first, second = (_usd(value, per_million) for value in pair)
    return (first, second) if first is not None and second is not None else (None, None)


def _usd(value: object, factor: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        usd = float(value) * factor
    except ValueError:
        return None
    return round(usd, 6) if 0 <= usd <= _MAX_USD else None


_PARAMETERS = re.compile(r"(?<![a-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)\s?([bm])(?![a-z0-9])", re.IGNORECASE)


def parameters_in(name: str) -> str:
    """The number of parameters that a model's name contains, such as `8B`; empty if there is none."""
    found = _PARAMETERS.search(name.replace("_", "-"))
    return f"{found[1] + 'x' if found[1] else ''}{found[2]}{found[3].upper()}" if found else ""


def billions_of_parameters(name: str) -> float | None:
    """The number of parameters by a model's name or by its `parameters`, in billions; None if it tells nothing."""
    found = _PARAMETERS.search(name.replace("_", "-"))
    if not found:
        return None
    return float(found[1] or 1) * float(found[2]) / (1000 if found[3].lower() == "m" else 1)


_FAMILY_CONTEXTS = (
    # Open models that hosts list without a window: what their authors state.
    (re.compile(r"llama-?3\.[123]|llama-?3-[123]", re.IGNORECASE), 131_072),
    (re.compile(r"llama-?3", re.IGNORECASE), 8_192),
    (re.compile(r"mistral-nemo|mistral-small|magistral|devstral", re.IGNORECASE), 131_072),
    (re.compile(r"dolphin-mistral-24b|mistral-small-24b", re.IGNORECASE), 32_768),
    (re.compile(r"mixtral-8x22b", re.IGNORECASE), 65_536),
    (re.compile(r"mi[sx]tral", re.IGNORECASE), 32_768),
    (re.compile(r"qwen-?3", re.IGNORECASE), 32_768),
    (re.compile(r"qwen-?2\.5", re.IGNORECASE), 32_768),
    (re.compile(r"gemma-?3", re.IGNORECASE), 131_072),
    (re.compile(r"gemma-?2", re.IGNORECASE), 8_192),
    (re.compile(r"phi-?4", re.IGNORECASE), 16_384),
    (re.compile(r"phi-?3", re.IGNORECASE), 131_072),
    (re.compile(r"deepseek", re.IGNORECASE), 65_536),
)


@lru_cache(maxsize=1_024)
def bundled_context(provider: str, model: str) -> int | None:
    """The context window by the bundled data: the list of prices, then well-known open models by their name."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, listed = get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        listed = None
    if listed is not None and listed.context_window:
        return int(listed.context_window)
    return next((context for pattern, context in _FAMILY_CONTEXTS if pattern.search(model)), None)


class ModelInfoStore:
    """What providers report about their models, by `provider/model`; kept in a JSON file if there is one."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._known = self._read()

    def get(self, target: str) -> ModelInfo | None:
        return self._known.get(target)

    def remember(self, provider: str, models: Iterable[ModelInfo]) -> None:
        """Keep what a provider reports; it replaces its earlier report about the same models."""
        with self._lock:
            self._known |= {f"{provider}/{info.name}": info for info in models}
            if self._file is None:
                return
            data = {name: info.model_dump(exclude_defaults=True) for name, info in sorted(self._known.items())}
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                write_atomic(self._file, json.dumps(data, indent=0).encode(), durable=False)
            except OSError as error:  # it is asked for again after the next start
                _log.warning("what is known about models was not stored", error=str(error))

    def _read(self) -> dict[str, ModelInfo]:
        try:
            data = json.loads(self._file.read_text(encoding="utf-8")) if self._file else {}
            return {name: ModelInfo.model_validate(info) for name, info in data.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError) as error:
            _log.warning("what is known about models could not be read", error=str(error))
            return {}
