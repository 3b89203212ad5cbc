"""`coterie backup`, `restore`, `verify`, `purge` and `events`: the database and its event log."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.base.paths import Paths
from coterie.base.untrusted import json_line, one_line
from coterie.base.values import MAX_COUNT, MAX_INT64
from coterie.cli.common import new_app

if TYPE_CHECKING:
    from coterie.eventstore import AnyEvent

backup_app = new_app("backup")
restore_app = new_app("restore")
verify_app = new_app("verify")
purge_app = new_app("purge")
events_app = new_app("events")


@backup_app.command()
def backup(
    to: Annotated[Path | None, typer.Option(help="The file to write (default: one in the folder `backups`).")] = None,
) -> None:
    """Copy the whole instance: database, documents, files, keys. A running server is not interrupted."""
    from coterie.app import backup_taker
    from coterie.base.clock import SystemClock
    from coterie.base.errors import BackupError
    from coterie.ops import check_backup_file
    from coterie.settings import load_settings

    paths = Paths.locate()
    if to is not None and to.exists():
        raise BackupError(f"{to} exists already.", "Choose another name: a backup never overwrites a file.")
    taker = backup_taker(paths, load_settings(paths).settings.storage, SystemClock())
    path = taker.write(to) if to is not None else taker.take()
    checked = check_backup_file(path)
    size = f"{path.stat().st_size / 1e6:.1f} MB, {checked.files} files"
    typer.echo(f"{path}  ({size}, {checked.events} events, checked)")
    for what in checked.left_out:
        typer.echo(f"Not included: {one_line(what, 200)}", err=True)


@restore_app.command()
def restore(
    backup: Annotated[Path, typer.Argument(help="The backup file, from the folder `backups`.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Check a backup, then replace the instance with it. What it replaces is kept beside it."""
    from coterie.app import restore_instance
    from coterie.base.clock import SystemClock

    paths = Paths.locate()
    paths.prepare()

    def confirm() -> None:
        if not yes:
            typer.confirm(f"Replace {paths.database} with {backup}? The old one is kept beside it.", abort=True)

    report = restore_instance(paths, backup, SystemClock().now(), confirm=confirm)
    kept = f" The previous database is kept as {report.replaced}." if report.replaced else ""
    typer.echo(f"Restored {backup}.{kept}")
    for note in report.notes:
        typer.echo(one_line(note, 400), err=True)


@verify_app.command()
def verify(
    repair: Annotated[bool, typer.Option(help="Rebuild projections that differ (the server must be stopped).")] = False,
) -> None:
    """Rebuild every projection aside and compare it; check the file and the log. Works while a server runs."""
    from coterie.app import all_projections, open_store
    from coterie.base.errors import Corrupt
    from coterie.eventstore import LogReader
    from coterie.eventstore import verify as check

    paths = Paths.locate()
    with closing(LogReader(paths.database)) as reader:
        report = check(reader, all_projections(), lambda what: typer.echo(f"checking {what}", err=True))
    if not report.clean and repair and report.projections:
        with open_store(paths) as store:
            store.rebuild()
            report = check(store.reader, all_projections())
    if not report.clean:
        raise Corrupt(
            " ".join(report.problems),
            "`coterie verify --repair` rebuilds projections; for the rest restore a backup with `coterie restore`.",
        )
    typer.echo(f"Clean: {report.events} events, {len(report.projections)} projections equal to a replay of the log.")


