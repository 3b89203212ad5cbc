"""`coterie secrets`."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie.cli._app import new_app

app = new_app("Keep API keys encrypted, for the settings to refer to.")

Name = Annotated[str, typer.Argument(help="What the settings call it: secret:NAME.")]


@app.command("set")
def set_secret(
    name: Name,
    tool: Annotated[
        list[str] | None, typer.Option(help="Give it to this tool, and to nothing else. May be repeated.")
    ] = None,
    keyring: Annotated[
        bool, typer.Option("--keyring", help="Keep the key in this machine's keyring (first secret only).")
    ] = False,
) -> None:
    """Store a secret. Its value is asked for unseen, or read from standard input; never given as an argument."""
    import sys

    from coterie.cli._passphrase import open_secrets_store

    if sys.stdin.isatty():
        import getpass

        value = getpass.getpass(f"Value of {name}: ")
    else:
        value = sys.stdin.readline().rstrip("\n")
    open_secrets_store().set(name, value, grants=tuple(tool or ()), keyring=keyring)
    typer.echo(f'Stored. Refer to it in the settings as "secret:{name}".')


@app.command("list")
def list_secrets() -> None:
    """Names only; no passphrase is needed."""
    from coterie.cli._passphrase import open_secrets_store

    found = open_secrets_store().list()
    if not found:
        typer.echo("No secrets are stored. Store one: coterie secrets set NAME")
    for info in found:
        whose = f"for {', '.join(info.grants)}" if info.grants else "for the settings"
        typer.echo(f"{info.name}  ({whose})")


@app.command("rm")
def remove_secret(name: Name) -> None:
    """Forget a secret."""
    from coterie.cli._passphrase import open_secrets_store

    open_secrets_store().remove(name)
    typer.echo(f"{name} is forgotten.")
