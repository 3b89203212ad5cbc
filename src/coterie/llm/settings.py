"""Roles, the `[models]` settings, and `Catalogue`, which resolves them to the models of a role and their providers.

The short form is `narrative_model`, `classifier_model`, `classifier_fallbacks`, `base_url` and `api_key` for one
provider; `default`, `[models.roles]`, `[models.tasks]` and `[models.providers.NAME]` configure everything else. A model
is written `provider/model`; the model's name may contain slashes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from coterie.base.config import PageSetting, ProtectedSetting, Section
from coterie.base.errors import ConfigError, ConfirmationNeeded
from coterie.base.values import url_origin
from coterie.llm.embedded.gguf import find_weights, trained_context
from coterie.llm.errors import RoleUnset
from coterie.llm.messages import Priority
from coterie.llm.model_info import ModelInfoStore, bundled_context
from coterie.llm.samplers import BUILT_IN, Sampler, resolve_sampler, supported_values


class Role(StrEnum):
    """A use of models. Each role has its own chain of models in the settings; a task can override it."""

    NARRATIVE = "narrative"
    CLASSIFIER = "classifier"
    CHANNEL = "channel"
    BRANCH = "branch"
    WORKER = "worker"
    COMPACTOR = "compactor"
    CORTEX = "cortex"
    CROWD = "crowd"
    DRAFT = "draft"
    VISION = "vision"

    @property
    def priority(self) -> Priority:
        """The default priority of calls with this role."""
        return _PRIORITIES.get(self, Priority.BACKGROUND)

    @property
    def fallback_role(self) -> Role | None:
        """The role whose chain is used if this role has none."""
        return _FALLBACK_ROLES.get(self)


_PRIORITIES = {
    Role.NARRATIVE: Priority.PERSON,
    Role.CHANNEL: Priority.PERSON,
    Role.DRAFT: Priority.PERSON,
    Role.BRANCH: Priority.CHARACTER,
    Role.CROWD: Priority.CHARACTER,
}

_FALLBACK_ROLES = {
    Role.CHANNEL: Role.NARRATIVE,
    Role.BRANCH: Role.NARRATIVE,
    Role.WORKER: Role.NARRATIVE,
    Role.CROWD: Role.NARRATIVE,
    Role.DRAFT: Role.NARRATIVE,
    Role.COMPACTOR: Role.CLASSIFIER,
    Role.CORTEX: Role.CLASSIFIER,
}


WireProtocol = Literal["openai", "anthropic", "embedded"]


@dataclass(frozen=True)
class Preset:
    """Defaults for a known provider, which `[models.providers.NAME]` can override."""

    protocol: WireProtocol
    base_url: str
    needs_key: bool
    native_schema: bool
    """Whether the provider constrains answers to a JSON schema."""
    free: bool = False
    """Runs on this machine: costs nothing and counts toward no cap."""
    flat_rate: bool = False
    """Paid by subscription: calls cost nothing extra, but count toward the caps on tokens and calls."""
    defaults: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Role → models that are used if this is the default provider."""
    label: str = ""
    """The provider's name as people know it."""
    keys_url: str = ""
    """The page on which the provider gives out keys."""


def _local(base_url: str, label: str) -> Preset:
    return Preset("openai", base_url, needs_key=False, native_schema=True, free=True, label=label)


