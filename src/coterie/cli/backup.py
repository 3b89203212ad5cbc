"""`coterie backup`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli._app import new_app

app = new_app("Copy the whole database while it is in use.")


@app.command()
def backup(
    to: Annotated[Path | None, typer.Option(help="Where to put it (default: the folder `backups`).")] = None,
) -> None:
    """Copy the whole database. A running server goes on; the copy is one moment of it."""
    from coterie.app import load_settings
    from coterie.base.clock import SystemClock
    from coterie.base.errors import BackupError
    from coterie.base.paths import Paths
    from coterie.eventstore.sqlite.backup import check_backup, take_backup
    from coterie.ops.backups import Backups

    home = Paths.locate()
    if to is not None and to.exists():
        raise BackupError(f"{to} is there already.", "Choose another name: a backup never overwrites anything.")
    path = (
        take_backup(home.database, to)
        if to
        else Backups(home, load_settings(home).settings.storage, SystemClock()).take()
    )
    findings = check_backup(path)
    if not findings.clean:
        raise BackupError(f"The copy {path} is not sound: {' '.join(findings.problems)}", "Run `coterie verify`.")
    typer.echo(f"{path}  ({path.stat().st_size / 1e6:.1f} MB, {findings.events} events, checked)")
