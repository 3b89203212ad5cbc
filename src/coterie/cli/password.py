"""`coterie password`."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie.cli._app import new_app

app = new_app("Set the password without which nobody comes in.")


@app.command()
def password(
    remove: Annotated[
        bool, typer.Option("--remove", help="Ask for none any more; only this machine may come in.")
    ] = False,
) -> None:
    """Ask for a password, unseen or from standard input, and write its Argon2 hash into the configuration file."""
    from coterie.app import load_settings, write_example_config
    from coterie.base.config import edit_config
    from coterie.base.errors import ConfigError
    from coterie.base.paths import Paths
    from coterie.cli._passphrase import ask_passphrase
    from coterie.surfaces.web.server_settings import ServerSettings
    from coterie.surfaces.web.shared.login import hash_password

    home = Paths.locate()
    write_example_config(home)
    given = None if remove else _asked()
    if given is not None and len(given) < ServerSettings.SHORTEST:
        raise ConfigError(
            "That password is too short.", f"Choose one of at least {ServerSettings.SHORTEST} characters."
        )
    told = "" if given is None else hash_password(given)
    edit_config(
        home.config, {("server", "password"): told}, check=lambda: load_settings(home, passphrase=ask_passphrase)
    )
    typer.echo("Nobody is asked any more." if remove else "Set. It counts from the next start of `coterie serve`.")


def _asked() -> str:
    import sys

    from coterie.base.errors import ConfigError

    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    import getpass

    first = getpass.getpass("New password: ")
    if getpass.getpass("Once more: ") != first:
        raise ConfigError("Those were two different passwords.", "Try again.")
    return first