PRESETS: dict[str, Preset] = {
    "featherless": Preset(
        "openai",
        "https://api.featherless.ai/v1",
        needs_key=True,
        native_schema=False,
        flat_rate=True,
        label="Featherless",
        keys_url="https://featherless.ai/account/api-keys",
        defaults={
            "narrative": ("dphn/Dolphin-Mistral-24B-Venice-Edition",),
            "classifier": (
                "NousResearch/Hermes-3-Llama-3.1-8B",
                "cognitivecomputations/dolphin-2.9.4-llama3-8b",
                "mlabonne/Meta-Llama-3.1-8B-Instruct-abliterated",
            ),
        },
    ),
    "openai": Preset(
        "openai",
        "https://api.openai.com/v1",
        needs_key=True,
        native_schema=True,
        label="OpenAI",
        keys_url="https://platform.openai.com/api-keys",
    ),
    "anthropic": Preset(
        "anthropic",
        "https://api.anthropic.com",
        needs_key=True,
        native_schema=True,
        label="Anthropic",
        keys_url="https://console.anthropic.com/settings/keys",
    ),
    "openrouter": Preset(
        "openai",
        "https://openrouter.ai/api/v1",
        needs_key=True,
        native_schema=True,
        label="OpenRouter",
        keys_url="https://openrouter.ai/keys",
    ),
    "mistral": Preset(
        "openai",
        "https://api.mistral.ai/v1",
        needs_key=True,
        native_schema=True,
        label="Mistral",
        keys_url="https://console.mistral.ai/api-keys",
    ),
    "groq": Preset(
        "openai",
        "https://api.groq.com/openai/v1",
        needs_key=True,
        native_schema=False,
        label="Groq",
        keys_url="https://console.groq.com/keys",
    ),
    "together": Preset(
        "openai",
        "https://api.together.xyz/v1",
        needs_key=True,
        native_schema=False,
        label="Together",
        keys_url="https://api.together.ai/settings/api-keys",
    ),
    "deepseek": Preset(
        "openai",
        "https://api.deepseek.com/v1",
        needs_key=True,
        native_schema=False,
        label="DeepSeek",
        keys_url="https://platform.deepseek.com/api_keys",
    ),
    "google": Preset(
        "openai",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        needs_key=True,
        native_schema=True,
        label="Google Gemini",
        keys_url="https://aistudio.google.com/apikey",
    ),
    "ollama": _local("http://127.0.0.1:11434/v1", "Ollama"),
    "lmstudio": _local("http://127.0.0.1:1234/v1", "LM Studio"),
    "llamacpp": _local("http://127.0.0.1:8080/v1", "llama.cpp"),
    "vllm": _local("http://127.0.0.1:8001/v1", "vLLM"),
    "openai-compatible": Preset("openai", "", needs_key=False, native_schema=False, label="Another address"),
    "embedded": Preset("embedded", "", needs_key=False, native_schema=True, free=True, label="This computer"),
}


MAX_CHAIN_LENGTH = 4
"""A model and at most three fallbacks."""

Chain = Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_CHAIN_LENGTH)]
Seconds = Annotated[float, Field(gt=0)]


class ProviderSettings(Section):
    preset: PageSetting[str] = "openai-compatible"
    """The known provider whose values are used for settings that are not given here."""
    base_url: PageSetting[str | None] = None
    """The base address of the provider's API, usually ending in /v1."""
    api_key: PageSetting[SecretStr | None] = None
    """The key, best as `env:NAME` or `secret:NAME`."""
    native_schema: PageSetting[bool | None] = None
    """Whether the provider constrains answers to a JSON schema."""
    free: PageSetting[bool | None] = None
    """True if calls cost nothing; they then count toward no cap."""
    flat_rate: PageSetting[bool | None] = None
    """True if calls are paid by subscription: they count toward the caps on tokens and calls, not on money."""
    first_token_s: PageSetting[Seconds | None] = None
    """How long the first token may take with this provider."""

    @model_validator(mode="after")
    def _check_preset(self) -> ProviderSettings:
        if self.preset not in PRESETS:
            raise ValueError(f"a known preset ({', '.join(sorted(PRESETS))})")
        if self.preset == "openai-compatible" and not self.base_url:
            raise ValueError('given a base_url, because its preset is "openai-compatible"')
        return self


