"""Helpers that several commands share. Heavy imports happen inside the functions."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from coterie.base.errors import ConfigError, InUse
from coterie.base.paths import Paths, write_atomic
from coterie.cli import COMMANDS

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from coterie.app import App
    from coterie.base.secrets import SecretsStore
    from coterie.eventstore import LogReader


def new_app(command: str) -> typer.Typer:
    """A Typer application with plain help and without tracebacks."""
    return typer.Typer(
        help=COMMANDS[command],
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        no_args_is_help=False,
    )


@contextmanager
def open_app(fix_if_in_use: str | None = None) -> Iterator[App]:
    """Open the app on the data folder, without background work. Only one process can have it open."""
    from coterie.app import App, open_store
    from coterie.settings import load_settings, write_example_config

    paths = Paths.locate()
    paths.prepare()
    write_example_config(paths)
    settings = load_settings(paths, passphrase=ask_passphrase).settings
    try:
        context = open_store(paths)
        store = context.__enter__()
    except InUse as error:
        raise InUse(error.what, fix_if_in_use or error.fix) from None
    try:
        yield App(paths, settings, store)
    finally:
        context.__exit__(None, None, None)


@contextmanager
def open_chat_app() -> Iterator[App]:
    """Open the app for a conversation in the terminal, where log lines would interrupt the text."""
    from coterie.base.logging import LogSettings, setup_logging

    setup_logging(LogSettings(level="error"))
    fix = "Talk through the server that runs (its page, or its HTTP API), or stop it and try again."
    with open_app(fix) as app:
        yield app


@contextmanager
def run_app() -> Iterator[tuple[App, BlockingPortal]]:
    """Run the app with its background work in a thread of its own, so that waiting for input does not block it."""
    from anyio.from_thread import start_blocking_portal

    with open_chat_app() as app, start_blocking_portal() as portal, portal.wrap_async_context_manager(app.running()):
        yield app, portal


@contextmanager
def open_reader() -> Iterator[LogReader]:
    """Open a reader of the database, which works while a server runs. Creates the database if there is none."""
    import coterie.app  # noqa: F401 - declares every kind of event
    from coterie.eventstore import LogReader

    database = Paths.locate().database
    if not database.exists():
        with open_app():
            pass
    reader = LogReader(database)
    try:
        yield reader
    finally:
        reader.close()


def ask_passphrase() -> str | None:
    """The passphrase of the secrets store: from the environment, or typed if there is a terminal."""
    from coterie.base.secrets import passphrase_from_env

    if (passphrase := passphrase_from_env(os.environ)) or not sys.stdin.isatty():
        return passphrase
    import getpass

    return getpass.getpass("Passphrase of the secrets store: ")


def open_secrets_store() -> SecretsStore:
    from coterie.base.secrets import SecretsStore, default_protection

    return SecretsStore(Paths.locate().secrets, ask_passphrase, default_protection(os.environ))


def read_line(prompt: str) -> str | None:
    """A typed line, or None at the end of the input."""
    try:
        return input(prompt)
    except (EOFError, KeyboardInterrupt):
        typer.echo()
        return None


def read_secret(prompt: str) -> str:
    """A value typed without echo, or a line of standard input."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    import getpass

    return getpass.getpass(prompt)


def save_messenger(section: str, values: Mapping[str, str], secrets: Mapping[str, str]) -> None:
    """Write the settings of a messenger. Secrets are stored encrypted, and the settings refer to them."""
    from coterie.base.config import edit_config
    from coterie.settings import load_settings, write_example_config

    paths = Paths.locate()
    changes: dict[tuple[str, ...], str] = {(section, name): value for name, value in values.items()}
    for name, value in secrets.items():
        open_secrets_store().set(f"{section}_{name}", value)
        changes[section, name] = f"secret:{section}_{name}"
    write_example_config(paths)
    edit_config(paths.config, changes, check=lambda: load_settings(paths, passphrase=ask_passphrase))


def show_link(text: str, link: str, *, qr: bool) -> None:
    """Print an address, and its QR code for a phone."""
    typer.echo(f"{text} {link}")
    if qr:
        import segno

        segno.make(link).terminal(out=sys.stdout, compact=True)


def edit_text(text: str) -> str | None:
    """Open a text in the editor that `VISUAL` or `EDITOR` names; None if it was not changed."""
    import shlex
    import subprocess
    import tempfile

    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "proposal.md"
        write_atomic(file, text.encode(), durable=False)
        try:
            # The command is the user's own setting on the user's own machine.
            subprocess.run([*shlex.split(command), str(file)], check=True)  # noqa: S603
        except (OSError, subprocess.CalledProcessError, ValueError) as error:
            raise ConfigError(f"The editor {command!r} did not work.", "Set EDITOR to one that does.") from error
        changed = file.read_text(encoding="utf-8")
    # Editors end a file with a line break, whether the text had one or not.
    changed = changed if text.endswith("\n") else changed.removesuffix("\n")
    return None if changed == text else changed
