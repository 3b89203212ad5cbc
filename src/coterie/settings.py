"""All settings of Coterie: the sections of every part, how they are loaded, and which changes apply at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial

from coterie.base.config import (
    LoadedSettings,
    Section,
    example_config,
    load_config,
)
from coterie.base.errors import ConfigError, ReadOnly
from coterie.base.logging import LogSettings
from coterie.base.paths import Paths, write_atomic
from coterie.base.secrets import SecretsStore, passphrase_from_env
from coterie.llm import (
    Catalogue,
    ModelsSettings,
    check_key_destinations,
    key_address,
)
from coterie.memory import (
    MemorySettings,
)
from coterie.messaging import (
    SurfacesSettings,
    check_bound_modes,
)
from coterie.modes.crowd import CrowdSettings
from coterie.modes.desk import DeskSettings
from coterie.modes.draft import DraftSettings
from coterie.modes.remote import (
    AgentsSettings,
)
from coterie.modes.story import (
    StorySettings,
)
from coterie.ops import (
    StorageSettings,
)
from coterie.surfaces.discord import DiscordSettings
from coterie.surfaces.matrix import MatrixSettings
from coterie.surfaces.openai_api import ApiSettings
from coterie.surfaces.telegram import TelegramSettings
from coterie.surfaces.twitch import TwitchSettings
from coterie.surfaces.web import ServerSettings, check_binding
from coterie.surfaces.webhook import WebhookSettings


class Settings(Section):
    """All settings."""

    server: ServerSettings = ServerSettings()
    models: ModelsSettings = ModelsSettings()
    memory: MemorySettings = MemorySettings()
    story: StorySettings = StorySettings()
    draft: DraftSettings = DraftSettings()
    crowd: CrowdSettings = CrowdSettings()
    desk: DeskSettings = DeskSettings()
    surfaces: SurfacesSettings = SurfacesSettings()
    agents: AgentsSettings = AgentsSettings()
    webhook: WebhookSettings = WebhookSettings()
    api: ApiSettings = ApiSettings()
    matrix: MatrixSettings = MatrixSettings()
    twitch: TwitchSettings = TwitchSettings()
    telegram: TelegramSettings = TelegramSettings()
    discord: DiscordSettings = DiscordSettings()
    storage: StorageSettings = StorageSettings()
    log: LogSettings = LogSettings()


LIVE_SETTINGS = (
    *("story.", "crowd."),
    *(f"models.{name}" for name in ("default", "provider", "base_url", "api_key", "narrative_model", "classifier_")),
    *(f"models.{name}" for name in ("roles", "tasks", "details", "caps.", "first_token_s", "idle_s", "deadline_s")),
    "models.embedded.",
    "models.samplers",
    "memory.",
    *("models.rate_limit_cooldown_s", "storage.keep_", "storage.snapshot_every_", "telegram.token", "discord.token"),
    *(f"matrix.{name}" for name in ("homeserver", "user", "password", "access_token")),
)
"""Prefixes of settings that are read each time they are needed, so that a change applies without a restart."""


def load_settings(
    paths: Paths, environ: Mapping[str, str] | None = None, passphrase: Callable[[], str | None] | None = None
) -> LoadedSettings[Settings]:
    """Load the settings. `passphrase` is called only if they refer to the secrets store; by default it is read from
    the environment.
    """
    env = os.environ if environ is None else environ
    secrets = SecretsStore(paths.secrets, passphrase or (lambda: passphrase_from_env(env)))
    loaded = load_config(Settings, file=paths.config, environ=env, secret=partial(find_secret, secrets))
    _check_addresses(loaded, secrets)
    return loaded


def check_settings(settings: Settings) -> None:
    """Refuse settings with which the server would not start."""
    check_binding(settings.server)


def check_settings_change(before: Settings, after: Settings, entered: Collection[str] = ()) -> None:
    """Raises `ConfirmationNeeded` for a change whose effect, not its key, gives power over secrets or this machine.
    `entered` are keys that were entered together with their address, in this change.
    """
    check_key_destinations(before.models, after.models, entered)
    check_bound_modes(before.surfaces, after.surfaces)


def _check_addresses(loaded: LoadedSettings[Settings], secrets: SecretsStore) -> None:
    """Refuse a key that was stored for another address than the one that it would be sent to."""
    if not loaded.secrets:
        return
    stored_for = {info.name: info.address for info in secrets.list() if info.address}
    catalogue = Catalogue(loaded.settings.models)
    for key, name in loaded.secrets.items():
        if name not in stored_for:
            continue
        provider = _PROVIDER_KEY.fullmatch(key)
        used_for = catalogue.spec(provider[1] or loaded.settings.models.provider).base_url if provider else ""
        if key_address(used_for) != stored_for[name]:
            raise ConfigError(
                f"{key} refers to the secret {name}, which was stored for {stored_for[name]} only and would be sent "
                f"to {used_for or 'something else'}.",
                "Correct the address, or enter the key for it in Settings → Models.",
            )


_PROVIDER_KEY = re.compile(r"models\.(?:providers\.(.+)\.)?api_key")
_TOOL_SERVER = re.compile(r"desk\.tool_servers\.(.+?)\.(?:command|url|env|headers)\b")


def find_secret(secrets: SecretsStore, name: str, key: str) -> str | None:
    """A tool server gets only the secrets that were granted to it, and other settings only those that were not."""
    server = _TOOL_SERVER.match(key)
    value = secrets.get(name, tool=server[1] if server else None)
    if value is None and (stored := next((info for info in secrets.list() if info.name == name), None)) is not None:
        if server:
            raise ConfigError(
                f"{key} refers to the secret {name}, which was not stored for the tool server {server[1]}.",
                f"Store it for that server: coterie secrets set {name} --tool {server[1]}",
            )
        raise ConfigError(
            f"{key} refers to the secret {name}, which was stored for {', '.join(stored.grants)} only.",
            f"Store it for the settings, without --tool: coterie secrets set {name}",
        )
    return value


def write_example_config(paths: Paths) -> None:
    """Write a configuration file with all defaults commented out, unless there is one."""
    try:
        if not paths.config.exists():
            paths.config.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomic(paths.config, example_config(Settings).encode())
    except OSError as error:
        raise ReadOnly(
            f"The configuration file {paths.config} cannot be written ({error.strerror}).",
            "Give yourself write access to its folder, or choose another place with COTERIE_CONFIG.",
        ) from error
