"""`coterie cast`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli._app import new_app

if TYPE_CHECKING:
    from coterie.app import App
    from coterie.characters.service import CharacterQueries

app = new_app("Characters: make, list, show, import, export, delete.")
_CHAT = typer.Argument(metavar="FILE", help="The chat, as SillyTavern exports it (JSONL).")
_TARGET = typer.Argument(metavar="FILE", help="Where to write it.")


@app.command()
def new(
    name: Annotated[str | None, typer.Argument(help="The character's name.")] = None,
    persona: Annotated[str, typer.Option(help="Who the character is.")] = "",
    trait: Annotated[list[str] | None, typer.Option(help="A trait; may be repeated.")] = None,
    voice: Annotated[list[str] | None, typer.Option(help="A sample of how it talks; may be repeated.")] = None,
    backstory: Annotated[str, typer.Option(help="What lies behind it.")] = "",
    relationship: Annotated[str, typer.Option(help="How it stands to you at the beginning.")] = "",
    kickoff: Annotated[str, typer.Option(help="Prose from which the opening scene is made.")] = "",
    card: Annotated[Path | None, typer.Option(help="A card (JSON, PNG, CHARX) or a whole exported character.")] = None,
    ready: Annotated[str | None, typer.Option(help="A ready-made one: maren, teodor or io.")] = None,
) -> None:
    """Make a character: from options, from a card, or ready-made. Its folder gets SOUL.md, IDENTITY.md and USER.md."""
    import asyncio

    from coterie.base.errors import ConfigError
    from coterie.characters import starter_characters as shelf
    from coterie.characters.identity import Identity

    if sum(source is not None for source in (name, card, ready)) != 1:
        raise ConfigError(
            "Say which character to make, in one way.", "coterie cast new NAME, or --card FILE, or --ready maren."
        )
    with _house() as house:
        if card is not None:
            bot, notes = asyncio.run(house.character_importer.import_file(_read(card), card.name))
            for note in notes:
                typer.echo(f"  · {note}")
        else:
            identity = (
                shelf.starter_character(ready)
                if ready is not None
                else Identity(
                    name=name or "",
                    persona=persona,
                    traits=trait or [],
                    voice_samples=voice or [],
                    backstory=backstory,
                    initial_relationship=relationship,
                    kickoff=kickoff,
                )
            )
            bot = asyncio.run(house.character_importer.author(identity))
        typer.echo(f"{_line(bot.name)} is here ({bot.id}), with a folder at {house.workspaces.folder(bot.id)}")
        typer.echo(f"→ coterie chat {bot.id if ' ' in bot.name else _line(bot.name)}")


@app.command("list")
def list_cast() -> None:
    """Every character. Works while a server runs."""

    def tell(cast: CharacterQueries) -> None:
        bots = cast.all()
        for bot in bots:
            typer.echo(f"{bot.id}  {_line(bot.name)}  (version {bot.version})")
        if not bots:
            typer.echo("Nobody is here yet. → coterie cast new --ready maren")

    _look(tell)


@app.command()
def show(name: Annotated[str, typer.Argument(help="A name or id.")]) -> None:
    """A character, with every version of it. Works while a server runs."""

    def tell(cast: CharacterQueries) -> None:
        from coterie.base.text import escape_controls

        bot = cast.find(name)
        who = bot.identity
        typer.secho(f"{_line(who.name)}  ({bot.id})", bold=True)
        told = {
            "Persona": who.persona,
            "Traits": ", ".join(who.traits),
            "Backstory": who.backstory,
            "Relationship": who.initial_relationship,
            "Kickoff": who.kickoff,
            "Voice": "\n---\n".join(who.voice_samples),
        }
        for label, text in told.items():
            if text.strip():
                typer.secho(label, bold=True)
                typer.echo(escape_controls(text.strip()))
        for version in cast.versions(bot.id):
            mark = " (now)" if version.version == bot.version else ""
            typer.echo(f"version {version.version}{mark}: {_line(version.identity.persona) or version.name}")

    _look(tell)


@app.command("import-chat")
def import_chat(
    file: Annotated[Path, _CHAT],
    who: Annotated[str, typer.Option("--as", help="The character it was with, by name or id.")],
    title: Annotated[str, typer.Option(help="What to call it.")] = "",
) -> None:
    """Take in a SillyTavern chat (JSONL) with its turns and swipes."""
    import asyncio

    from coterie.characters.cards import TavernChat
    from coterie.modes.story import import_tavern_chat

    with _house() as house:
        bot = house.characters.find(who)
        chat = TavernChat.read(_read(file))
        made = asyncio.run(import_tavern_chat(house.story, house.store, house.memory, bot, chat, title))
        typer.echo(f"{house.story.timeline.count(made.room)} turns are in “{_line(made.title)}” now.")
        for note in chat.notes:
            typer.echo(f"  · {note}")


@app.command()
def export(
    name: Annotated[str, typer.Argument(help="A name or id.")],
    file: Annotated[Path, _TARGET],
    whole: Annotated[bool, typer.Option(help="With its memories and feelings, as one file.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Put it in the place of what is there.")] = False,
) -> None:
    """Write a character to a file: a card (.json, .png, .charx), or all of it with --whole."""
    from coterie.characters.cards import ExportedCard, export_card, format_of
    from coterie.characters.errors import CardError
    from coterie.modes.story import export_character

    if file.exists() and not force:
        raise CardError(f"{file} is there already.", "Choose another name, or use --force.")
    with _house() as house:
        bot = house.characters.find(name)
        card = house.workspaces.card_with_files(bot)
        exported = (
            ExportedCard(export_character(house.store, house.characters, bot, card if bot.card else None), [])
            if whole
            else export_card(card, format_of(file.name))
        )
    file.write_bytes(exported.data)
    typer.echo(f"{_line(bot.name)} is in {file}.")
    for what in exported.left_behind:
        typer.echo(f"  · left behind: {what}", err=True)


@app.command()
def delete(
    name: Annotated[str, typer.Argument(help="A name or id.")],
    confirm: Annotated[str | None, typer.Option(help="The character's name, to be asked nothing.")] = None,
) -> None:
    """Take a character out of the cast. Its chats, its memories and its folder are kept."""
    import asyncio

    with _house() as house:
        bot = house.characters.find(name)
        typed = confirm if confirm is not None else typer.prompt(f"Type {_line(bot.name)} to confirm")
        asyncio.run(house.characters.delete(bot.id, typed))
        chats = len(house.story.chats.chats_with(bot.id))
        typer.echo(f"{_line(bot.name)} is no longer in the cast.")
        typer.echo(
            f"  · kept: {chats} chats to read, its memories, every version of it, {house.workspaces.folder(bot.id)}"
        )
        typer.echo(f"  · to erase what was said for good: coterie purge cast:{bot.id}, and the room:… of each chat")


@contextmanager
def _house() -> Iterator[App]:
    from coterie.app import App, load_settings, open_store
    from coterie.base.paths import Paths

    home = Paths.locate()
    with open_store(home) as store:
        yield App(home, load_settings(home).settings, store)


def _look(tell: Callable[[CharacterQueries], None]) -> None:
    """Look without owning the store."""
    import coterie.app  # noqa: F401 - declares the kinds of every room
    from coterie.base.paths import Paths
    from coterie.characters.service import CharacterQueries
    from coterie.eventstore import LogReader

    database = Paths.locate().database
    if not database.exists():
        with _house():
            pass  # a first look makes the house
    reader = LogReader(database)
    try:
        tell(CharacterQueries(reader))
    finally:
        reader.close()


def _read(path: Path) -> bytes:
    from coterie.characters.cards import check_size
    from coterie.characters.errors import CardError

    try:
        check_size(path.stat().st_size)
        return path.read_bytes()
    except OSError as error:
        raise CardError(
            f"{path} cannot be read: {error.strerror}.", "Check that it is there and may be read."
        ) from None


def _line(text: str) -> str:
    from coterie.base.text import one_line

    return one_line(text, 100)
