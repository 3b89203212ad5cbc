"""`coterie telegram`: connect a Telegram bot."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie.base.paths import Paths
from coterie.base.untrusted import one_line
from coterie.cli.common import ask_passphrase, new_app, read_secret, save_messenger, show_link
from coterie.cli.running_server import find_server

telegram_app = new_app("telegram")


@telegram_app.callback()
def telegram() -> None:
    """Connect a Telegram bot, through which people talk to your characters."""


@telegram_app.command()
def connect(
    qr: Annotated[bool, typer.Option("--qr/--no-qr", help="Show the link to the bot as a QR code.")] = True,
) -> None:
    """Test a bot's token, store it encrypted and write it to the settings. It is read without echo or from standard
    input, never from an argument."""
    import asyncio

    from pydantic import SecretStr

    from coterie.settings import load_settings
    from coterie.surfaces.telegram import check_token

    token = read_secret("Token of the bot, from @BotFather: ").strip()
    if server := find_server():
        answer = server.call("POST", "/messengers/telegram", {"values": {"token": token}})
        account, link = one_line(answer["account"], 150), str(answer["link"])
        begin = "It is connected now. To open a chat:"
    else:
        settings = load_settings(Paths.locate(), passphrase=ask_passphrase).settings.telegram
        info = asyncio.run(check_token(settings.model_copy(update={"token": SecretStr(token)})))
        save_messenger("telegram", {}, {"token": token})
        account, link = f"{one_line(info.name, 100)} (@{info.username})", info.link
        begin = "Start the server, then open a chat:"
    typer.echo(f"The bot is {account}. Its token is stored encrypted.")
    show_link(begin, link, qr=qr)
