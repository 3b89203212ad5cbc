"""`coterie matrix`: maintenance of the Matrix surface."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from coterie.base.paths import Paths
from coterie.base.untrusted import one_line
from coterie.cli.common import ask_passphrase, new_app

matrix_app = new_app("matrix")


class ResetMode(enum.StrEnum):
    LOCAL_ONLY = "local-only"
    SERVER_LEAVE_FORGET = "server-leave-forget"


@matrix_app.callback()
def matrix() -> None:
    """Reset the Matrix connection, here or on the homeserver too."""


@matrix_app.command()
def reset(
    mode: Annotated[ResetMode, typer.Option(help="Only our own records, or leave and forget every room as well.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")] = False,
) -> None:
    """Forget the rooms on Matrix. Chats and memories stay. Prints what was done and what remains to do by hand."""
    import asyncio

    from coterie.app import load_settings, open_store
    from coterie.surfaces.matrix import log_in
    from coterie.surfaces.matrix import reset as reset_matrix

    paths = Paths.locate()
    settings = load_settings(paths, passphrase=ask_passphrase).settings.matrix
    login = paths.root / "matrix" / "login.json"

    def report(line: str) -> None:
        typer.echo(one_line(line, 300))

    async def run() -> None:
        server = None
        if mode is ResetMode.SERVER_LEAVE_FORGET:
            server, _ = await log_in(settings, login)
        try:
            await reset_matrix(store, server, login, mode.value, dry_run=dry_run, report=report)
        finally:
            if server is not None:
                await server.close()

    with open_store(paths) as store:
        asyncio.run(run())
