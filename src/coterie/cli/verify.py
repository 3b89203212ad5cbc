"""`coterie verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie.cli._app import new_app

app = new_app("Check that every view is what the log says.")


@app.command()
def verify(
    repair: Annotated[bool, typer.Option(help="Fold views that are wrong anew (the server must be stopped).")] = False,
) -> None:
    """Fold the log aside and compare: the file, the log, every view. Works while a server runs; changes nothing."""
    from coterie.app import all_projections, open_store
    from coterie.base.errors import Corrupt
    from coterie.base.paths import Paths
    from coterie.eventstore import LogReader
    from coterie.eventstore.sqlite.verify import verify as check

    home = Paths.locate()
    reader = LogReader(home.database)
    try:
        findings = check(reader, all_projections(), lambda what: typer.echo(f"checking {what}", err=True))
    finally:
        reader.close()
    if not findings.clean and repair and findings.projections:
        with open_store(home) as store:
            store.rebuild()
            findings = check(store.reader, all_projections())
    if not findings.clean:
        raise Corrupt(
            " ".join(findings.problems),
            "Views are mended by `coterie verify --repair`; for the rest put a backup back with `coterie restore`.",
        )
    typer.echo(f"Clean: {findings.events} events, {len(findings.projections)} views equal to the fold of the log.")
