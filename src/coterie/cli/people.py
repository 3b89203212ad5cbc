"""`coterie people`: people, their accounts and their permissions."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.base.untrusted import one_line
from coterie.cli.common import new_app, open_app, open_reader
from coterie.cli.running_server import find_server

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
    if server := find_server():
        issued = server.call("POST", f"/people/{_person(name)}/code")
        link_code, minutes = str(issued["code"]), int(issued["minutes"])
    else:
        with _open_app() as app:
            person, minutes = app.people.find(name), app.settings.surfaces.code_minutes
            link_code = asyncio.run(app.people.issue_code(person.id, minutes))
    typer.echo(f"{link_code}\nValid once, for {minutes} minutes. Send this from the new account: !link {link_code}")


@people_app.command()
def invite(name: Annotated[str, typer.Argument(help="The person's name.")]) -> None:
    """Add a person, and create the code that links their first account."""
    if server := find_server():
        issued = server.call("POST", "/people", {"name": name})
        link_code, minutes = str(issued["code"]), int(issued["minutes"])
    else:
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
    character: Annotated[
        str | None, typer.Option(help="The character they may talk to, by name or id; * for all of them.")
    ] = None,
) -> None:
    """Approve a request for access."""
    if server := find_server():
        asking = server.call("GET", "/people")["asking"]
        body = {"code": code, "person": name, "character": _character(character) if character is not None else ""}
        person_name = server.call("POST", "/people/approve", body)["name"]
        given = "".join(letter for letter in code.upper() if letter.isalnum())
        request = next(one for one in asking if one["code"].replace("-", "") == given)
        account, surface = request["account"], request["surface"]
    else:
        with _open_app() as app:
            if character is not None and character != "*":
                character = app.characters.find(character).id
            person, pairing = asyncio.run(app.people.approve(code, name, character))
            account, surface, person_name = pairing.account, pairing.surface, person.name
    typer.echo(f"{one_line(account, 80)} on {surface} is {one_line(person_name, 60)}.")


@people_app.command()
def allow(
    name: Annotated[str, _PERSON],
    character: Annotated[str, typer.Argument(help="A character by name or id; * for all of them.")],
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take the permission back.")] = False,
) -> None:
    """Allow a person to talk with a character."""
    if server := find_server():
        body = {"character": _character(character), "allowed": not withdraw}
        server.call("PUT", f"/people/{_person(name)}/characters", body)
    else:
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
    if server := find_server():
        server.call("POST", "/people/unlink", {"surface": surface, "account": account})
    else:
        with _open_app() as app:
            asyncio.run(app.people.unlink(surface, account))
    typer.echo("Done.")


@people_app.command()
def key(
    name: Annotated[str, _PERSON] = "owner",
    purpose: Annotated[str, typer.Option("--for", help="What the key is for.")] = "a program",
) -> None:
    """Create an API key: who calls /v1 with it acts as the person. It is shown once."""
    if server := find_server():
        token = str(server.call("POST", f"/people/{_person(name)}/keys", {"name": purpose})["key"])
        with open_reader() as reader:
            from coterie.characters import PeopleQueries

            person_name = PeopleQueries(reader).find(name).name
    else:
        with _open_app() as app:
            person = app.people.find(name)
            person_name = person.name
            _, token = asyncio.run(app.api_keys.create(person.id, purpose))
    typer.echo(f"{token}\nShown only now. Programs that call /v1 with it act as {one_line(person_name, 60)}.")


@people_app.command()
def keys() -> None:
    """List the API keys of all people. Works while a server runs."""
    from coterie.characters import ApiKeyQueries, PeopleQueries

    with open_reader() as reader:
        for person in PeopleQueries(reader).all():
            for one in ApiKeyQueries(reader).of_person(person.id):
                who, purpose = one_line(person.name, 60), one_line(one.name, 60)
                typer.echo(f"{one.id}  {who}  {purpose}  since {one.created:%Y-%m-%d}")


@people_app.command("revoke-key")
def revoke_key(key: Annotated[str, typer.Argument(help="The id, as `coterie people keys` shows it.")]) -> None:
    """Revoke an API key: it gives no access from now on."""
    if server := find_server():
        server.call("DELETE", f"/people/keys/{key}")
    else:
        with _open_app() as app:
            asyncio.run(app.api_keys.revoke(key))
    typer.echo("Revoked.")


def _person(name: str) -> str:
    """The id of a person, read beside the server."""
    from coterie.characters import PeopleQueries

    with open_reader() as reader:
        return PeopleQueries(reader).find(name).id


def _character(name: str) -> str:
    """The id of a character, read beside the server; `*` stays."""
    from coterie.characters import CharacterQueries

    if name == "*":
        return name
    with open_reader() as reader:
        return CharacterQueries(reader).find(name).id


def _open_app() -> AbstractContextManager[App]:
    return open_app("Send !link or !approve CODE in a room where you are known, or stop the server and try again.")