class ModelDetails(Section):
    context: PageSetting[Annotated[int, Field(gt=0)] | None] = None
    """The context size in tokens: prompt and answer together."""
    max_story_words: PageSetting[Annotated[int, Field(gt=0)] | None] = None
    """A story reply ends with the sentence that exceeds this many words. By default only the bundled model has a
    limit."""
    prompt_form: PageSetting[Literal["chat", "script"] | None] = None
    """How a story or a crowd asks the model: by its chat template with instructions, or as a script that it continues.
    A script suits very small models; only models in this installation support it. By default only the bundled one
    gets it."""
    analysis: PageSetting[bool | None] = None
    """Whether the model can analyse a story: feelings, facts, significance, summaries. Without it, rules estimate what
    they can. By default only the bundled model cannot."""
    usd_per_million_in: PageSetting[Annotated[float, Field(ge=0)] | None] = None
    """Price of a million input tokens, in US dollars."""
    usd_per_million_out: PageSetting[Annotated[float, Field(ge=0)] | None] = None
    """Price of a million output tokens, in US dollars."""
    vision: PageSetting[bool | None] = None
    """Whether the model can see pictures."""
    tools: PageSetting[bool | None] = None
    """Whether the model can call tools."""
    sampler: PageSetting[str | None] = None
    """The sampler preset of this model: `creative`, `balanced`, `precise`, or one of `models.samplers`."""


class Caps(Section):
    usd_per_day: PageSetting[Annotated[float, Field(ge=0)] | None] = 5.0
    """Calls to hosted models stop for the day once this much is spent. Local models are not affected."""
    tokens_per_day: PageSetting[Annotated[int, Field(ge=0)] | None] = None
    """Calls to hosted models stop for the day after this many tokens, input and output together."""
    calls_per_day: PageSetting[Annotated[int, Field(ge=0)] | None] = None
    """Calls to hosted models stop for the day after this many calls."""
    unknown_usd_per_million: PageSetting[Annotated[float, Field(ge=0)]] = 10.0
    """The price of a million tokens that is assumed for the cap if the model's price is not known."""


class EmbeddedSettings(Section):
    model: ProtectedSetting[str | None] = None
    """A GGUF file to use in place of the bundled SmolLM2."""
    context: PageSetting[Annotated[int, Field(ge=512)]] = 4096
    """Context size in tokens of each slot. Memory use grows with it."""
    slots: PageSetting[Annotated[int, Field(ge=1, le=16)]] = 2
    """Calls answered at the same time. With more than one slot, the last is reserved for people."""
    candidates: PageSetting[Annotated[int, Field(ge=1, le=8)]] = 4
    """How many lines are generated at once where a story asks with a script; the best one is used. With 1, the line is
    used as it is."""
    threads: PageSetting[Annotated[int, Field(ge=1)] | None] = None
    """CPU threads; by default one fewer than there are cores."""
    memory_mb: PageSetting[Annotated[int, Field(ge=256)]] = 1536
    """Memory limit of the process, which ends with an error if it needs more."""
    idle_unload_s: PageSetting[Seconds] = 300
    """The model is unloaded after this long without calls. The next call loads it again."""
    start_s: PageSetting[Seconds] = 60
    """How long loading the model may take."""
    stall_s: PageSetting[Seconds] = 5
    """If the process sends nothing for this long, its health is checked; it is replaced if it does not respond."""


