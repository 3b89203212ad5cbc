"""Roles, the `[models]` settings, and `Catalogue`, which resolves them to the models of a role and their providers.

The short form is `narrative_model`, `classifier_model`, `classifier_fallbacks`, `base_url` and `api_key` for one
provider; `[models.roles]`, `[models.tasks]` and `[models.providers.NAME]` configure everything else. A model is written
`provider/model`; the model's name may contain slashes.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from coterie.base.config import Section
from coterie.llm.errors import RoleUnset
from coterie.llm.messages import Priority


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


PRESETS: dict[str, Preset] = {
    "featherless": Preset(
        "openai",
        "https://api.featherless.ai/v1",
        needs_key=True,
        native_schema=False,
        flat_rate=True,
        defaults={
            "narrative": ("dphn/Dolphin-Mistral-24B-Venice-Edition",),
            "classifier": (
                "NousResearch/Hermes-3-Llama-3.1-8B",
                "cognitivecomputations/dolphin-2.9.4-llama3-8b",
                "mlabonne/Meta-Llama-3.1-8B-Instruct-abliterated",
            ),
        },
    ),
    "openai": Preset("openai", "https://api.openai.com/v1", needs_key=True, native_schema=True),
    "anthropic": Preset("anthropic", "https://api.anthropic.com", needs_key=True, native_schema=True),
    "openrouter": Preset("openai", "https://openrouter.ai/api/v1", needs_key=True, native_schema=True),
    "ollama": Preset("openai", "http://127.0.0.1:11434/v1", needs_key=False, native_schema=True, free=True),
    "lmstudio": Preset("openai", "http://127.0.0.1:1234/v1", needs_key=False, native_schema=True, free=True),
    "llamacpp": Preset("openai", "http://127.0.0.1:8080/v1", needs_key=False, native_schema=True, free=True),
    "vllm": Preset("openai", "http://127.0.0.1:8001/v1", needs_key=False, native_schema=True, free=True),
    "openai-compatible": Preset("openai", "", needs_key=False, native_schema=False),
    "embedded": Preset("embedded", "", needs_key=False, native_schema=True, free=True),
}


MAX_CHAIN_LENGTH = 4
"""A model and at most three fallbacks."""

Chain = Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_CHAIN_LENGTH)]
Seconds = Annotated[float, Field(gt=0)]


class ProviderSettings(Section):
    preset: str = "openai-compatible"
    """The known provider whose values are used for settings that are not given here."""
    base_url: str | None = None
    """The base address of the provider's API, usually ending in /v1."""
    api_key: SecretStr | None = None
    """The key, best as `env:NAME` or `secret:NAME`."""
    native_schema: bool | None = None
    """Whether the provider constrains answers to a JSON schema."""
    free: bool | None = None
    """True if calls cost nothing; they then count toward no cap."""
    flat_rate: bool | None = None
    """True if calls are paid by subscription: they count toward the caps on tokens and calls, not on money."""
    first_token_s: Seconds | None = None
    """How long the first token may take with this provider."""

    @model_validator(mode="after")
    def _check_preset(self) -> ProviderSettings:
        if self.preset not in PRESETS:
            raise ValueError(f"a known preset ({', '.join(sorted(PRESETS))})")
        if self.preset == "openai-compatible" and not self.base_url:
            raise ValueError('given a base_url, because its preset is "openai-compatible"')
        return self


class ModelDetails(Section):
    context: Annotated[int, Field(gt=0)] | None = None
    """The context size in tokens: prompt and answer together."""
    max_story_words: Annotated[int, Field(gt=0)] | None = None
    """A story reply ends with the sentence that exceeds this many words. By default only the bundled model has a
    limit."""
    usd_per_million_in: Annotated[float, Field(ge=0)] | None = None
    """Price of a million input tokens, in US dollars."""
    usd_per_million_out: Annotated[float, Field(ge=0)] | None = None
    """Price of a million output tokens, in US dollars."""


class Caps(Section):
    usd_per_day: Annotated[float, Field(ge=0)] | None = 5.0
    """Calls to hosted models stop for the day once this much is spent. Local models are not affected."""
    tokens_per_day: Annotated[int, Field(ge=0)] | None = None
    """Calls to hosted models stop for the day after this many tokens, input and output together."""
    calls_per_day: Annotated[int, Field(ge=0)] | None = None
    """Calls to hosted models stop for the day after this many calls."""
    unknown_usd_per_million: Annotated[float, Field(ge=0)] = 10.0
    """The price of a million tokens that is assumed for the cap if the model's price is not known."""


