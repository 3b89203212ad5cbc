"""`coterie import`: take over a SillyTavern data folder."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.base.errors import ConfigError
from coterie.base.untrusted import one_line
from coterie.cli.common import new_app, open_app

if TYPE_CHECKING:
    from coterie.modes.story import ItemImported, Preview

import_app = new_app("import")

_PLURALS = {
    "preset": "presets",
    "persona": "personas",
    "character": "characters",
    "expression": "expressions",
    "gallery picture": "gallery pictures",
    "lorebook": "lorebooks",
    "chat": "chats",
    "group": "groups",
    "group chat": "group chats",
    "quick replies": "sets of quick replies",
    "other": "other things",
}
_LINE = 300


@import_app.command()
def import_folder(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="SillyTavern's folder, or data/default-user in it.")],
    preview: Annotated[bool, typer.Option("--preview", help="Only show what would be taken.")] = False,
    without: Annotated[
        list[str] | None, typer.Option(help="Leave out a kind, such as preset or chat; may be repeated.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List every item, not only what needs a look.")] = False,
) -> None:
    """Take over characters, chats with swipes, groups, lorebooks, personas and presets from SillyTavern.

    Nothing in the folder is changed. It can be interrupted, and repeated without doubles.
    """
    import asyncio

    from coterie.modes.story import ITEM_KINDS

    unknown = [kind for kind in without or () if kind not in ITEM_KINDS]
    if unknown:
        raise ConfigError(f"There is no kind {unknown[0]}.", f"The kinds are: {', '.join(ITEM_KINDS)}.")
    kinds = [kind for kind in ITEM_KINDS if kind not in (without or ())]
    with open_app("Import it on the page of the server that runs (Characters → Import), or stop the server.") as app:
        importer = app.sillytavern
        if preview:
            _show_preview(asyncio.run(importer.preview(str(folder), confirmed=True)))
            return

        async def take() -> str:
            run_id = await importer.start(str(folder), kinds, confirmed=True)
            run = importer.queries.run(run_id)
            progress = _Progress(run.done if run else 0, run.items if run else 0, everything)
            await importer.run(run_id, progress.add)
            progress.end()
            return run_id

        run = importer.queries.run(asyncio.run(take()))
        if run is None or run.failed:
            raise ConfigError(run.failed if run else "The import is gone.", "Check the folder, and import it again.")
        items = importer.queries.items(run.id)
    for kind, plural in _PLURALS.items():
        counts = Counter[str](item.outcome for item in items if item.item == kind)
        if counts:
            parts = [f"{counts[one]} {word}" for one, word in _OUTCOMES.items() if counts[one]]
            typer.echo(f"{plural.capitalize()}: {', '.join(parts)}.")
    totals = Counter[str]()
    for item in items:
        if item.outcome in ("taken", "changed"):
            totals.update(item.counts)
    typer.echo(
        f"Messages: {totals['messages']:,}, swipes: {totals['swipes']:,}, lorebook entries: {totals['entries']:,}."
    )


_OUTCOMES = {"taken": "taken", "changed": "taken with changes", "known": "here already", "left": "left"}


class _Progress:
    """A bar on a terminal, and a line for each item that was changed or left."""

    def __init__(self, done: int, total: int, everything: bool) -> None:
        self._done = done
        self._total = total
        self._everything = everything

    def add(self, item: ItemImported) -> None:
        self._done += 1
        if item.outcome in ("changed", "left") or self._everything:
            self._clear()
            name = one_line(item.path, _LINE)
            why = one_line(" ".join(item.notes), _LINE)
            typer.echo(f"  {_OUTCOMES[item.outcome]}: {name}{f': {why}' if why else ''}")
        if sys.stderr.isatty():
            filled = 30 * self._done // max(self._total, 1)
            bar = f"[{'█' * filled}{'·' * (30 - filled)}] {self._done}/{self._total}"
            print(f"\r{bar}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        self._clear()

    def _clear(self) -> None:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _show_preview(preview: Preview) -> None:
    typer.echo(f"In {preview.folder}:")
    before = Counter(item.kind for item in preview.items if item.before)
    for kind, number in preview.kinds.items():
        known = f" ({before[kind]} imported before)" if before[kind] else ""
        typer.echo(f"  {number} {_PLURALS[kind] if number != 1 else kind}{known}")
    for item in preview.items:
        if item.why_left:
            typer.echo(f"  left: {one_line(item.path, _LINE)}: {one_line(item.why_left, _LINE)}")