class ModelsSettings(Section):
    """The models for each role. Without any, the embedded model is used for all roles."""

    default: PageSetting[Chain | None] = None
    """The model, or a model and its fallbacks, of every role that has none of its own below."""
    provider: PageSetting[str] = "featherless"
    """The provider that the short settings below configure."""
    base_url: PageSetting[str | None] = None
    """The address of that provider, if it is not the usual one."""
    api_key: PageSetting[SecretStr | None] = None
    """Its key, best as `env:NAME` or `secret:NAME`. Without one, the embedded model answers."""
    narrative_model: PageSetting[str | None] = None
    """The model that writes the characters' replies."""
    classifier_model: PageSetting[str | None] = None
    """The model for structured output; it should be fast and reliable with JSON."""
    classifier_fallbacks: PageSetting[Annotated[tuple[str, ...], Field(max_length=MAX_CHAIN_LENGTH - 1)] | None] = None
    """Asked in this order when the classifier model fails."""
    roles: PageSetting[dict[Role, Chain]] = Field(default_factory=dict)
    """Role → a model, or a model and its fallbacks."""
    tasks: PageSetting[dict[str, Chain]] = Field(default_factory=dict)
    """Task type → a model, or a model and its fallbacks; for workers and branches with a known task type."""
    providers: PageSetting[dict[str, ProviderSettings]] = Field(default_factory=dict)
    """Further providers by name."""
    details: PageSetting[dict[str, ModelDetails]] = Field(default_factory=dict)
    """`provider/model` → its context size, prices and limits."""
    samplers: PageSetting[dict[str, Sampler]] = Field(default_factory=dict)
    """Sampler presets by name, in addition to `creative`, `balanced` and `precise`."""
    caps: Caps = Caps()
    """Daily limits for hosted models."""
    embedded: EmbeddedSettings = EmbeddedSettings()
    """The bundled model."""
    first_token_s: PageSetting[Seconds] = 60
    """How long a hosted model may take until the first token."""
    idle_s: PageSetting[Seconds] = 30
    """How long a hosted model may pause between two tokens."""
    deadline_s: PageSetting[Seconds] = 300
    """How long a call may take, including retries and fallbacks."""
    classifier_timeout_s: PageSetting[Seconds] = 10
    """How long structured output may take, including retries, before the default is used."""
    rate_limit_cooldown_s: PageSetting[Seconds] = 60
    """The cooldown of a rate-limited model if the provider does not name one."""

    record: ProtectedSetting[str | None] = None
    """A file to which all requests and answers are appended, with secrets masked."""
    replay: ProtectedSetting[str | None] = None
    """A recording that answers instead of the models; no real requests are sent."""

    @field_validator("default", mode="before")
    @classmethod
    def _wrap_default(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("roles", "tasks", mode="before")
    @classmethod
    def _wrap_single_model(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {key: (chain,) if isinstance(chain, str) else chain for key, chain in value.items()}

    @model_validator(mode="after")
    def _check_providers(self) -> ModelsSettings:
        known = {*PRESETS, *self.providers} - {"openai-compatible"}
        chains = [self.default or (), *self.roles.values(), *self.tasks.values()]
        for model in (model for chain in chains for model in chain):
            if (provider := model.partition("/")[0]) not in known:
                raise ValueError(
                    f"made of known providers: {provider!r} in {model!r} is none ({', '.join(sorted(known))})"
                )
        if self.provider not in known:
            raise ValueError(f"about a known provider: {self.provider!r} is none ({', '.join(sorted(known))})")
        return self


EMBEDDED_MODEL = "smollm2"
BUNDLED_LICENCE = "SmolLM2-135M-Instruct, Apache-2.0"
"""The bundled model and its licence, as they are shown."""


@dataclass(frozen=True)
class Target:
    """A model of a provider, written `provider/model`."""

    provider: str
    model: str

    @classmethod
    def parse(cls, text: str) -> Target:
        provider, _, model = text.partition("/")
        return cls(provider, model)

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


EMBEDDED = Target("embedded", EMBEDDED_MODEL)
SAFE_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""Names of downloaded models, which are names of files."""
ContextOrigin = Literal["settings", "file", "provider", "bundled", "unknown"]
_PROVIDER_DETAILS = ("context", "usd_per_million_in", "usd_per_million_out", "vision", "tools")
_DOWNLOADED_CONTEXT = 8_192
"""The context that a downloaded model is loaded with, unless it was trained for less: memory use grows with it."""
_BUNDLED_MAX_STORY_WORDS = 80
"""Found by reading: after about a hundred tokens SmolLM2 loses track of who speaks and where."""


@dataclass(frozen=True)
class ProviderSpec:
    """A provider's resolved settings: preset, overrides and defaults combined."""

    name: str
    protocol: WireProtocol
    base_url: str
    api_key: SecretStr | None
    native_schema: bool
    free: bool
    flat_rate: bool
    first_token_s: float
    idle_s: float
    preset: str = "openai-compatible"


class Catalogue:
    """Resolves the settings: the chain of models for a role, and the specification of each provider.

    A role without a chain uses that of its fallback role, then the default, then the short settings, then the embedded
    model. Nothing is cached, because settings change while the server runs.
    """

    def __init__(
        self, settings: ModelsSettings, info: ModelInfoStore | None = None, folder: Path | None = None
    ) -> None:
        """`info` is what providers report about their models; `folder` has the downloaded models."""
        self.settings = settings
        self.info = info or ModelInfoStore()
        self.folder = folder

    def chain(self, role: Role, task: str | None = None) -> tuple[Target, ...]:
        """The model of a role and its fallbacks, in the order in which they are asked."""
        if task and (chain := self.settings.tasks.get(task)):
            return tuple(map(Target.parse, chain))
        roles = [role, *([role.fallback_role] if role.fallback_role else [])]
        own = (self.settings.roles.get(one) for one in roles)
        short = (self._short_form(one) for one in roles)
        chain = next((found for found in (*own, self.settings.default, *short) if found), None)
        return tuple(map(Target.parse, chain)) if chain else (EMBEDDED,)

    def spec(self, name: str) -> ProviderSpec:
        configured = self.settings.providers.get(name)
        preset = PRESETS.get(configured.preset if configured else name)
        if preset is None:
            close = difflib.get_close_matches(name, [*PRESETS, *self.settings.providers], n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise RoleUnset(f"There is no provider called {name}.{hint}", f"Add it with: coterie models add {name}")
        configured = configured or ProviderSettings.model_construct(preset=name)
        is_default = name == self.settings.provider
        base_url = configured.base_url or preset.base_url
        api_key = configured.api_key
        if is_default:
            base_url = self.settings.base_url or base_url
            api_key = self.settings.api_key or api_key
        # The embedded provider detects hangs itself; waiting in its queue or reading a long prompt is not one.
        embedded = preset.protocol == "embedded"
        first_token_s = self.settings.deadline_s if embedded else self.settings.first_token_s
        return ProviderSpec(
            name=name,
            protocol=preset.protocol,
            base_url=base_url,
            api_key=api_key if api_key is not None and api_key.get_secret_value() else None,
            native_schema=preset.native_schema if configured.native_schema is None else configured.native_schema,
            free=preset.free if configured.free is None else configured.free,
            flat_rate=preset.flat_rate if configured.flat_rate is None else configured.flat_rate,
            first_token_s=configured.first_token_s or first_token_s,
            idle_s=self.settings.deadline_s if embedded else self.settings.idle_s,
            preset=configured.preset,
        )

    def details(self, target: Target) -> ModelDetails:
        """Context, prices and abilities: by the settings, else by the provider's own answer, else by bundled data."""
        details = self.settings.details.get(str(target)) or ModelDetails()
        known: dict[str, Any] = {}
        if (info := self.info.get(str(target))) is not None:
            known = info.model_dump(include=set(_PROVIDER_DETAILS))
        if target.provider == "embedded":
            bundled = self._is_bundled(target)
            known |= {"context": self.embedded_context(target), "prompt_form": "script" if bundled else "chat"}
            known["analysis"] = not bundled
            if bundled:
                known["max_story_words"] = _BUNDLED_MAX_STORY_WORDS
        elif not details.context and not known.get("context"):
            known["context"] = bundled_context(self.preset_name(target.provider), target.model)
        missing = {name: value for name, value in known.items() if getattr(details, name) is None}
        return details.model_copy(update=missing)

    def sampler_presets(self) -> dict[str, Sampler]:
        """The sampler presets by name: built-in ones, and those of the settings."""
        return {**BUILT_IN, **self.settings.samplers}

    def supported_values(self, target: Target) -> frozenset[str]:
        """The values of a sampler that the provider of a model understands."""
        return supported_values(self.preset_name(target.provider))

    def sampler(self, target: Target, chosen: Sampler | None = None) -> Sampler:
        """How a model picks its words: by what was chosen for the call, else by the preset of the model.

        What the provider does not support is left out.
        """
        details = self.settings.details.get(str(target))
        model = details.sampler if details else None
        found = resolve_sampler(self.settings.samplers, model, chosen)
        supported = self.supported_values(target)
        return Sampler.model_validate({name: value for name, value in found.chosen().items() if name in supported})

    def context_origin(self, target: Target) -> ContextOrigin:
        """Where the context window of a model is known from."""
        if (details := self.settings.details.get(str(target))) and details.context:
            return "settings"
        if target.provider == "embedded":
            return "file"
        if (info := self.info.get(str(target))) is not None and info.context:
            return "provider"
        return "bundled" if self.details(target).context else "unknown"

    def preset_name(self, provider: str) -> str:
        """The known provider whose values a provider uses."""
        configured = self.settings.providers.get(provider)
        return configured.preset if configured else provider

    def embedded_context(self, target: Target) -> int:
        """The context of a model in this process: what it is loaded with."""
        if self.is_downloaded(target):
            path = self.weights(target)
            if path.is_file():
                return min(trained_context(path), _DOWNLOADED_CONTEXT)
        return self.settings.embedded.context

    def is_downloaded(self, target: Target) -> bool:
        """Whether the model is a file in the folder of downloaded models."""
        return target.provider == "embedded" and target != EMBEDDED and self.folder is not None

    def weights(self, target: Target) -> Path:
        """The file of an embedded model. `ConfigError` if it is not there."""
        if self.is_downloaded(target) and self.folder is not None:
            if not SAFE_MODEL_NAME.fullmatch(target.model):
                raise ConfigError(f"{target} is not the name of a downloaded model.", "See: coterie models list")
            return find_weights(str(self.folder / f"{target.model}.gguf"))
        return find_weights(self.settings.embedded.model)

    def is_set(self, role: Role) -> bool:
        """Whether a model was chosen for this role itself; some roles are not used without one."""
        return bool(self.settings.roles.get(role))

    def asks_with_script(self, role: Role) -> bool:
        """Whether a model of a role, or one of its fallbacks, is asked with a script."""
        return any(self.details(target).prompt_form == "script" for target in self.chain(role))

    def uses_bundled(self, role: Role) -> bool:
        """Whether the first model of a role is the bundled one, which is for trying things out."""
        return self._is_bundled(self.chain(role)[0])

    def _is_bundled(self, target: Target) -> bool:
        return target == EMBEDDED and self.settings.embedded.model is None

    def supports_analysis(self, role: Role = Role.CLASSIFIER) -> bool:
        """Whether the model of a role can analyse a story."""
        return self.details(self.chain(role)[0]).analysis is not False

    def _short_form(self, role: Role) -> tuple[str, ...]:
        """The chain from `narrative_model`, `classifier_model` and the preset; empty if a required key is missing."""
        spec = self.spec(self.settings.provider)
        preset = PRESETS[self.preset_name(spec.name)]
        if preset.needs_key and spec.api_key is None:
            return ()
        models = preset.defaults.get(role.value, ())
        if role is Role.NARRATIVE and self.settings.narrative_model:
            models = (self.settings.narrative_model,)
        elif role is Role.CLASSIFIER:
            first = self.settings.classifier_model
            fallbacks = self.settings.classifier_fallbacks
            default_fallbacks = () if first else models[1:]
            models = ((first,) if first else models[:1]) + (default_fallbacks if fallbacks is None else fallbacks)
            if not models and self.settings.narrative_model:
                models = (self.settings.narrative_model,)
        return tuple(f"{spec.name}/{model}" for model in models)


def key_destinations(settings: ModelsSettings) -> dict[tuple[str, str], str]:
    """Every key with every address (scheme, host and port) that it is sent to → the name of the provider."""
    catalogue = Catalogue(settings)
    specs = [catalogue.spec(name) for name in {*PRESETS, *settings.providers}]
    return {
        (spec.api_key.get_secret_value(), url_origin(spec.base_url)): spec.name
        for spec in specs
        if spec.api_key is not None and spec.protocol != "embedded"
    }


def check_key_destinations(before: ModelsSettings, after: ModelsSettings, entered: Collection[str] = ()) -> None:
    """A key is bound to the address it was given for: raises if a change would send one to another address. `entered`
    are keys that were entered together with their address, in this change.
    """
    known = key_destinations(before)
    for (key, address), provider in key_destinations(after).items():
        if (key, address) not in known and key not in entered:
            given_for = next((old for given, old in known if given == key), "another address")
            raise ConfirmationNeeded(
                f"The key was given for {given_for}; it is not sent to {address} ({provider}).",
                f"Give the key of {provider} together with its address, with: coterie models add {provider}"
                f" --base-url {address} --key secret:NAME",
            )
