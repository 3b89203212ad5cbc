"""The `[models]` table: which model does what, where providers are, and what a day may cost.

The short form is `narrative_model`, `classifier_model`, `classifier_fallbacks`, `base_url` and `api_key` for one
provider; `[models.roles]`, `[models.tasks]` and `[models.providers.NAME]` say everything else. A model is written
`provider/model`, where the model's own name may hold slashes too.
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

# What models are used for. Each role has a chain of its own in the settings; tasks can override it.


class Role(StrEnum):
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
        """Who waits for it, unless the caller says otherwise."""
        return _PRIORITIES.get(self, Priority.BACKGROUND)

    @property
    def fallback_role(self) -> Role | None:
        """Whose chain is used where this role has none of its own."""
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


# Providers we know by name: where they are, how they speak, whether they need a key.
#
# A preset is only a starting point; `[models.providers.NAME]` in the settings overrides any of it, and `preset =
# "openai-compatible"` with a `base_url` reaches everybody else.


WireProtocol = Literal["openai", "anthropic", "embedded"]


@dataclass(frozen=True)
class Preset:
    protocol: WireProtocol
    base_url: str
    needs_key: bool
    native_schema: bool
    """Whether the provider itself holds an answer to a JSON schema."""
    free: bool = False
    """Runs on this machine: costs nothing and counts toward no cap."""
    flat_rate: bool = False
    """Paid by the month: a call costs nothing more, but still counts as tokens and calls."""
    defaults: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Role → models, for the providers that can be the default one."""


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
"""A model and at most three fallbacks (D9)."""

Chain = Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_CHAIN_LENGTH)]
Seconds = Annotated[float, Field(gt=0)]


class ProviderSettings(Section):
    preset: str = "openai-compatible"
    """One of the known providers, whose values are used for what is left out here."""
    base_url: str | None = None
    """Where the provider's API begins, usually ending in /v1."""
    api_key: SecretStr | None = None
    """The key, best as `env:NAME` or `secret:NAME`."""
    native_schema: bool | None = None
    """Whether the provider itself holds an answer to a JSON schema."""
    free: bool | None = None
    """True where calls cost nothing; such calls count toward no cap."""
    flat_rate: bool | None = None
    """True where a subscription pays: calls count toward the caps on tokens and calls, not on money."""
    first_token_s: Seconds | None = None
    """How long the first token may take here, for slow machines."""

    @model_validator(mode="after")
    def _check_preset(self) -> ProviderSettings:
        if self.preset not in PRESETS:
            raise ValueError(f"a known preset ({', '.join(sorted(PRESETS))})")
        if self.preset == "openai-compatible" and not self.base_url:
            raise ValueError('given a base_url, because its preset is "openai-compatible"')
        return self


class ModelDetails(Section):
    context: Annotated[int, Field(gt=0)] | None = None
    """How many tokens the model can read and write in all."""
    max_story_words: Annotated[int, Field(gt=0)] | None = None
    """How many words it keeps its thread for: a longer reply in a story ends with the sentence that passes them. Only
    the bundled model has such a limit unless you set one."""
    usd_per_million_in: Annotated[float, Field(ge=0)] | None = None
    """Price of a million input tokens, in US dollars."""
    usd_per_million_out: Annotated[float, Field(ge=0)] | None = None
    """Price of a million output tokens, in US dollars."""


class Caps(Section):
    usd_per_day: Annotated[float, Field(ge=0)] | None = 5.0
    """Calls stop for the day once this much is spent. Local models go on."""
    tokens_per_day: Annotated[int, Field(ge=0)] | None = None
    """Calls stop for the day once hosted models have read and written this many tokens."""
    calls_per_day: Annotated[int, Field(ge=0)] | None = None
    """Calls stop for the day after this many to hosted models."""
    unknown_usd_per_million: Annotated[float, Field(ge=0)] = 10.0
    """What a million tokens are taken to cost, for the cap, where no price is known."""


