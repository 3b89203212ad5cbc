"""`coterie matrix`."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from coterie.cli._app import new_app

app = new_app("Matrix: start over, here or on the homeserver too.")


class ResetMode(enum.StrEnum):
    LOCAL_ONLY = "local-only"
    SERVER_LEAVE_FORGET = "server-leave-forget"


@app.callback()
def matrix() -> None:
    """Matrix: start over, here or on the homeserver too."""


@app.command()
def reset(
    mode: Annotated[ResetMode, typer.Option(help="Only our own records, or leave and forget every room as well.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
) -> None:
    """Forget the rooms on Matrix. Chats and memories stay; it says what it did and what is left to do by hand."""
    import asyncio

    from coterie.app import load_settings, open_store
    from coterie.base.paths import Paths
    from coterie.base.text import one_line
    from coterie.cli._passphrase import ask_passphrase
    from coterie.surfaces.matrix.login import log_in
    from coterie.surfaces.matrix.reset import reset as start_over

    home = Paths.locate()
    settings = load_settings(home, passphrase=ask_passphrase).settings.matrix
    login = home.root / "matrix" / "login.json"

    async def run() -> None:
        server = None
        if mode is ResetMode.SERVER_LEAVE_FORGET:
            server, _ = await log_in(settings, login)
        try:
            await start_over(store, server, login, mode.value, dry_run=dry_run, report=lambda it: typer.echo(_line(it)))
        finally:
            if server is not None:
                await server.close()

    def _line(text: str) -> str:
        return one_line(text, 300)

    with open_store(home) as store:
        asyncio.run(run())
