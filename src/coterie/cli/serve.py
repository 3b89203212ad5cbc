"""`coterie serve`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli._app import new_app

if TYPE_CHECKING:
    from coterie.base.paths import Paths
    from coterie.eventstore.sqlite.backup import StepProgress
    from coterie.ops.backups import RestoreResult
    from coterie.surfaces.web.server_settings import ServerSettings

app = new_app("Start Coterie and open it to this machine.")


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 picks a free one.", min=0, max=65535)] = None,
) -> None:
    """Start Coterie and open it to this machine. Stop it with Ctrl-C: it finishes what is under way."""
    from coterie.app import App, load_settings, open_store, write_example_config
    from coterie.base.clock import SystemClock
    from coterie.base.logging import setup_logging
    from coterie.base.paths import Paths
    from coterie.cli._passphrase import ask_passphrase
    from coterie.surfaces.openai_api.routes import openai_router
    from coterie.surfaces.web.server import create_web, run_server
    from coterie.surfaces.web.server_settings import ServerSettings, check_binding
    from coterie.surfaces.webhook.routes import webhook_router

    home = Paths.locate()
    passphrase = cache(ask_passphrase)
    asked = {name: value for name, value in {"host": host, "port": port}.items() if value is not None}
    wanted: Path | None = None
    while True:
        settings = load_settings(home, passphrase=passphrase).settings
        server = ServerSettings.model_validate({**dict(settings.server), **asked})
        check_binding(server)
        setup_logging(settings.log)
        home.prepare()
        write_example_config(home)
        with ExitStack() as open_house:
            with _progress_shown(server, waiting=wanted is not None) as tell:
                put_back = put_back_while_serving(home, wanted, tell) if wanted is not None else None
                told = partial(tell, "Folding the log")
                store = open_house.enter_context(open_store(home, progress=told))
            house = App(home, settings, store)
            house.backups.last_restore = put_back
            keys = {"/webhook": settings.webhook.secret, "/v1": settings.api.key}
            web = create_web(house, server.password, tuple(path for path, key in keys.items() if key is not None))
            web.include_router(webhook_router(house.message_router, settings.webhook, house.room_files))
            web.include_router(openai_router(house.message_router, settings.api, SystemClock()))
            ended = run_server(web, server, within=house.running(), anew=True)
        wanted, asked["port"] = house.backups.restore_requested, ended.port
        if wanted is None or ended.by_signal:
            return


def put_back_while_serving(home: Paths, backup: Path, tell: StepProgress) -> RestoreResult:
    """What cannot be put back leaves everything as it was, and whoever asked is told why."""
    from coterie.app import all_projections
    from coterie.base.clock import SystemClock
    from coterie.base.errors import CoterieError
    from coterie.ops.backups import RestoreResult, restore_backup

    try:
        with _unbroken():
            kept = restore_backup(home, backup, SystemClock().now(), all_projections(), progress=tell)
    except CoterieError as error:
        return RestoreResult(f"{backup.name} was not put back: {error.what}", error.fix, ok=False)
    return RestoreResult(f"{backup.name} was put back.", f"What was there is kept as {kept}." if kept else "", ok=True)


@contextmanager
def _unbroken() -> Iterator[None]:
    """A signal to stop counts when this is done."""
    caught: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: caught.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in caught:
            signal.raise_signal(each)


@contextmanager
def _progress_shown(server: ServerSettings, *, waiting: bool) -> Iterator[StepProgress]:
    """On the terminal, and to whoever waits on a page."""
    from coterie.surfaces.web.ops.restore_page import RestorePage

    def on_terminal(what: str, done: int, most: int) -> None:
        typer.echo(f"{what}: {done} of {most}", err=True)

    if not waiting:
        yield on_terminal
        return
    with RestorePage(server.host, server.port) as room:
        yield room.set_progress
