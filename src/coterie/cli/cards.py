"""`coterie cards`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli._app import new_app

if TYPE_CHECKING:
    from coterie.characters.cards import ImportedCard

app = new_app("Check character cards, or turn one into another format.")


@app.command()
def check(
    where: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with cards, or one card.")],
) -> None:
    """Read every card in a folder and say what it is. Changes nothing; exits with 1 if any cannot be imported."""
    from coterie.base.text import one_line
    from coterie.characters.cards import import_card
    from coterie.characters.errors import CardError, NotACard

    if not where.exists():
        raise NotACard(f"{where} is not there.", "Name a folder with cards.")
    paths = [where] if where.is_file() else sorted(path for path in where.rglob("*") if path.is_file())
    failures = 0
    for path in paths:
        label = one_line(str(path.relative_to(where)) if path != where else path.name, 80)
        try:
            imported = import_card(_read(path), path.name)
            _check_round_trips(imported)
        except CardError as error:
            failures += 1
            typer.echo(f"{typer.style('✗', fg='red')} {label}: {one_line(f'{error.what} → {error.fix}', 300)}")
            continue
        typer.echo(f"{typer.style('✓', fg='green')} {label}: {_told(imported)}")
        for note in imported.notes:
            typer.echo(f"  · {one_line(note, 160)}")
    typer.echo(f"{len(paths) - failures} of {len(paths)} can be imported.")
    if failures or not paths:
        raise typer.Exit(1)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A card: JSON, PNG or CHARX.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Where to put it; .json, .png or .charx.")],
    version: Annotated[str | None, typer.Option("--as", help="For JSON: v2 or v3 (default: as it is).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Put it in the place of what is there.")] = False,
) -> None:
    """Turn a card into another format. Nothing of it is lost without being said."""
    from coterie.characters.cards import export_card, format_of, import_card
    from coterie.characters.errors import CardError

    if version not in (None, "v2", "v3"):
        raise CardError(f"There is no version {version} of cards to write.", "Use --as v2 or --as v3.")
    if target.exists() and not force:
        raise CardError(f"{target} is there already.", "Choose another name, or use --force.")
    kind = format_of(target.name)
    imported = import_card(_read(source), source.name)
    exported = export_card(imported.card, kind, version)  # type: ignore[arg-type]
    try:
        target.write_bytes(exported.data)
    except OSError as error:
        raise CardError(f"{target} cannot be written: {error.strerror}.", "Choose another place.") from None
    typer.echo(f"{target}: {_told(imported._replace(format=kind))}")
    for lost in exported.left_behind:
        typer.echo(f"  · left behind, {kind} has no place for it: {lost}", err=True)


def _read(path: Path) -> bytes:
    from coterie.characters.cards import check_size
    from coterie.characters.errors import CardError

    try:
        check_size(path.stat().st_size)
        return path.read_bytes()
    except OSError as error:
        raise CardError(f"It cannot be read: {error.strerror}.", "Check that it is there and may be read.") from None


def _check_round_trips(imported: ImportedCard) -> None:
    """A card that would not survive its own export is not one to take in."""
    from coterie.characters.cards import export_card, import_card
    from coterie.characters.errors import BrokenCard

    again = import_card(export_card(imported.card, imported.format).data, "export").card
    if again != imported.card:
        raise BrokenCard("It does not come back the same from an export.", "Please report this card.")


def _told(imported: ImportedCard) -> str:
    from coterie.base.text import one_line

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
