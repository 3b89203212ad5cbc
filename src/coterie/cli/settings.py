"""`coterie settings`: show settings and change them in the configuration file, also those that the page protects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.base.paths import Paths
from coterie.base.untrusted import one_line
from coterie.cli.common import ask_passphrase, new_app

if TYPE_CHECKING:
    from coterie.base.config import LoadedSettings
    from coterie.ops import SettingsEditor
    from coterie.settings import Settings

settings_app = new_app("settings")
_KEY = Annotated[str, typer.Argument(help="The setting, such as desk.sandbox.")]


@settings_app.command("list")
def list_settings(
    prefix: Annotated[str, typer.Argument(help="Only settings that begin with this, such as server.")] = "",
) -> None:
    """List the settings with their values and origins; secrets are left out."""
    for setting in _editor().settings():
        if setting.key.startswith(prefix):
            value = ("set" if setting.value else "not set") if setting.secret else json.dumps(setting.value)
            origin = "" if setting.origin == "default" else f"  ({setting.origin})"
            typer.echo(f"{setting.key} = {one_line(value, 200)}{origin}")


@settings_app.command("set")
def set_setting(
    key: _KEY,
    value: Annotated[str, typer.Argument(help="Text, a number, true, false, a JSON list, or env:NAME or secret:NAME.")],
) -> None:
    """Change a setting in the configuration file. It applies from the next start of the server."""
    _editor().change({key: _parse(value)}, confirmed=True)
    typer.echo(f"{key} is set. It applies from the next start of `coterie serve`.")


@settings_app.command()
def unset(key: _KEY) -> None:
    """Reset a setting to its default."""
    _editor().change({key: None}, confirmed=True)
    typer.echo(f"{key} has its default. It applies from the next start of `coterie serve`.")


def _parse(value: str) -> Any:
    """JSON for numbers, switches and lists; anything else is text."""
    try:
        parsed = json.loads(value)
    except ValueError:
        return value
    return parsed if isinstance(parsed, bool | int | float | list) else value


def _editor() -> SettingsEditor:
    from coterie.ops import SettingsEditor
    from coterie.settings import check_settings, load_settings, write_example_config

    paths = Paths.locate()

    def read() -> LoadedSettings[Settings]:
        return load_settings(paths, passphrase=ask_passphrase)

    return SettingsEditor(
        read().settings, paths.config, read, lambda: write_example_config(paths), check=check_settings
    )
