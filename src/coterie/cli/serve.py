"""`coterie serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie.cli._app import new_app

app = new_app("Start Coterie and open it to this machine.")


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 picks a free one.", min=0, max=65535)] = None,
) -> None:
    """Start Coterie and open it to this machine. Stop it with Ctrl-C: it finishes what is under way."""
    from coterie.app import App, load_settings, open_store, write_example
    from coterie.base.clock import SystemClock
    from coterie.base.home import Home
    from coterie.base.logging import setup_logging
    from coterie.cli._passphrase import ask_passphrase
    from coterie.surfaces.web.listen import listen
    from coterie.surfaces.web.server import create_web
    from coterie.surfaces.web.settings import ServerSettings, check_binding
    from coterie.surfaces.webhook.mount import mount

    home = Home.locate()
    settings = load_settings(home, passphrase=ask_passphrase).settings
    asked = {name: value for name, value in {"host": host, "port": port}.items() if value is not None}
    server = ServerSettings.model_validate({**dict(settings.server), **asked})
    check_binding(server)
    setup_logging(settings.log)
    home.prepare()
    write_example(home)
    with open_store(home, progress=_tell_progress) as store:
        house = App(home, settings, store)
        keys = {"/webhook": settings.webhook.secret, "/v1": settings.api.key}
        web = create_web(house, server.password, tuple(path for path, key in keys.items() if key is not None))
        mount(web, house.switchboard, settings.webhook, settings.api, SystemClock(), house.files_of)
        listen(web, server, within=house.running())


def _tell_progress(done: int, total: int) -> None:
    typer.echo(f"Folding the log: {done} of {total} events", err=True)
