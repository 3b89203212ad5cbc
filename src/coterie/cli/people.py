"""`coterie people`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli._app import new_app

if TYPE_CHECKING:
    from coterie.app import App

app = new_app("Who may talk to your characters, and from which accounts.")
_WHO = typer.Argument(help="A name or id; `owner` is you.")


@app.command("list")
def show() -> None:
    """Everybody, with their accounts, and who waits to be let in. Works while a server runs."""
    import coterie.app  # noqa: F401 - declares the kinds of every room
    from coterie.base.clock import SystemClock
    from coterie.base.paths import Paths
    from coterie.base.text import one_line
    from coterie.characters.people import PeopleQueries
    from coterie.eventstore import LogReader

    database = Paths.locate().database
    if not database.exists():
        with _house():
            pass  # a first look makes the house
    reader = LogReader(database)
    try:
        people = PeopleQueries(reader)
        for person in people.all():
            whom = ", ".join(people.allowed_characters(person.id)) or "nobody"
            told = "everybody" if whom == "*" else whom
            typer.echo(f"{one_line(person.name, 60)}{' (owner)' if person.is_owner else ''}: may talk with {told}")
            for surface, account, name in people.identities(person.id):
                typer.echo(f"  {surface}  {one_line(account, 80)}  {one_line(name, 40)}".rstrip())
        for one in people.pairing_requests(SystemClock().now()):
            typer.echo(f"Waits: {one_line(one.account, 80)} on {one.surface}, code {one.code}")
    finally:
        reader.close()


@app.command()
def code(who: Annotated[str, _WHO] = "owner") -> None:
    """A code that links one more account to a person, once: they write `link CODE` there."""
    import asyncio

    with _house() as house:
        person, minutes = house.people.find(who), house.settings.surfaces.code_minutes
        told = asyncio.run(house.people.issue_code(person.id, minutes))
        typer.echo(f"{told}\nGood once, for {minutes} minutes. Write it from the new account: !link {told}")


@app.command()
def invite(name: Annotated[str, typer.Argument(help="What to call them.")]) -> None:
    """A new person, and the code with which they show up."""
    import asyncio

    with _house() as house:
        minutes = house.settings.surfaces.code_minutes
        _, told = asyncio.run(house.people.invite(name, minutes))
        typer.echo(f"{told}\nGood once, for {minutes} minutes. They write: !link {told}")


@app.command()
def approve(
    told: Annotated[str, typer.Argument(metavar="CODE", help="The code that the stranger was told.")],
    who: Annotated[
        str | None, typer.Option("--as", help="A person there is already; without it, somebody new.")
    ] = None,
) -> None:
    """Let a stranger in who showed you their code."""
    import asyncio

    from coterie.base.text import one_line

    with _house() as house:
        person, asking = asyncio.run(house.people.approve(told, who))
        typer.echo(f"{one_line(asking.account, 80)} on {asking.surface} is {one_line(person.name, 60)}.")


@app.command()
def allow(
    who: Annotated[str, _WHO],
    character: Annotated[str, typer.Argument(help="A character by name or id; * for all of them.")],
    withdraw: Annotated[bool, typer.Option("--withdraw", help="No longer.")] = False,
) -> None:
    """Say whom somebody may talk with."""
    import asyncio

    with _house() as house:
        person = house.people.find(who)
        whom = character if character == "*" else house.characters.find(character).id
        asyncio.run(house.people.allow(person.id, whom, not withdraw))
        typer.echo("Done.")


@app.command()
def unlink(
    surface: Annotated[str, typer.Argument(help="Such as matrix.")],
    account: Annotated[str, typer.Argument(help="As `coterie people list` shows it.")],
) -> None:
    """Take an account from whoever it belongs to: it is a stranger's again."""
    import asyncio

    with _house() as house:
        asyncio.run(house.people.unlink(surface, account))
        typer.echo("Done.")


@contextmanager
def _house() -> Iterator[App]:
    from coterie.app import App, load_settings, open_store
    from coterie.base.errors import InUse
    from coterie.base.paths import Paths

    home = Paths.locate()
    try:
        opened = open_store(home)
        store = opened.__enter__()
    except InUse as error:
        raise InUse(
            error.what, "Write !link or !approve CODE in a room you are known in, or stop the server and try again."
        ) from None
    try:
        yield App(home, load_settings(home).settings, store)
    finally:
        opened.__exit__(None, None, None)
