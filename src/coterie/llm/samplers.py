"""Sampler presets: how a model picks its words. Chosen per model, character and chat; imported from SillyTavern.

A preset has only the values that it sets. What a provider does not support is left out of its requests, so that one
preset can be used with several models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue

from coterie.base.config import PageSetting, Section
from coterie.base.errors import ConfigError
from coterie.base.untrusted import parse_json
from coterie.llm.messages import Prompt

_MAX_STOPS = 16
RESERVED_FIELDS = frozenset(
    {"model", "models", "messages", "input", "prompt", "system", "n", "stream", "stream_options", "response_format"}
    | {"tools", "tool_choice", "functions", "function_call", "max_tokens", "max_completion_tokens"}
)
"""Fields of a request that Coterie decides: what is sent, to which model, how much of it, and what it may cost."""


def _check_extra_body(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if reserved := sorted(RESERVED_FIELDS & value.keys()):
        raise ValueError(f"{', '.join(reserved)} cannot be set here")
    return value


class Sampler(Section):
    """Values that are not set are left to the provider."""

    temperature: PageSetting[Annotated[float, Field(ge=0, le=5)] | None] = None
    """Higher is more varied, lower more predictable."""
    top_p: PageSetting[Annotated[float, Field(gt=0, le=1)] | None] = None
    """Only the most likely words that together have this probability."""
    top_k: PageSetting[Annotated[int, Field(ge=0, le=1_000)] | None] = None
    """Only this many of the most likely words; 0 is no limit."""
    min_p: PageSetting[Annotated[float, Field(ge=0, le=1)] | None] = None
    """Only words at least this likely, compared with the most likely one."""
    repetition_penalty: PageSetting[Annotated[float, Field(ge=0.5, le=3)] | None] = None
    """Makes words that occurred before less likely; 1 is none."""
    presence_penalty: PageSetting[Annotated[float, Field(ge=-2, le=2)] | None] = None
    """Makes words that occurred at all less likely."""
    frequency_penalty: PageSetting[Annotated[float, Field(ge=-2, le=2)] | None] = None
    """Makes words less likely the more often they occurred."""
    dry_multiplier: PageSetting[Annotated[float, Field(ge=0, le=5)] | None] = None
    """How strongly repeated phrases are avoided (DRY); 0 is off."""
    dry_base: PageSetting[Annotated[float, Field(ge=1, le=4)] | None] = None
    """How much longer repeated phrases are avoided more."""
    dry_allowed_length: PageSetting[Annotated[int, Field(ge=1, le=100)] | None] = None
    """Phrases up to this length may repeat."""
    seed: PageSetting[Annotated[int, Field(ge=0, le=2**31 - 1)] | None] = None
    """The same seed gives the same answer, where the provider supports it."""
    stop: PageSetting[
        Annotated[tuple[Annotated[str, Field(min_length=1, max_length=200)], ...], Field(max_length=_MAX_STOPS)]
    ] = ()
    """Texts at which an answer ends."""
    max_tokens: PageSetting[Annotated[int, Field(gt=0, le=1_000_000)] | None] = None
    """The maximum length of an answer."""
    extra_body: PageSetting[Annotated[dict[str, JsonValue], AfterValidator(_check_extra_body)]] = Field(
        default_factory=dict
    )
    """Further fields of the request, sent as they are. What Coterie itself decides, such as `model` and `messages`, is
    refused."""

    def over(self, other: Sampler) -> Sampler:
        """This preset, with what it does not set from another."""
        return Sampler.model_validate({**other.chosen(), **self.chosen()})

    def chosen(self) -> dict[str, Any]:
        """The values that are set."""
        return {name: value for name, value in self.model_dump().items() if value not in (None, (), {})}


_PROMPT_VALUES = (*("temperature", "top_p", "seed", "stop", "max_tokens", "presence_penalty", "frequency_penalty"),)
_WIRE_NAMES = {"repetition_penalty": "repeat_penalty"}
"""llama.cpp's own spelling; other servers use ours."""


def apply_sampler(prompt: Prompt, sampler: Sampler, preset: str) -> Prompt:
    """The prompt with the sampler's values. What the prompt itself sets stays as it is."""
    chosen = sampler.chosen()
    if not chosen:
        return prompt
    extra: dict[str, JsonValue] = {}
    update: dict[str, Any] = {}
    for name, value in chosen.items():
        if name == "extra_body":
            continue
        if name in _PROMPT_VALUES:
            if getattr(prompt, name) in (None, ()):
                update[name] = value
        else:
            wire = _WIRE_NAMES.get(name, name) if preset in ("llamacpp", "embedded", "lmstudio") else name
            extra[wire] = value
    update["extra_body"] = {**extra, **sampler.extra_body, **prompt.extra_body}
    return prompt.model_copy(update=update)


BUILT_IN: dict[str, Sampler] = {
    "creative": Sampler(temperature=1.1, top_p=0.95, min_p=0.05),
    "balanced": Sampler(temperature=0.8, top_p=0.95),
    "precise": Sampler(temperature=0.2, top_p=0.9),
}

