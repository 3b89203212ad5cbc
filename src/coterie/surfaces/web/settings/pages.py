"""Settings, for people: who you are, which models answer, what they may use, how it is kept. S2, S10, S28

Each value tells where it came from. What the environment sets cannot be changed here, since it would win anyway.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response

from coterie.characters import ApiKey, ApiKeys, Characters, People
from coterie.llm import PRESETS
from coterie.ops import Setting
from coterie.surfaces.web.settings.model_routes import page_context
from coterie.surfaces.web.settings.routes import people_overview
from coterie.surfaces.web.shared.dependencies import (
    ApiKeysDep,
    BackupsDep,
    CharactersDep,
    MessengersDep,
    ModelSetupDep,
    PeopleDep,
    SettingsEditorDep,
)
from coterie.surfaces.web.shared.login import session_cookie
from coterie.surfaces.web.shared.messages import N_
from coterie.surfaces.web.shared.templates import PageRouter, fragment_response, page_response

router = PageRouter(prefix="/settings")

_LABELS = {
    "models.caps.usd_per_day": N_("Spending per day"),
    "models.caps.tokens_per_day": N_("Tokens per day"),
    "models.caps.calls_per_day": N_("Model calls per day"),
    "models.caps.unknown_usd_per_million": N_("Assumed price of unknown models"),
    "story.narrative_budget_soft": N_("Prompt size without optional parts"),
    "story.narrative_budget_hard": N_("Maximum prompt size"),
    "story.classifier_budget_hard": N_("Maximum prompt size of the analysis"),
    "story.reply_tokens": N_("Maximum reply size"),
    "story.ooc_marker": N_("Mark of out-of-character notes"),
    "story.retrieval_k": N_("Memories recalled per reply"),
    "story.reader_from_words": N_("Shortest message to analyse"),
    "storage.backup_at": N_("Backup time"),
    "storage.keep_backups": N_("Backups to keep"),
    "storage.snapshot_every_events": N_("Snapshot after this many events"),
    "storage.snapshot_every_minutes": N_("Snapshot after this long"),
    "storage.keep_snapshots": N_("Snapshots to keep"),
    "server.host": N_("Listen address"),
    "server.password": N_("Login password"),
    "server.drain_s": N_("Time to finish requests at shutdown"),
    "models.narrative_model": N_("Model for characters' replies"),
    "models.classifier_model": N_("Model for background analysis"),
    "models.classifier_fallbacks": N_("Fallbacks for background analysis"),
    "models.embedded.model": N_("GGUF file of the built-in model"),
    "models.embedded.context": N_("Context size of the built-in model"),
    "models.embedded.slots": N_("Simultaneous calls of the built-in model"),
    "models.embedded.candidates": N_("Candidate lines of the demo model"),
    "models.embedded.threads": N_("CPU threads of the built-in model"),
    "models.embedded.memory_mb": N_("Memory limit of the built-in model"),
    "models.embedded.idle_unload_s": N_("Unload the built-in model after"),
    "models.embedded.start_s": N_("Time to load the built-in model"),
    "models.embedded.stall_s": N_("Check the built-in model when silent for"),
    "models.first_token_s": N_("Time until the first token"),
    "models.idle_s": N_("Longest pause between tokens"),
    "models.deadline_s": N_("Longest model call"),
    "models.classifier_timeout_s": N_("Longest background analysis"),
    "models.rate_limit_cooldown_s": N_("Pause after a rate limit"),
    "models.record": N_("Record model calls to a file"),
    "models.replay": N_("Replay model calls from a file"),
    "memory.embedder": N_("Embedding method"),
    "memory.embedder_provider": N_("Provider of the embedding model"),
    "memory.embedder_model": N_("Embedding model"),
    "draft.document_tokens": N_("Document size in a prompt"),
    "draft.history_tokens": N_("Thread size in a prompt"),
    "draft.reply_tokens": N_("Maximum reply size"),
    "crowd.stream_addresses": N_("Allowed stream addresses"),
    "crowd.bus": N_("NATS server"),
    "crowd.run_personas": N_("Run personas in this process"),
    "crowd.recogniser": N_("Speech recognition"),
    "crowd.speech_language": N_("Language of the speech"),
    "desk.asks_a_day": N_("Questions between characters per day"),
    "surfaces.strangers": N_("Unknown accounts"),
    "surfaces.guest_modes": N_("Modes that other people may use"),
    "surfaces.code_minutes": N_("Codes are valid for"),
    "surfaces.burst_quiet_s": N_("Wait for a pause in group chats"),
    "surfaces.burst_most_s": N_("Longest wait in group chats"),
    "surfaces.backlog_s": N_("Answer older messages together after"),
    "surfaces.slow_notice_s": N_("Notify of a slow reply after"),
    "surfaces.largest_file_mb": N_("Largest file"),
    "agents.silence_timeout_s": N_("Wait for a sign of an agent"),
    "agents.heartbeat_s": N_("Ping interval"),
    "agents.max_retry_pause_s": N_("Longest pause between connection attempts"),
    "webhook.wait_s": N_("Longest wait for a reply"),
    "matrix.sync_s": N_("Long-polling timeout"),
    "telegram.poll_s": N_("Long-polling timeout"),
    "telegram.drafts": N_("Stream replies as drafts"),
    "twitch.per_30_s": N_("Messages per 30 seconds"),
}
_GROUPS = {
    "budgets": [
        *(key for key in _LABELS if ".caps." in key),
        "story.narrative_budget_soft",
        "story.narrative_budget_hard",
        "story.reply_tokens",
        "story.classifier_budget_hard",
    ],
    "backups": [key for key in _LABELS if key.startswith("storage.")],
}
_UNITS = {
    "models.caps.usd_per_day": N_("US dollars"),
    "models.caps.unknown_usd_per_million": N_("US dollars per million tokens"),
    "story.narrative_budget_soft": N_("tokens"),
    "story.narrative_budget_hard": N_("tokens"),
    "story.classifier_budget_hard": N_("tokens"),
    "story.reader_from_words": N_("words"),
    "models.embedded.context": N_("tokens"),
    "storage.backup_at": N_("cron expression"),
    "twitch.per_30_s": "",
}
_UNIT_OF_SUFFIX = {"_s": N_("seconds"), "_mb": N_("MB"), "_minutes": N_("minutes"), "_tokens": N_("tokens")}
_ADVANCED = {
    "story": N_("Stories"),
    "draft": N_("Drafts"),
    "crowd": N_("Crowd"),
    "desk": N_("Desk"),
    "memory": N_("Memory"),
    "models": N_("Models"),
    "surfaces": N_("Messages from other apps"),
    "matrix": N_("Matrix"),
    "telegram": N_("Telegram"),
    "discord": N_("Discord"),
    "twitch": N_("Twitch"),
    "webhook": N_("Webhook"),
    "api": N_("API"),
    "agents": N_("Remote agents"),
    "server": N_("Web server"),
    "storage": N_("Storage"),
    "log": N_("Log"),
}
"""The first part of a key → the heading under "Advanced"."""


_MODEL_SETTINGS = ("default", "provider", "providers", "base_url", "api_key", "roles", "tasks")
_TABLES = tuple(f"models.{name}" for name in _MODEL_SETTINGS)
"""Chosen in the section of the models."""
_ANY = "openai-compatible"


@dataclass(frozen=True)
class SettingField:
    """A setting as a form shows it."""

    key: str
    label: str
    unit: str
    about: str
    kind: str
    """`text`, `number`, `switch`, `list`, `choice`, `secret`, or `table`, which is only shown."""
    value: str
    is_set: bool
    default: str
    origin: str
    locked: bool
    protected: bool
    live: bool
    pending: bool
    options: list[tuple[str, str]]


@router.get("")
async def settings(
    characters: CharactersDep,
    people: PeopleDep,
    api_keys: ApiKeysDep,
    settings_editor: SettingsEditorDep,
    backups: BackupsDep,
    setup: ModelSetupDep,
    messengers: MessengersDep,
    request: Request,
) -> Response:
    if not characters.has_owner_profile():
        next_page = "/" if setup.has_own_model else "/settings/models?welcome"
        return page_response(request, "settings/welcome.html", next_page=next_page)
    can_confirm = request.app.state.confirmations is not None
    stored = await asyncio.to_thread(settings_editor.settings)
    fields = {one.key: _field(one, can_confirm=can_confirm) for one in stored}
    groups = {name: [fields[key] for key in keys if key in fields] for name, keys in _GROUPS.items()}
    shown = {key for keys in _GROUPS.values() for key in keys}
    return page_response(
        request,
        "settings/settings.html",
        you=characters.owner(),
        groups=groups,
        advanced=_advanced(field for key, field in fields.items() if key not in shown and key not in _TABLES),
        restart=any(field.pending for field in fields.values()),
        **await asyncio.to_thread(page_context, setup),
        backups=backups.backups(),
        put_back=backups.last_restore,
        folder=str(backups.folder),
        has_login=session_cookie(request.headers) in request.cookies,
        people=people_overview(people),
        api_keys=_api_keys(people, api_keys),
        messengers=list(messengers.values()),
        characters=_character_choices(characters),
    )


@router.get("/backups")
async def backups(backups: BackupsDep) -> Response:
    return fragment_response("settings/backups.html", backups=backups.backups())


@router.get("/people")
async def people(characters: CharactersDep, people: PeopleDep, api_keys: ApiKeysDep) -> Response:
    return fragment_response(
        "settings/people.html",
        people=people_overview(people),
        api_keys=_api_keys(people, api_keys),
        characters=_character_choices(characters),
    )


def _api_keys(people: People, api_keys: ApiKeys) -> dict[str, list[ApiKey]]:
    """The keys of each person, by the person's id."""
    return {person.id: api_keys.of_person(person.id) for person in people.all()}


