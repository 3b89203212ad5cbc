"""`coterie matrix`: connect an account, and reset the connection."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from coterie.base.paths import Paths
from coterie.base.untrusted import one_line
from coterie.cli.common import ask_passphrase, new_app, read_secret, save_messenger, show_link
from coterie.cli.running_server import find_server

matrix_app = new_app("matrix")


class ResetMode(enum.StrEnum):
    LOCAL_ONLY = "local-only"
    SERVER_LEAVE_FORGET = "server-leave-forget"


@matrix_app.callback()
def matrix() -> None:
    """Connect an account on Matrix, or reset the connection."""


@matrix_app.command()
def connect(
    user: Annotated[str, typer.Argument(help="The account, such as @coterie:example.org.")],
    homeserver: Annotated[str, typer.Option(help="Its address; by default, what the account's domain names.")] = "",
    token: Annotated[bool, typer.Option("--token", help="Enter an access token instead of the password.")] = False,
    qr: Annotated[bool, typer.Option("--qr/--no-qr", help="Show the link to the account as a QR code.")] = True,
) -> None:
    """Test an account, log in and write it to the settings. The password or access token is read without echo or from
    standard input, never from an argument, and is stored encrypted."""
    import asyncio

    from coterie.surfaces.matrix import check_login

    name = "access_token" if token else "password"
    secret = read_secret(f"{'Access token' if token else 'Password'} of {one_line(user, 100)}: ")
    values = {"homeserver": homeserver, "user": user, name: secret}
    if server := find_server():
        answer = server.call("POST", "/messengers/matrix", {"values": values})
        account, begin = str(answer["account"]), "It is connected now. To begin a chat:"
    else:
        settings, changes, secrets = asyncio.run(check_login(values, Paths.locate().root / "matrix"))
        save_messenger("matrix", {key: value for key, value in changes.items() if value is not None}, secrets)
        account, begin = settings.user, "Start the server, then begin a chat:"
    typer.echo(f"{one_line(account, 100)} is logged in. Its {name.replace('_', ' ')} is stored encrypted.")
    show_link(begin, f"https://matrix.to/#/{account}", qr=qr)


@matrix_app.command()
def reset(
    mode: Annotated[ResetMode, typer.Option(help="Only our own records, or leave and forget every room as well.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")] = False,
) -> None:
    """Forget the rooms on Matrix. Chats and memories stay. Prints what was done and what remains to do by hand."""
    import asyncio

    from coterie.app import open_store
    from coterie.settings import load_settings
    from coterie.surfaces.matrix import log_in
    from coterie.surfaces.matrix import reset as reset_matrix

    if running := find_server():
        body = {"mode": mode.value, "dry_run": dry_run}
        for line in running.call("POST", "/messengers/matrix/reset", body)["lines"]:
            typer.echo(one_line(str(line), 300))
        return
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
