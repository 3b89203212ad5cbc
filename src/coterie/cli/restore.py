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
    from coterie.app import all_projections
    from coterie.base.clock import SystemClock
    from coterie.base.paths import Paths
    from coterie.ops.backups import restore_backup

    home = Paths.locate()
    home.prepare()

    def ask() -> None:
        if not yes:
            typer.confirm(f"Put {backup} in the place of {home.database}, which is kept beside it?", abort=True)

    kept = restore_backup(home, backup, SystemClock().now(), all_projections(), confirm=ask)
    typer.echo(f"Restored {backup}." + (f" What was there is kept as {kept}." if kept else ""))
