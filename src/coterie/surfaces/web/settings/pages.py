"""Settings, for people: who you are, which models answer, what they may use, how it is kept. S2, S10, S28

Each value tells where it came from. What the environment sets cannot be changed here, since it would win anyway.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response

from coterie.characters import Characters
from coterie.llm import PRESETS, Models, Role, RoleUnset
from coterie.ops import Setting
from coterie.surfaces.web.settings.routes import people_overview
from coterie.surfaces.web.shared.dependencies import BackupsDep, CharactersDep, ModelsDep, PeopleDep, SettingsEditorDep
from coterie.surfaces.web.shared.login import SESSION_COOKIE
from coterie.surfaces.web.shared.templates import PageRouter, fragment_response, page_response

router = PageRouter(prefix="/settings")

_LABELS = {
    "models.provider": "Provider",
    "models.base_url": "Base URL",
    "models.api_key": "API key",
    "models.narrative_model": "Model for characters' replies",
    "models.classifier_model": "Model for classification",
    "models.classifier_fallbacks": "Fallbacks",
    "models.caps.usd_per_day": "Dollars per day",
    "models.caps.tokens_per_day": "Tokens per day",
    "models.caps.calls_per_day": "Calls per day",
    "models.caps.unknown_usd_per_million": "Assumed price if unknown",
    "story.narrative_budget_soft": "Prompt size, soft limit",
    "story.narrative_budget_hard": "Prompt size, hard limit",
    "story.classifier_budget_hard": "Classifier prompt size, limit",
    "story.reply_tokens": "Reply size, limit",
    "story.ooc_marker": "Out-of-character marker",
    "story.retrieval_k": "Memories recalled per reply",
    "story.reader_from_words": "Classify turns from this length",
    "storage.backup_at": "Backup time",
    "storage.keep_backups": "Backups to keep",
    "storage.snapshot_every_events": "Events between snapshots",
    "storage.snapshot_every_minutes": "Minutes between snapshots",
    "storage.keep_snapshots": "Snapshots to keep",
}
_GROUPS = {
    "models": [key for key in _LABELS if key.startswith("models.") and ".caps." not in key],
    "budgets": [
        *(key for key in _LABELS if ".caps." in key),
        "story.narrative_budget_soft",
        "story.narrative_budget_hard",
        "story.reply_tokens",
        "story.classifier_budget_hard",
    ],
    "story": ["story.retrieval_k", "story.ooc_marker", "story.reader_from_words"],
    "backups": [key for key in _LABELS if key.startswith("storage.")],
}


_TABLES = ("models.roles", "models.tasks", "models.providers")
"""Shown in forms of their own."""
_ANY = "openai-compatible"


@dataclass(frozen=True)
class SettingField:
    """A setting as a form shows it."""

    key: str
    label: str
    about: str
    kind: str
    """`text`, `number`, `switch`, `list`, `choice`, `secret`, or `table`, which is only shown."""
    value: str
    is_set: bool
    default: str
    origin: str
    locked: bool
    live: bool
    pending: bool
    options: list[tuple[str, str]]


@dataclass(frozen=True)
class RoleModels:
    """A role and its models."""

    role: str
    chain: list[str]
    also: list[str]
    """Other roles with the same models."""


@dataclass(frozen=True)
class ProviderForm:
    """A configured provider as its form shows it."""

    name: str
    preset: str
    base_url: str
    has_key: bool


@router.get("")
async def settings(
    characters: CharactersDep,
    people: PeopleDep,
    models: ModelsDep,
    settings_editor: SettingsEditorDep,
    backups: BackupsDep,
    request: Request,
) -> Response:
    if not characters.has_owner_profile():
        return page_response(request, "settings/welcome.html")
    fields = {one.key: _field(one) for one in await asyncio.to_thread(settings_editor.settings)}
    groups = {name: [fields[key] for key in keys if key in fields] for name, keys in _GROUPS.items()}
    shown = {key for keys in _GROUPS.values() for key in keys}
    return page_response(
        request,
        "settings/settings.html",
        you=characters.owner(),
        groups=groups,
        others=[field for key, field in fields.items() if key not in shown and key not in _TABLES],
        restart=any(field.pending for field in fields.values()),
        seats=_role_models(models),
        tasks=[(task, list(chain)) for task, chain in models.settings.tasks.items()],
        providers=_providers(models),
        presets=[(name, "OpenAI-compatible" if name == _ANY else name) for name in PRESETS],
        backups=backups.backups(),
        put_back=backups.last_restore,
        folder=str(backups.folder),
        has_login=SESSION_COOKIE in request.cookies,
        people=people_overview(people),
        characters=_character_choices(characters),
    )


@router.get("/backups")
async def backups(backups: BackupsDep) -> Response:
    return fragment_response("settings/backups.html", backups=backups.backups())


@router.get("/people")
async def people(characters: CharactersDep, people: PeopleDep) -> Response:
    return fragment_response(
        "settings/people.html", people=people_overview(people), characters=_character_choices(characters)
    )


def _character_choices(characters: Characters) -> list[dict[str, str]]:
    return [{"id": character.id, "name": character.name} for character in characters.all()]


def _role_models(models: Models) -> list[RoleModels]:
    """One entry per chain of models, under the first role that has it."""
    by_chain: dict[tuple[str, ...], RoleModels] = {}
    for role in Role:
        try:
            chain = tuple(str(target) for target in models.catalogue.chain(role))
        except RoleUnset:
            continue
        own = role.fallback_role is None or role in models.settings.roles
        if own or chain not in by_chain:
            by_chain[(*chain, role.value) if chain in by_chain else chain] = RoleModels(role.value, list(chain), [])
        else:
            by_chain[chain].also.append(role.value)
    return list(by_chain.values())


def _providers(models: Models) -> list[ProviderForm]:
    return [
        ProviderForm(name, one.preset, one.base_url or "", one.api_key is not None)
        for name, one in models.settings.providers.items()
    ]


def _field(setting: Setting) -> SettingField:
    kind = _kind(setting)
    options = [(name, name) for name in PRESETS if name != _ANY]
    return SettingField(
        key=setting.key,
        label=_LABELS.get(setting.key, setting.key),
        about=setting.about.replace("`", ""),
        kind=kind,
        value="" if setting.secret else _display_value(setting.value),
        is_set=bool(setting.value),
        default="" if setting.secret else _display_value(setting.default),
        origin="" if setting.origin == "default" else setting.origin,
        locked=setting.origin.startswith("environment variable"),
        live=setting.live,
        pending=setting.pending,
        options=options if kind == "choice" else [],
    )


def _kind(setting: Setting) -> str:
    if setting.secret:
        return "secret"
    if setting.key == "models.provider" and setting.value in PRESETS:
        return "choice"
    sample: Any = setting.value if setting.value is not None else setting.default
    if isinstance(sample, bool):
        return "switch"
    if isinstance(sample, int | float) or setting.key.startswith("models.caps."):
        return "number"
    if isinstance(sample, dict):
        return "table"
    return "list" if isinstance(sample, list) or setting.key.endswith("fallbacks") else "text"


def _display_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, indent=2) if isinstance(value, dict) else str(value)
