"""Settings turned into answers: which models a role uses, in which order, and how each provider is reached.

With no key for the default provider the embedded model answers everything, so a fresh clone works; nothing else is ever
swapped in silently.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from pydantic import SecretStr

from coterie.llm.errors import RoleUnset
from coterie.llm.roles import Role
from coterie.llm.settings import PRESETS, ModelDetails, ModelsSettings, ProviderSettings, WireProtocol

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
