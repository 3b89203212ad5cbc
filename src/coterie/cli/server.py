"""`coterie serve`, `doctor` and `password`: run the server and set it up."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.base.errors import ConfigError, CoterieError
from coterie.base.paths import Paths
from coterie.cli.common import ask_passphrase, new_app, read_secret
from coterie.cli.running_server import announced, new_key

if TYPE_CHECKING:
    from coterie.eventstore import StepProgress
    from coterie.ops import RestoreResult
    from coterie.surfaces.web import ServerSettings

serve_app = new_app("serve")
doctor_app = new_app("doctor")
password_app = new_app("password")

_MARKS = {"ok": ("✓", "green"), "note": ("·", "yellow"), "bad": ("✗", "red")}


@serve_app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 picks a free one.", min=0, max=65535)] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Create an empty database although the folder has the remains of a lost one.")
    ] = False,
) -> None:
    """Start the server. Stop it with Ctrl-C: it finishes what is in progress."""
    from coterie.app import App, open_store
    from coterie.base.clock import SystemClock
    from coterie.base.logging import setup_logging
    from coterie.settings import load_settings, write_example_config
    from coterie.surfaces.openai_api import openai_router
    from coterie.surfaces.telegram import WEBHOOK_PATH, telegram_router
    from coterie.surfaces.web import ServerSettings, check_binding, create_web, run_server
    from coterie.surfaces.webhook import webhook_router

    paths = Paths.locate()
    passphrase = cache(ask_passphrase)
    overrides = {name: value for name, value in {"host": host, "port": port}.items() if value is not None}
    backup: Path | None = None
    while True:  # once more for each backup that is restored from the page
        settings = load_settings(paths, passphrase=passphrase).settings
        server = ServerSettings.model_validate({**dict(settings.server), **overrides})
        check_binding(server)
        setup_logging(settings.log)
        paths.prepare()
        write_example_config(paths)
        with ExitStack() as stack:
            with _show_progress(server, on_page=backup is not None) as progress:
                last_restore = restore_before_start(paths, backup, progress) if backup is not None else None
                store = stack.enter_context(open_store(paths, progress=partial(progress, "Replaying the log"), new=new))
            app = App(paths, settings, store)
            app.backups.last_restore = last_restore
            keyless = server.password is None and settings.api.key is None
            keyed = {"/webhook": settings.webhook.secret is not None, "/v1": not keyless}
            keyed[WEBHOOK_PATH] = bool(settings.telegram.webhook_url)
            local_key = new_key()
            open_paths = tuple(path for path, has_keys in keyed.items() if has_keys)
            web = create_web(app, server.password, open_paths, local_key=local_key)
            web.include_router(telegram_router(app.telegram))
            web.include_router(webhook_router(app.message_router, settings.webhook, app.room_files))
            web.include_router(
                openai_router(
                    app.message_router,
                    settings.api,
                    SystemClock(),
                    app.api_keys,
                    files_of=app.room_files,
                    keyless=keyless,
                )
            )
            announce = stack.enter_context(announced(paths, web.state.run, local_key))
            ended = run_server(web, server, within=app.running(), anew=True, on_listening=announce)
        backup, overrides["port"] = app.backups.restore_requested, ended.port
        if backup is None or ended.by_signal:
            return


def restore_before_start(paths: Paths, backup: Path, progress: StepProgress) -> RestoreResult:
    """Restore a backup; a failure leaves the database as it was and is returned for the page to show."""
    from coterie.app import restore_instance
    from coterie.base.clock import SystemClock
    from coterie.ops import RestoreResult

    try:
        with _defer_signals():
            report = restore_instance(paths, backup, SystemClock().now(), progress=progress)
    except CoterieError as error:
        return RestoreResult(f"{backup.name} was not restored: {error.what}", error.fix, ok=False)
    kept = [f"The previous database is kept as {report.replaced}."] if report.replaced else []
    return RestoreResult(f"{backup.name} was restored.", " ".join([*kept, *report.notes]), ok=True)


@contextmanager
def _defer_signals() -> Iterator[None]:
    """Deliver signals to stop only after the block."""
    received: list[int] = []
    handlers = {
        stop: signal.signal(stop, lambda number, _: received.append(number)) for stop in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for stop, handler in handlers.items():
            signal.signal(stop, handler)
        for number in received:
            signal.raise_signal(number)


@contextmanager
def _show_progress(server: ServerSettings, *, on_page: bool) -> Iterator[StepProgress]:
    """Show progress on the terminal, or on a page at the server's address."""
    from coterie.surfaces.web import RestorePage

    def on_terminal(what: str, done: int, total: int) -> None:
        typer.echo(f"{what}: {done} of {total}", err=True)

    if not on_page:
        yield on_terminal
        return
    with RestorePage(server.host, server.port) as page:
        yield page.set_progress


@doctor_app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False) -> None:
    """Check this machine, the data folder, the configuration and the database. Exits with 1 if something is bad."""
    import json
    from dataclasses import asdict

    from coterie.app import build_doctor
    from coterie.ops import CheckResult
    from coterie.settings import load_settings

    paths = Paths.locate()
    results = list(build_doctor(paths).run())
    try:
        load_settings(paths)
        results.append(CheckResult("Settings", "ok", str(paths.config)))
    except ConfigError as error:
        results.append(CheckResult("Settings", "bad", error.what, error.fix))
    for result in results:
        if as_json:
            typer.echo(json.dumps(asdict(result), ensure_ascii=False))
            continue
        mark, colour = _MARKS[result.state]
        typer.echo(f"{typer.style(mark, fg=colour)} {typer.style(result.about, bold=True)}: {result.what}")
        if result.fix:
            typer.echo(f"  → {result.fix}")
    if any(result.state == "bad" for result in results):
        raise typer.Exit(1)


@password_app.command()
def password(
    remove: Annotated[
        bool, typer.Option("--remove", help="Ask for no password; the server then accepts only this machine.")
    ] = False,
) -> None:
    """Read a password, without echo or from standard input, and write its Argon2 hash to the configuration file."""
    from coterie.base.config import edit_config
    from coterie.settings import check_settings, load_settings, write_example_config
    from coterie.surfaces.web import ServerSettings, hash_password

    paths = Paths.locate()
    write_example_config(paths)
    new_password = None if remove else _read_new_password()
    if new_password is not None and len(new_password) < ServerSettings.SHORTEST:
        raise ConfigError(
            "That password is too short.", f"Choose one of at least {ServerSettings.SHORTEST} characters."
        )
    password_hash = "" if new_password is None else hash_password(new_password)
    edit_config(
        paths.config,
        {("server", "password"): password_hash},
        check=lambda: check_settings(load_settings(paths, passphrase=ask_passphrase).settings),
    )
    typer.echo("Removed." if remove else "Set. It applies from the next start of `coterie serve`.")


def _read_new_password() -> str:
    first = read_secret("New password: ")
    if sys.stdin.isatty() and read_secret("Once more: ") != first:
        raise ConfigError("The two passwords differ.", "Try again.")
    return first
