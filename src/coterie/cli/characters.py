"""`coterie characters` and `coterie cards`: characters, and the card files they are exchanged as."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.base.errors import ConfigError
from coterie.base.paths import Paths, write_atomic
from coterie.base.untrusted import escape_controls, one_line
from coterie.cli.common import new_app, open_app, open_reader
from coterie.cli.running_server import find_server

if TYPE_CHECKING:
    from coterie.characters import ImportedCard

characters_app = new_app("characters")
cards_app = new_app("cards")

_NAME_LENGTH = 100
_CHAT = typer.Argument(metavar="FILE", help="The chat, as SillyTavern exports it (JSONL).")
_TARGET = typer.Argument(metavar="FILE", help="The file to write.")
_CharacterName = Annotated[str, typer.Argument(help="A name or id.")]
_Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


@characters_app.command()
def new(
    name: Annotated[str | None, typer.Argument(help="The character's name.")] = None,
    persona: Annotated[str, typer.Option(help="A description of the character.")] = "",
    trait: Annotated[list[str] | None, typer.Option(help="A trait; may be repeated.")] = None,
    voice: Annotated[list[str] | None, typer.Option(help="A sample of its speech; may be repeated.")] = None,
    backstory: Annotated[str, typer.Option(help="Its past.")] = "",
    relationship: Annotated[str, typer.Option(help="Its relationship to you at the beginning.")] = "",
    kickoff: Annotated[str, typer.Option(help="Prose from which the opening scene is made.")] = "",
    card: Annotated[Path | None, typer.Option(help="A card (JSON, PNG, CHARX) or a whole exported character.")] = None,
    ready: Annotated[str | None, typer.Option(help="A ready-made one: maren, teodor or io.")] = None,
) -> None:
    """Create a character from options, from a card, or ready-made. Its folder gets SOUL.md, IDENTITY.md and USER.md."""
    import asyncio

    from coterie.characters import Identity, starter_character

    if sum(source is not None for source in (name, card, ready)) != 1:
        raise ConfigError(
            "Give exactly one source of the character.",
            "coterie characters new NAME, or --card FILE, or --ready maren.",
        )
    identity = None
    if card is None:
        identity = (
            starter_character(ready)
            if ready is not None
            else Identity.create(
                name=name or "",
                persona=persona,
                traits=trait or [],
                voice_samples=voice or [],
                backstory=backstory,
                initial_relationship=relationship,
                kickoff=kickoff,
            )
        )
    card_data, card_name = (_read(card), card.name) if card is not None else (b"", "")
    notes: list[str] = []
    if server := find_server():
        if identity is None or card is not None:
            imported = server.call("POST", "/characters/import", content=card_data, query={"name": card_name})
            created, notes = imported["character"], imported["notes"]
        elif ready is not None:
            created = server.call("POST", f"/characters/ready/{ready}")
        else:
            created = server.call("POST", "/characters", identity.model_dump(mode="json", exclude={"id"}))
        character_id, character_name = str(created["id"]), str(created["name"])
        folder = Paths.locate().workspace(character_id)
    else:
        with open_app() as app:
            if identity is None or card is not None:
                character, notes = asyncio.run(app.character_importer.import_file(card_data, card_name))
            else:
                character = asyncio.run(app.character_importer.author(identity))
            character_id, character_name = character.id, character.name
            folder = app.workspaces.folder(character_id)
    for note in notes:
        typer.echo(f"  · {note}")
    shown = one_line(character_name, _NAME_LENGTH)
    typer.echo(f"Created {shown} ({character_id}), with a folder at {folder}")
    typer.echo(f"→ coterie chat {character_id if ' ' in character_name else shown}")


@characters_app.command("list")
def list_characters() -> None:
    """List every character. Works while a server runs."""
    from coterie.characters import CharacterQueries

    with open_reader() as reader:
        characters = CharacterQueries(reader).all()
    for character in characters:
        typer.echo(f"{character.id}  {one_line(character.name, _NAME_LENGTH)}  (version {character.version})")
    if not characters:
        typer.echo("There are no characters yet. → coterie characters new --ready maren")


@characters_app.command()
def show(name: _CharacterName) -> None:
    """Show a character with all its versions. Works while a server runs."""
    from coterie.characters import CharacterQueries

    with open_reader() as reader:
        queries = CharacterQueries(reader)
        character = queries.find(name)
        versions = queries.versions(character.id)
    identity = character.identity
    typer.secho(f"{one_line(identity.name, _NAME_LENGTH)}  ({character.id})", bold=True)
    fields = {
        "Persona": identity.persona,
        "Traits": ", ".join(identity.traits),
        "Backstory": identity.backstory,
        "Relationship": identity.initial_relationship,
        "Kickoff": identity.kickoff,
        "Voice": "\n---\n".join(identity.voice_samples),
    }
    for label, text in fields.items():
        if text.strip():
            typer.secho(label, bold=True)
            typer.echo(escape_controls(text.strip()))
    for version in versions:
        mark = " (now)" if version.version == character.version else ""
        summary = one_line(version.identity.persona, _NAME_LENGTH) or version.name
        typer.echo(f"version {version.version}{mark}: {summary}")


@characters_app.command("import-chat")
def import_chat(
    file: Annotated[Path, _CHAT],
    name: Annotated[str, typer.Option("--as", help="The character it was with, by name or id.")],
    title: Annotated[str, typer.Option(help="The title of the chat.")] = "",
) -> None:
    """Import a SillyTavern chat (JSONL) with its turns and swipes."""
    import asyncio

    from coterie.characters import TavernChat
    from coterie.modes.story import import_tavern_chat

    data = _read(file)
    chat = TavernChat.read(data)
    if server := find_server():
        path = f"/characters/{_character_id(name)}/chats/import"
        answer = server.call("POST", path, content=data, query={"title": title})
        turns, shown_title = int(answer["turns"]), str(answer["title"])
    else:
        with open_app() as app:
            character = app.characters.find(name)
            imported = asyncio.run(import_tavern_chat(app.story, app.store, app.memory, character, chat, title))
            turns, shown_title = app.story.timeline.count(imported.room), imported.title
    typer.echo(f"Imported {turns} turns into “{one_line(shown_title, _NAME_LENGTH)}”.")
    for note in chat.notes:
        typer.echo(f"  · {note}")


@characters_app.command()
def export(
    name: _CharacterName,
    file: Annotated[Path, _TARGET],
    whole: Annotated[bool, typer.Option(help="Include its memories and relationships, in one file.")] = False,
    force: _Force = False,
) -> None:
    """Write a character to a file: a card (.json, .png, .charx), or everything with --whole."""
    from coterie.characters import CardError, ExportedCard, export_card, format_of
    from coterie.modes.story import export_character

    if file.exists() and not force:
        raise CardError(f"{file} exists already.", "Choose another name, or use --force.")
    if (server := find_server()) is not None:
        kind = "character" if whole else format_of(file.name)
        data = server.download(f"/characters/{_character_id(name)}/export", {"format": kind})
        write_atomic(file, data)
        typer.echo(f"Exported {one_line(name, _NAME_LENGTH)} to {file}.")
        return
    with open_app() as app:
        character = app.characters.find(name)
        card = app.workspaces.card_with_files(character)
        exported = (
            ExportedCard(export_character(app.store, app.characters, character, card if character.card else None), [])
            if whole
            else export_card(card, format_of(file.name))
        )
    write_atomic(file, exported.data)
    typer.echo(f"Exported {one_line(character.name, _NAME_LENGTH)} to {file}.")
    for what in exported.left_behind:
        typer.echo(f"  · not included: {what}", err=True)


@characters_app.command()
def delete(
    name: _CharacterName,
    confirm: Annotated[str | None, typer.Option(help="The character's name, to skip the question.")] = None,
) -> None:
    """Delete a character. Its chats, its memories and its folder are kept."""
    import asyncio

    if server := find_server():
        character_id = _character_id(name)
        shown = one_line(server.call("GET", f"/characters/{character_id}")["name"], _NAME_LENGTH)
        typed = confirm if confirm is not None else typer.prompt(f"Type {shown} to confirm")
        server.call("POST", f"/characters/{character_id}/delete", {"confirm": typed})
        kept = f"its chats to read, its memories, all its versions, {Paths.locate().workspace(character_id)}"
    else:
        with open_app() as app:
            character = app.characters.find(name)
            character_id, shown = character.id, one_line(character.name, _NAME_LENGTH)
            typed = confirm if confirm is not None else typer.prompt(f"Type {shown} to confirm")
            asyncio.run(app.characters.delete(character.id, typed))
            chats, folder = len(app.story.chats.chats_with(character.id)), app.workspaces.folder(character.id)
            kept = f"{chats} chats to read, its memories, all its versions, {folder}"
    typer.echo(f"Deleted {shown}.")
    typer.echo(f"  · kept: {kept}")
    typer.echo(f"  · to erase them permanently: coterie purge cast:{character_id}, and the room:… of each chat")


@cards_app.command()
def check(
    where: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with cards, or one card.")],
) -> None:
    """Read every card in a folder and describe it. Changes nothing; exits with 1 if any cannot be imported."""
    from coterie.characters import CardError, NotACard, import_card

    if not where.exists():
        raise NotACard(f"{where} does not exist.", "Name a folder with cards.")
    paths = [where] if where.is_file() else sorted(path for path in where.rglob("*") if path.is_file())
    failures = 0
    for path in paths:
        label = one_line(str(path.relative_to(where)) if path != where else path.name, 80)
        try:
            imported = import_card(_read(path), path.name)
            _check_round_trip(imported)
        except CardError as error:
            failures += 1
            typer.echo(f"{typer.style('✗', fg='red')} {label}: {one_line(f'{error.what} → {error.fix}', 300)}")
            continue
        typer.echo(f"{typer.style('✓', fg='green')} {label}: {_describe(imported)}")
        for note in imported.notes:
            typer.echo(f"  · {one_line(note, 160)}")
    typer.echo(f"{len(paths) - failures} of {len(paths)} can be imported.")
    if failures or not paths:
        raise typer.Exit(1)


@cards_app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A card: JSON, PNG or CHARX.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write: .json, .png or .charx.")],
    version: Annotated[str | None, typer.Option("--as", help="For JSON: v2 or v3 (default: unchanged).")] = None,
    force: _Force = False,
) -> None:
    """Convert a card to another format, and list what that format cannot hold."""
    from coterie.characters import CardError, export_card, format_of, import_card

    if version not in (None, "v2", "v3"):
        raise CardError(f"There is no version {version} of cards to write.", "Use --as v2 or --as v3.")
    if target.exists() and not force:
        raise CardError(f"{target} exists already.", "Choose another name, or use --force.")
    target_format = format_of(target.name)
    imported = import_card(_read(source), source.name)
    exported = export_card(imported.card, target_format, version)  # type: ignore[arg-type]
    try:
        write_atomic(target, exported.data)
    except OSError as error:
        raise CardError(f"{target} cannot be written: {error.strerror}.", "Choose another place.") from None
    typer.echo(f"{target}: {_describe(imported._replace(format=target_format))}")
    for what in exported.left_behind:
        typer.echo(f"  · not included, {target_format} cannot hold it: {what}", err=True)


def _character_id(name: str) -> str:
    """The id of a character, read beside the server."""
    from coterie.characters import CharacterQueries

    with open_reader() as reader:
        return CharacterQueries(reader).find(name).id


def _read(path: Path) -> bytes:
    from coterie.characters import CardError, check_size

    try:
        check_size(path.stat().st_size)
        return path.read_bytes()
    except OSError as error:
        raise CardError(f"{path} cannot be read: {error.strerror}.", "Check its name and permissions.") from None


def _check_round_trip(imported: ImportedCard) -> None:
    """Raise if an export of the card would not read back as the same card."""
    from coterie.characters import BrokenCard, export_card, import_card

    again = import_card(export_card(imported.card, imported.format).data, "export").card
    if again != imported.card:
        raise BrokenCard("An export of this card differs from it.", "Please report this card.")


def _describe(imported: ImportedCard) -> str:
    card = imported.card
    entries = len(card.lorebook.entries) if card.lorebook else 0
    parts = [
        one_line(card.name, 60),
        f"V{card.generation}" if card.generation == 1 else f"V{card.spec_version:g}",
        imported.format,
        f"{entries} lorebook entries",
        f"{sum(card.asset_bytes(asset) is not None for asset in card.assets)} assets",
    ]
    return ", ".join(parts)
