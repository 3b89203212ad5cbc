"""`coterie restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli._app import new_app

app = new_app("Put a checked backup in the place of the database.")


@app.command()
def restore(
    backup: Annotated[Path, typer.Argument(help="The backup file, from the folder `backups`.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Check a backup, then put it in the place of the database. What was there is kept beside it."""
    from coterie.app import all_views
    from coterie.base.clock import SystemClock
    from coterie.base.home import Home
    from coterie.kernel.backup import restore as put_back
    from coterie.kernel.snapshot import prune

    home = Home.locate()
    home.prepare()

    def ask() -> None:
        if not yes:
            typer.confirm(f"Put {backup} in the place of {home.database}, which is kept beside it?", abort=True)

    kept = put_back(backup, home.database, SystemClock().now(), all_views(), ask)
    for folder in (home.periodic_snapshots, home.rewind_snapshots):
        prune(folder, keep=0)  # they tell of a life that the restored log may never have
    typer.echo(f"Restored {backup}." + (f" What was there is kept as {kept}." if kept else ""))