@purge_app.command()
def purge(
    stream: Annotated[str, typer.Argument(help="The stream to erase from, such as room:01J….")],
    first: Annotated[int, typer.Option(help="The first number to erase.", min=1, max=MAX_INT64)] = 1,
    last: Annotated[int | None, typer.Option(help="The last number (default: all).", min=1, max=MAX_INT64)] = None,
    reason: Annotated[str, typer.Option(help="The reason, recorded in the log.")] = "",
    backups: Annotated[bool, typer.Option(help="Remove the backups too: they hold the erased events.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Erase events, everything derived from them, and the snapshots that hold them. This cannot be undone."""
    import asyncio

    from coterie.app import open_store
    from coterie.base.errors import BadPoint
    from coterie.eventstore import Purged, prune_snapshots
    from coterie.ops import database_copies

    paths = Paths.locate()
    with open_store(paths) as store:
        head = store.reader.head(stream)
        if not first <= (last or head) <= head:
            raise BadPoint(
                f"{stream} has no events {first} to {last or head}: its last is {head}."
                if head
                else f"There is no stream {stream}.",
                "List the events with `coterie events`; nothing was erased.",
            )
        if not yes:
            typer.confirm(f"Erase events {first} to {last or head} of {stream} permanently?", abort=True)
        event = asyncio.run(store.purge(stream, first=first, last=last, reason=reason, actor="owner"))
    for folder in (paths.periodic_snapshots, paths.rewind_snapshots):
        prune_snapshots(folder, keep=0)
        for unfinished in folder.glob("*.partial"):
            unfinished.unlink(missing_ok=True)
    copies = database_copies(paths)
    if backups:
        for path in copies:
            path.unlink(missing_ok=True)
    erased = event.payload.events if isinstance(event.payload, Purged) else 0
    typer.echo(f"Erased {erased} events of {stream}; event {event.id} of the log records it.")
    if copies and not backups:
        databases = [path for path in copies if not path.name.endswith(("-wal", "-shm"))]
        typer.echo(f"{len(databases)} backups and copies still hold them: remove those with --backups.", err=True)


@events_app.command()
def events(
    stream: Annotated[str | None, typer.Option(help="Only this stream, such as room:01J….")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only these kinds; may be repeated.")] = None,
    after: Annotated[int, typer.Option(help="Only events with a greater id.", min=0, max=MAX_INT64)] = 0,
    last: Annotated[int, typer.Option(help="How many of the newest to show.", min=1, max=MAX_COUNT)] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep showing new events.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Show the newest events, oldest first. Works while a server runs; changes nothing."""
    import time

    import coterie.app  # noqa: F401 - declares every kind of event
    from coterie.eventstore import LogReader

    _check_kinds(kind or [])
    reader = LogReader(Paths.locate().database)
    render = _as_json if as_json else _as_text
    try:
        newest = reader.read(after=after, limit=last, kinds=kind, newest_first=True, only_stream=stream)
        last_id = after
        for event in reversed(newest):
            typer.echo(render(event))
            last_id = event.id
        while follow:
            time.sleep(0.2)
            for event in reader.read(after=last_id, kinds=kind, only_stream=stream):
                typer.echo(render(event))
                last_id = event.id
    finally:
        reader.close()


def _check_kinds(kinds: list[str]) -> None:
    import difflib

    from coterie.base.errors import UnknownEvent
    from coterie.eventstore import declared_kinds

    known = declared_kinds()
    for kind in kinds:
        if kind not in known:
            close = difflib.get_close_matches(kind, known, n=1)
            hint = f'Did you mean "{close[0]}"?' if close else f"There are: {', '.join(known)}."
            raise UnknownEvent(f"There is no kind of event called {kind}.", hint)


def _as_json(event: AnyEvent) -> str:
    return json_line({**event._asdict(), "ts": event.ts.isoformat(), "payload": event.payload.model_dump(mode="json")})


def _as_text(event: AnyEvent) -> str:
    fields = " ".join(f"{name}={one_line(value, 60)}" for name, value in event.payload.model_dump(mode="json").items())
    number = typer.style(f"{event.id:>7}", dim=True)
    position = typer.style(f"{one_line(event.stream, 60)}/{event.seq}", fg="cyan")
    kind = typer.style(event.kind, bold=True)
    actor = typer.style(one_line(event.actor, 30), dim=True)
    return f"{number} {event.ts:%Y-%m-%d %H:%M:%S} {position} {kind} {actor} {fields}"
