"""`coterie events`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli._app import new_app

if TYPE_CHECKING:
    from coterie.eventstore import AnyEvent

app = new_app("Look at the log: filter it, follow it.")


@app.command()
def events(
    stream: Annotated[str | None, typer.Option(help="Only this stream, such as room:01J….")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only these kinds; may be repeated.")] = None,
    after: Annotated[int, typer.Option(help="Only events with a greater id.")] = 0,
    last: Annotated[int, typer.Option(help="How many of the newest to show.", min=1)] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as new events come.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show the newest events, oldest first. Works while a server runs; changes nothing."""
    import time

    import coterie.app  # noqa: F401 - declares the kinds of every room
    from coterie.base.paths import Paths
    from coterie.eventstore import LogReader

    _check_kinds(kind or [])
    reader = LogReader(Paths.locate().database)
    show = _as_json if as_json else _pretty
    try:
        found = reader.read(after=after, limit=last, kinds=kind, newest_first=True, only_stream=stream)
        seen = after
        for event in reversed(found):
            typer.echo(show(event))
            seen = event.id
        while follow:
            time.sleep(0.2)
            for event in reader.read(after=seen, kinds=kind, only_stream=stream):
                typer.echo(show(event))
                seen = event.id
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
    from coterie.base.text import json_line

    told = {**event._asdict(), "ts": event.ts.isoformat(), "payload": event.payload.model_dump(mode="json")}
    return json_line(told)


def _pretty(event: AnyEvent) -> str:
    from coterie.base.text import one_line

    fields = " ".join(f"{name}={one_line(value, 60)}" for name, value in event.payload.model_dump(mode="json").items())
    head = typer.style(f"{event.id:>7}", dim=True)
    place = typer.style(f"{one_line(event.stream, 60)}/{event.seq}", fg="cyan")
    what = typer.style(event.kind, bold=True)
    actor = typer.style(one_line(event.actor, 30), dim=True)
    return f"{head} {event.ts:%Y-%m-%d %H:%M:%S} {place} {what} {actor} {fields}"
