"""`coterie people`: people, their accounts and their permissions."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.base.untrusted import one_line
from coterie.cli.common import new_app, open_app, open_reader

if TYPE_CHECKING:
    from coterie.app import App

people_app = new_app("people")
_PERSON = typer.Argument(help="A name or id; `owner` is you.")


@people_app.command("list")
def list_people() -> None:
    """List people, their accounts and pending requests for access. Works while a server runs."""
    from coterie.base.clock import SystemClock
    from coterie.characters import PeopleQueries

    with open_reader() as reader:
        people = PeopleQueries(reader)
        for person in people.all():
            allowed = ", ".join(people.allowed_characters(person.id)) or "nobody"
            label = f"{one_line(person.name, 60)}{' (owner)' if person.is_owner else ''}"
            typer.echo(f"{label}: may talk with {'everybody' if allowed == '*' else allowed}")
            for surface, account, name in people.identities(person.id):
                typer.echo(f"  {surface}  {one_line(account, 80)}  {one_line(name, 40)}".rstrip())
        for request in people.pairing_requests(SystemClock().now()):
            typer.echo(f"Requests access: {one_line(request.account, 80)} on {request.surface}, code {request.code}")


@people_app.command()
def code(name: Annotated[str, _PERSON] = "owner") -> None:
    """Create a code that links one more account to a person: they send `!link CODE` from it."""
    with _open_app() as app:
        person, minutes = app.people.find(name), app.settings.surfaces.code_minutes
        link_code = asyncio.run(app.people.issue_code(person.id, minutes))
        typer.echo(f"{link_code}\nValid once, for {minutes} minutes. Send this from the new account: !link {link_code}")


@people_app.command()
def invite(name: Annotated[str, typer.Argument(help="The person's name.")]) -> None:
    """Add a person, and create the code that links their first account."""
    with _open_app() as app:
        minutes = app.settings.surfaces.code_minutes
        _, link_code = asyncio.run(app.people.invite(name, minutes))
        typer.echo(f"{link_code}\nValid once, for {minutes} minutes. They send: !link {link_code}")


@people_app.command()
def approve(
    code: Annotated[str, typer.Argument(help="The code that was shown to the person who requests access.")],
    name: Annotated[
        str | None, typer.Option("--as", help="An existing person; without it, a new one is added.")
    ] = None,
) -> None:
    """Approve a request for access."""
    with _open_app() as app:
        person, request = asyncio.run(app.people.approve(code, name))
        typer.echo(f"{one_line(request.account, 80)} on {request.surface} is {one_line(person.name, 60)}.")


@people_app.command()
def allow(
    name: Annotated[str, _PERSON],
    character: Annotated[str, typer.Argument(help="A character by name or id; * for all of them.")],
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take the permission back.")] = False,
) -> None:
    """Allow a person to talk with a character."""
    with _open_app() as app:
        person = app.people.find(name)
        character_id = character if character == "*" else app.characters.find(character).id
        asyncio.run(app.people.allow(person.id, character_id, not withdraw))
        typer.echo("Done.")


@people_app.command()
def unlink(
    surface: Annotated[str, typer.Argument(help="Such as matrix.")],
    account: Annotated[str, typer.Argument(help="As `coterie people list` shows it.")],
) -> None:
    """Remove an account from the person it belongs to."""
    with _open_app() as app:
        asyncio.run(app.people.unlink(surface, account))
        typer.echo("Done.")


def _open_app() -> AbstractContextManager[App]:
    return open_app("Send !link or !approve CODE in a room where you are known, or stop the server and try again.")