_EVERYWHERE = frozenset({"temperature", "top_p", "stop", "max_tokens", "extra_body"})
_OPENAI = _EVERYWHERE | {"presence_penalty", "frequency_penalty", "seed"}
_DRY = frozenset({"dry_multiplier", "dry_base", "dry_allowed_length"})
_OPEN_MODELS = _OPENAI | {"top_k", "min_p", "repetition_penalty"}
_SUPPORTED: dict[str, frozenset[str]] = {
    "anthropic": _EVERYWHERE | {"top_k"},
    "openai": _OPENAI,
    "google": _OPENAI,
    "mistral": _EVERYWHERE | {"presence_penalty", "frequency_penalty"},
    "groq": _OPENAI,
    "deepseek": _EVERYWHERE | {"presence_penalty", "frequency_penalty"},
    "ollama": _OPENAI,
    "lmstudio": _OPEN_MODELS,
    "openrouter": _OPEN_MODELS,
    "together": _OPEN_MODELS,
    "featherless": _OPEN_MODELS,
    "vllm": _OPEN_MODELS,
    "llamacpp": _OPEN_MODELS | _DRY,
    "embedded": _OPEN_MODELS | _DRY,
    "openai-compatible": _OPENAI,
}


def supported_values(preset: str) -> frozenset[str]:
    """The values of a sampler that a known provider understands."""
    return _SUPPORTED.get(preset, _OPENAI)


def resolve_sampler(presets: Mapping[str, Sampler], *choices: str | Sampler | None) -> Sampler:
    """The values of several choices, of which later ones go before earlier ones.

    Each is the name of a preset, or single values. A preset that does not exist any more is ignored.
    """
    known = {**BUILT_IN, **presets}
    found = Sampler()
    for choice in choices:
        sampler = choice if isinstance(choice, Sampler) else known.get(choice or "")
        if sampler is not None:
            found = sampler.over(found)
    return found


_FROM_SILLYTAVERN = {
    # text completion, chat completion and other spellings → ours
    "temp": "temperature",
    "temperature": "temperature",
    "temp_openai": "temperature",
    "top_p": "top_p",
    "top_p_openai": "top_p",
    "top_k": "top_k",
    "top_k_openai": "top_k",
    "min_p": "min_p",
    "min_p_openai": "min_p",
    "rep_pen": "repetition_penalty",
    "repetition_penalty": "repetition_penalty",
    "repetition_penalty_openai": "repetition_penalty",
    "presence_pen": "presence_penalty",
    "presence_penalty": "presence_penalty",
    "pres_pen_openai": "presence_penalty",
    "freq_pen": "frequency_penalty",
    "frequency_penalty": "frequency_penalty",
    "freq_pen_openai": "frequency_penalty",
    "dry_multiplier": "dry_multiplier",
    "dry_base": "dry_base",
    "dry_allowed_length": "dry_allowed_length",
    "seed": "seed",
    "genamt": "max_tokens",
    "max_length": "max_tokens",
    "openai_max_tokens": "max_tokens",
}
_NEUTRAL: dict[str, tuple[object, ...]] = {
    # values by which SillyTavern says that a sampler is off
    "top_k": (0, -1),
    "top_p": (0,),
    "seed": (-1,),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "dry_multiplier": (0,),
}


def import_sillytavern(data: bytes) -> tuple[Sampler, list[str]]:
    """A SillyTavern sampler preset, and the names of those of its values that are not used here.

    Values that are out of range are refused: `ConfigError` says which.
    """
    try:
        preset = parse_json(data)
    except ValueError as error:
        raise ConfigError(
            "This is not a sampler preset: it is not JSON.", "Export it from SillyTavern again."
        ) from error
    if not isinstance(preset, dict):
        raise ConfigError("This is not a sampler preset of SillyTavern.", "Export it from SillyTavern again.")
    values: dict[str, Any] = {}
    for theirs, ours in _FROM_SILLYTAVERN.items():
        value = preset.get(theirs)
        if isinstance(value, int | float) and not isinstance(value, bool) and value not in _NEUTRAL.get(ours, ()):
            values.setdefault(ours, value)
    stops = preset.get("stop") or preset.get("custom_stopping_strings") or preset.get("stopping_strings")
    if isinstance(stops, str):  # SillyTavern stores the list as JSON text
        try:
            stops = parse_json(stops) if stops.strip() else []
        except ValueError:
            stops = []
    if isinstance(stops, list):
        values["stop"] = tuple(text for text in stops if isinstance(text, str) and text)[:_MAX_STOPS]
    if not values:
        raise ConfigError("This file has no sampler values.", "Choose a sampler preset of SillyTavern.")
    for whole in ("top_k", "seed", "max_tokens", "dry_allowed_length"):
        if isinstance(values.get(whole), float) and values[whole].is_integer():
            values[whole] = int(values[whole])
    try:
        sampler = Sampler.model_validate(values)
    except ValueError as error:
        names = sorted({str(detail["loc"][0]) for detail in getattr(error, "errors", list)()})
        raise ConfigError(
            f"The preset has values out of range: {', '.join(names)}.", "Correct them in the file and import it again."
        ) from error
    used = {theirs for theirs in _FROM_SILLYTAVERN if theirs in preset}
    known = used | {"stop", "custom_stopping_strings", "stopping_strings"}
    return sampler, sorted(str(name) for name in preset if name not in known)