def _character_choices(characters: Characters) -> list[dict[str, str]]:
    return [{"id": character.id, "name": character.name} for character in characters.all()]


def _field(setting: Setting, *, can_confirm: bool) -> SettingField:
    """`can_confirm` if the owner can confirm a change with a password."""
    kind = _kind(setting)
    options = [(name, name) for name in PRESETS if name != _ANY]
    return SettingField(
        key=setting.key,
        label=setting_label(setting.key),
        unit=_unit(setting.key),
        about=setting_about(setting.about),
        kind=kind,
        value="" if setting.secret else _display_value(setting.value),
        is_set=bool(setting.value),
        default="" if setting.secret else _display_value(setting.default),
        origin="" if setting.origin == "default" else setting.origin,
        locked=setting.origin.startswith("environment variable") or (setting.protected and not can_confirm),
        protected=setting.protected,
        live=setting.live,
        pending=setting.pending,
        options=options if kind == "choice" else [],
    )


def setting_label(key: str) -> str:
    """The label of a setting; one without a label of its own is named after the last part of its key."""
    if key in _LABELS:
        return _LABELS[key]
    name = key.rpartition(".")[2]
    for suffix in _UNIT_OF_SUFFIX:
        name = name.removesuffix(suffix) or name
    return name.replace("_", " ").capitalize()


def setting_about(description: str) -> str:
    """The description of a setting as plain text."""
    return description.replace("`", "")


def _unit(key: str) -> str:
    if key in _UNITS:
        return _UNITS[key]
    return next((unit for suffix, unit in _UNIT_OF_SUFFIX.items() if key.endswith(suffix)), "")


def _advanced(fields: Iterable[SettingField]) -> list[tuple[str, list[SettingField]]]:
    """Settings by the heading they are under; tables without entries are left out, since they cannot be edited here."""
    by_part: dict[str, list[SettingField]] = {}
    for field in fields:
        if field.kind != "table" or field.is_set:
            by_part.setdefault(field.key.partition(".")[0], []).append(field)
    order = [*_ADVANCED, *sorted(by_part.keys() - _ADVANCED.keys())]
    return [(_ADVANCED.get(part, part.capitalize()), by_part[part]) for part in order if part in by_part]


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