class EmbeddedSettings(Section):
    model: str | None = None
    """A GGUF file to use in place of the bundled SmolLM2."""
    context: Annotated[int, Field(ge=512)] = 4096
    """Context size in tokens of each slot. Memory use grows with it."""
    slots: Annotated[int, Field(ge=1, le=16)] = 2
    """Calls answered at the same time. With more than one slot, the last is reserved for people."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """CPU threads; by default one fewer than there are cores."""
    memory_mb: Annotated[int, Field(ge=256)] = 1536
    """Memory limit of the process, which ends with an error if it needs more."""
    idle_unload_s: Seconds = 300
    """The model is unloaded after this long without calls. The next call loads it again."""
    start_s: Seconds = 60
    """How long loading the model may take."""
    stall_s: Seconds = 5
    """If the process sends nothing for this long, its health is checked; it is replaced if it does not respond."""


class ModelsSettings(Section):
    """The models for each role. Without a key, the embedded model is used for all roles."""

    provider: str = "featherless"
    """The provider that the short settings below configure."""
    base_url: str | None = None
    """The address of that provider, if it is not the usual one."""
    api_key: SecretStr | None = None
    """Its key, best as `env:NAME` or `secret:NAME`. Without one, the embedded model answers."""
    narrative_model: str | None = None
    """The model that writes the characters' replies."""
    classifier_model: str | None = None
    """The model for structured output; it should be fast and reliable with JSON."""
    classifier_fallbacks: Annotated[tuple[str, ...], Field(max_length=MAX_CHAIN_LENGTH - 1)] | None = None
    """Asked in this order when the classifier model fails."""
    roles: dict[Role, Chain] = Field(default_factory=dict)
    """Role → a model, or a model and its fallbacks."""
    tasks: dict[str, Chain] = Field(default_factory=dict)
    """Task type → a model, or a model and its fallbacks; for workers and branches with a known task type."""
    providers: dict[str, ProviderSettings] = Field(default_factory=dict)
    """Further providers by name."""
    details: dict[str, ModelDetails] = Field(default_factory=dict)
    """`provider/model` → its context size, prices and limits."""
    caps: Caps = Caps()
    """Daily limits for hosted models."""
    embedded: EmbeddedSettings = EmbeddedSettings()
    """The bundled model."""
    first_token_s: Seconds = 60
    """How long a hosted model may take until the first token."""
    idle_s: Seconds = 30
    """How long a hosted model may pause between two tokens."""
    deadline_s: Seconds = 300
    """How long a call may take, including retries and fallbacks."""
    classifier_timeout_s: Seconds = 10
    """How long structured output may take, including retries, before the default is used."""
    rate_limit_cooldown_s: Seconds = 60
    """The cooldown of a rate-limited model if the provider does not name one."""

    record: str | None = None
    """A file to which all requests and answers are appended, with secrets masked."""
    replay: str | None = None
    """A recording that answers instead of the models; no real requests are sent."""

    @field_validator("roles", "tasks", mode="before")
    @classmethod
    def _wrap_single_model(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {key: (chain,) if isinstance(chain, str) else chain for key, chain in value.items()}

    @model_validator(mode="after")
    def _check_providers(self) -> ModelsSettings:
        known = {*PRESETS, *self.providers} - {"openai-compatible"}
        chains = [*self.roles.values(), *self.tasks.values()]
        for model in (model for chain in chains for model in chain):
            if (provider := model.partition("/")[0]) not in known:
                raise ValueError(
                    f"made of known providers: {provider!r} in {model!r} is none ({', '.join(sorted(known))})"
                )
        if self.provider not in known:
            raise ValueError(f"about a known provider: {self.provider!r} is none ({', '.join(sorted(known))})")
        return self


EMBEDDED_MODEL = "smollm2"


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


class Catalogue:
    """Resolves the settings: the chain of models for a role, and the specification of each provider.

    Without a key for the default provider, the embedded model answers all roles.
    """

    def __init__(self, settings: ModelsSettings) -> None:
        self.settings = settings
        self._specs: dict[str, ProviderSpec] = {}

    def chain(self, role: Role, task: str | None = None) -> tuple[Target, ...]:
        """The model of a role and its fallbacks, in the order in which they are asked."""
        if task is not None and (chain := self.settings.tasks.get(task)):
            return tuple(map(Target.parse, chain))
        current: Role | None = role
        while current is not None:
            if chain := self.settings.roles.get(current) or self._short_form(current):
                return tuple(map(Target.parse, chain))
            current = current.fallback_role
        return (EMBEDDED,)

    def spec(self, name: str) -> ProviderSpec:
        if name not in self._specs:
            self._specs[name] = self._spec(name)
        return self._specs[name]

    def _spec(self, name: str) -> ProviderSpec:
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
        )

    def details(self, target: Target) -> ModelDetails:
        details = self.settings.details.get(str(target)) or ModelDetails()
        if target.provider != "embedded":
            return details
        embedded = self.settings.embedded
        max_words = details.max_story_words or (
            _BUNDLED_MAX_STORY_WORDS if target == EMBEDDED and embedded.model is None else None
        )
        return details.model_copy(update={"context": details.context or embedded.context, "max_story_words": max_words})

    def _short_form(self, role: Role) -> tuple[str, ...]:
        """The chain from `narrative_model`, `classifier_model` and the preset; empty if a required key is missing."""
        spec = self.spec(self.settings.provider)
        preset = PRESETS[
            self.settings.providers[spec.name].preset if spec.name in self.settings.providers else spec.name
        ]
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
