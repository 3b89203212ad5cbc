"""`coterie purge`."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie.cli._app import new_app

app = new_app("Erase part of the log for good (privacy).")


@app.command()
def purge(
    stream: Annotated[str, typer.Argument(help="The stream to erase from, such as room:01J….")],
    first: Annotated[int, typer.Option(help="The first number to erase.", min=1)] = 1,
    last: Annotated[int | None, typer.Option(help="The last number to erase (default: all).")] = None,
    reason: Annotated[str, typer.Option(help="Why, for the log.")] = "",
    backups: Annotated[bool, typer.Option(help="Remove the backups too: they hold what is erased.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Erase events, what was made of them, and the snapshots that hold them. This cannot be taken back."""
    import asyncio

    from coterie.app import open_store
    from coterie.base.errors import BadPoint
    from coterie.base.paths import Paths
    from coterie.eventstore import Purged
    from coterie.eventstore.sqlite.snapshots import prune_snapshots
    from coterie.ops.backups import database_copies

    home = Paths.locate()
    with open_store(home) as store:
        head = store.reader.head(stream)
        if not first <= (last or head) <= head:
            raise BadPoint(
                f"{stream} has no events {first} to {last or head}: its last is {head}."
                if head
                else f"There is no stream {stream}.",
                "List what there is with `coterie events`; nothing was erased.",
            )
        if not yes:
            typer.confirm(f"Erase events {first} to {last or head} of {stream} for good?", abort=True)
        event = asyncio.run(store.purge(stream, first=first, last=last, reason=reason, actor="owner"))
    for folder in (home.periodic_snapshots, home.rewind_snapshots):
        prune_snapshots(folder, keep=0)
        for unfinished in folder.glob("*.partial"):
            unfinished.unlink(missing_ok=True)
    kept = database_copies(home)
    if backups:
        for path in kept:
            path.unlink(missing_ok=True)
    told = event.payload.events if isinstance(event.payload, Purged) else 0
    typer.echo(f"Erased {told} events of {stream}; the log says so in event {event.id}.")
    if kept and not backups:
        whole = [path for path in kept if not path.name.endswith(("-wal", "-shm"))]
        typer.echo(f"{len(whole)} backups and kept copies still hold them: remove those with --backups.", err=True)