class EmbeddedSettings(Section):
    model: str | None = None
    """A GGUF file to use in place of the bundled SmolLM2."""
    context: Annotated[int, Field(ge=512)] = 4096
    """Tokens each conversation can hold. Memory grows with it."""
    slots: Annotated[int, Field(ge=1, le=16)] = 2
    """Calls answered at the same time; the last one is kept free for a person who waits."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """CPU threads; one fewer than there are cores, unless set."""
    memory_mb: Annotated[int, Field(ge=256)] = 1536
    """The process may not grow past this; it ends, with a clear error, if it tries."""
    idle_unload_s: Seconds = 300
    """Unused for this long, the model leaves memory. The next call loads it again."""
    start_s: Seconds = 60
    """How long loading may take."""
    stall_s: Seconds = 5
    """Silent for this long, the process is asked whether it lives, and replaced if it does not answer."""


class ModelsSettings(Section):
    """Which model does what. With no key, the embedded one does everything."""

    provider: str = "featherless"
    """The provider that the short settings below are about."""
    base_url: str | None = None
    """Another address for that provider."""
    api_key: SecretStr | None = None
    """Its key, best as `env:NAME` or `secret:NAME`. Without one, the embedded model answers."""
    narrative_model: str | None = None
    """The model that plays characters."""
    classifier_model: str | None = None
    """The model that reads what happened: fast, and good at JSON."""
    classifier_fallbacks: Annotated[tuple[str, ...], Field(max_length=MAX_CHAIN_LENGTH - 1)] | None = None
    """Asked in this order when the classifier model fails."""
    roles: dict[Role, Chain] = Field(default_factory=dict)
    """Role → a model, or a model and its fallbacks."""
    tasks: dict[str, Chain] = Field(default_factory=dict)
    """Task type → chain, for workers and branches whose task is known."""
    providers: dict[str, ProviderSettings] = Field(default_factory=dict)
    """Further providers by name."""
    details: dict[str, ModelDetails] = Field(default_factory=dict)
    """`provider/model` → what is known about it."""
    caps: Caps = Caps()
    """What a day may cost."""
    embedded: EmbeddedSettings = EmbeddedSettings()
    """The model that comes with the installation."""
    first_token_s: Seconds = 60
    """How long a hosted model may take to begin."""
    idle_s: Seconds = 30
    """How long a hosted model may pause between two tokens."""
    deadline_s: Seconds = 300
    """How long a call may take in all, retries and fallbacks included."""
    classifier_timeout_s: Seconds = 10
    """How long a classifier may take in all, before the default is used."""
    rate_limit_cooldown_s: Seconds = 60
    """How long a rate-limited model rests, for everyone, unless the provider says."""

    record: str | None = None
    """A file to which every request and answer is added, secrets masked."""
    replay: str | None = None
    """A recording that answers in place of every model; nothing real is asked."""

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


# Resolution of the settings: which models a role uses, in which order, and how each provider is reached. Without a key
# for the default provider the embedded model answers all roles.


EMBEDDED_MODEL = "smollm2"


@dataclass(frozen=True)
class Target:
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
"""Measured by reading: about a hundred tokens on, SmolLM2 no longer knows who speaks or where."""


@dataclass(frozen=True)
class ProviderSpec:
    """A provider with every blank filled in."""

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
    def __init__(self, settings: ModelsSettings) -> None:
        self.settings = settings
        self._specs: dict[str, ProviderSpec] = {}

    def chain(self, role: Role, task: str | None = None) -> tuple[Target, ...]:
        """The model of a role and its fallbacks, in the order in which they are asked."""
        if task is not None and (chain := self.settings.tasks.get(task)):
            return tuple(map(Target.parse, chain))
        asked: Role | None = role
        while asked is not None:
            if chain := self.settings.roles.get(asked) or self._short_form(asked):
                return tuple(map(Target.parse, chain))
            asked = asked.fallback_role
        return (EMBEDDED,)

    def spec(self, name: str) -> ProviderSpec:
        if name not in self._specs:
            self._specs[name] = self._spec(name)
        return self._specs[name]

    def _spec(self, name: str) -> ProviderSpec:
        given = self.settings.providers.get(name)
        preset = PRESETS.get(given.preset if given else name)
        if preset is None:
            close = difflib.get_close_matches(name, [*PRESETS, *self.settings.providers], n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise RoleUnset(f"There is no provider called {name}.{hint}", f"Add it with: coterie models add {name}")
        given = given or ProviderSettings.model_construct(preset=name)
        is_default = name == self.settings.provider
        base_url = given.base_url or preset.base_url
        api_key = given.api_key
        if is_default:
            base_url = self.settings.base_url or base_url
            api_key = self.settings.api_key or api_key
        # The embedded model watches over itself: it knows whether it waits in the queue, reads, or hangs.
        own_watch = preset.protocol == "embedded"
        patience = self.settings.deadline_s if own_watch else self.settings.first_token_s
        return ProviderSpec(
            name=name,
            protocol=preset.protocol,
            base_url=base_url,
            api_key=api_key if api_key is not None and api_key.get_secret_value() else None,
            native_schema=preset.native_schema if given.native_schema is None else given.native_schema,
            free=preset.free if given.free is None else given.free,
            flat_rate=preset.flat_rate if given.flat_rate is None else given.flat_rate,
            first_token_s=given.first_token_s or patience,
            idle_s=self.settings.deadline_s if own_watch else self.settings.idle_s,
        )

    def details(self, target: Target) -> ModelDetails:
        known = self.settings.details.get(str(target)) or ModelDetails()
        if target.provider != "embedded":
            return known
        own = self.settings.embedded
        max_words = known.max_story_words or (
            _BUNDLED_MAX_STORY_WORDS if target == EMBEDDED and own.model is None else None
        )
        return known.model_copy(update={"context": known.context or own.context, "max_story_words": max_words})

    def _short_form(self, role: Role) -> tuple[str, ...]:
        """What `narrative_model`, `classifier_model` and the provider's own defaults say, if it can be used."""
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
            rest = self.settings.classifier_fallbacks
            models = ((first,) if first else models[:1]) + (rest if rest is not None else () if first else models[1:])
            if not models and self.settings.narrative_model:
                models = (self.settings.narrative_model,)
        return tuple(f"{spec.name}/{model}" for model in models)
