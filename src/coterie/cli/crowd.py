"""`coterie crowd`: a room full of personas around a stream, in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli._app import new_app

if TYPE_CHECKING:
    from coterie.modes.crowd import LineSource
    from coterie.modes.crowd.settings import CrowdConfigs

app = new_app("A room full of personas around a stream: demo, run, replay.")

RoomName = Annotated[str, typer.Option("--room", help="Which room; `coterie crowd rooms` lists them.")]
NoModel = Annotated[bool, typer.Option("--no-model", help="Personas speak from their own phrasebooks.")]


@app.command()
def rooms() -> None:
    """List rooms and who is in them."""
    roster = _roster()
    for name, room in roster.rooms().items():
        everybody = roster.personas_in(room)
        typer.echo(f"{name}: {room.title}. {room.about}")
        typer.echo(f"  {len(everybody)} regulars: {', '.join(persona.name for persona in everybody)}")


@app.command()
def demo(
    room: RoomName = "late-shift",
    speed: Annotated[float, typer.Option(help="How much faster than life the stream goes.", min=0.1)] = 1.0,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long.", min=1)] = None,
    no_model: NoModel = False,
    port: Annotated[int, typer.Option(help="Of the page; 0 picks a free one.", min=0, max=65535)] = 8000,
    terminal: Annotated[bool, typer.Option("--terminal", help="No page: the chat in the terminal alone.")] = False,
) -> None:
    """A stream that is spoken and listened to, fifty regulars and you. Nothing is kept, nothing leaves this machine."""
    import tempfile

    from coterie.base.paths import Paths
    from coterie.cli._crowd_session import CrowdRun, run_in_terminal, run_with_page
    from coterie.modes.crowd import SAMPLE

    plan = CrowdRun(room, SAMPLE, _speaking(no_model), speed, seconds)
    with tempfile.TemporaryDirectory(prefix="coterie-demo-") as folder:
        home = Paths.locate({"COTERIE_HOME": folder})
        if terminal:
            run_in_terminal(home, plan)
        else:
            run_with_page(home, plan, port)


@app.command()
def run(
    stream: Annotated[
        str,
        typer.Argument(help="A script (.toml), subtitles, a text file to follow, sound, an address, or - (typed)."),
    ],
    room: RoomName = "late-shift",
    port: Annotated[int | None, typer.Option(help="Serve the chat over WebSocket on this port.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long.", min=1)] = None,
    no_model: NoModel = False,
) -> None:
    """A live room in your data folder: what is said is kept, and can be replayed."""
    from coterie.base.paths import Paths
    from coterie.cli._crowd_session import CrowdRun, run_in_terminal

    run_in_terminal(Paths.locate(), CrowdRun(room, stream, _speaking(no_model), seconds=seconds, port=port))


@app.command()
def gateway(
    bus: Annotated[str, typer.Option(help="The NATS server: nats://host:4222.")],
    room: RoomName = "late-shift",
    seconds: Annotated[float | None, typer.Option(help="Stop after so long.", min=1)] = None,
) -> None:
    """A room's gateway for senders and readers on other machines, over NATS JetStream."""
    from coterie.base.paths import Paths
    from coterie.cli._crowd_session import run_gateway

    run_gateway(Paths.locate(), room, bus, seconds)


@app.command()
def meet(
    names: Annotated[list[str] | None, typer.Argument(help="Which personas; all of them if none is named.")] = None,
) -> None:
    """Take personas into the cast, where they can be met in stories and remember what they lived through here."""
    import asyncio

    from coterie.app import App, load_settings, open_store
    from coterie.base.paths import Paths
    from coterie.modes.crowd import character_from_persona

    home, roster = Paths.locate(), _roster()
    everybody = roster.personas()
    wanted = [roster.persona(name) for name in names or everybody]
    with open_store(home) as store:
        house = App(home, load_settings(home).settings, store)
        for persona in wanted:
            if persona.character:
                typer.echo(f"{persona.name} came from the cast.")
                continue
            bot = asyncio.run(house.character_importer.author(character_from_persona(persona)))
            typer.echo(f"{bot.name} is in the cast.")


@app.command()
def seat(
    name: Annotated[str, typer.Argument(help="Who of the cast, by name or id.")],
    room: RoomName = "late-shift",
) -> None:
    """Let somebody of the cast sit in a room, with what they remember; a file of theirs is written, to be edited."""
    from coterie.base.paths import Paths
    from coterie.characters.service import CharacterQueries
    from coterie.eventstore import LogReader
    from coterie.modes.crowd.personas import persona_from_character

    reader = LogReader(Paths.locate().database)
    try:
        bot = CharacterQueries(reader).find(name)
    finally:
        reader.close()
    persona = _roster().add_member(room, persona_from_character(bot.identity))
    typer.echo(f"{bot.name} sits in {room} as {persona.name}, from the next evening on.")


@app.command()
def replay(
    room: RoomName = "late-shift",
    change: Annotated[Path | None, typer.Option(help="A persona's TOML file, as they might have been.")] = None,
    show: Annotated[int, typer.Option(help="How many lines of the difference to show.")] = 20,
) -> None:
    """Play the room's last session again: to the byte, or with one persona changed."""
    from coterie.base.config import load_config
    from coterie.base.paths import Paths
    from coterie.base.text import one_line
    from coterie.eventstore import LogReader
    from coterie.modes.crowd.errors import BadRecording
    from coterie.modes.crowd.personas import Persona
    from coterie.modes.crowd.session.replay import Replay, last_session_events

    roster = _roster()
    changed = [load_config(Persona, file=change).settings] if change is not None else []
    reader = LogReader(Paths.locate().database)
    try:
        events = last_session_events(reader, room)
    finally:
        reader.close()
    result = Replay(events, roster.moderator(roster.room(room)), changed={each.name: each for each in changed}).run()
    if not changed:
        if not result.identical:
            raise BadRecording(
                f"The replay of {room} differs: {result.changed_decisions} decisions,"
                f" {len(result.only_replayed())} lines.",
                "It was recorded by another version of Coterie, or with other moderation lists.",
            )
        typer.echo(f"Identical: {len(result.messages)} messages, {result.decisions} moments, SHA-256 {result.hash}")
        return
    typer.echo(
        f"{len(result.only_recorded())} lines that were said would not be; {len(result.only_replayed())} others would."
    )
    for sign, messages in (("-", result.only_recorded()), ("+", result.only_replayed())):
        for message in messages[:show]:
            typer.echo(f"{sign} {one_line(message.author.name, 40)}: {one_line(message.text, 200)}")


@app.command()
def why(
    persona: Annotated[str, typer.Argument(help="Whose decisions.")],
    room: RoomName = "late-shift",
    last: Annotated[int, typer.Option(help="How many.", min=1)] = 5,
) -> None:
    """Why somebody spoke: the numbers of their last decisions."""
    from coterie.base.paths import Paths
    from coterie.eventstore import LogReader
    from coterie.modes.crowd.events import CrowdTicked
    from coterie.modes.crowd.session.replay import last_session_events

    reader = LogReader(Paths.locate().database)
    try:
        events = last_session_events(reader, room)
    finally:
        reader.close()
    spoken = [
        (event.tick, decided)
        for event in events
        if isinstance(event, CrowdTicked)
        for decided in event.spoke
        if decided.persona == persona
    ]
    for tick, decided in spoken[-last:]:
        parts = " × ".join(f"{name} {value:g}" for name, value in decided.parts.items())
        typer.echo(f"tick {tick}: {decided.because}, p {decided.p:.3f} = {parts}; rolled {decided.roll:.3f}")
    if not spoken:
        typer.echo(f"{persona} has not spoken in the last session.")


def _roster() -> CrowdConfigs:
    from coterie.base.paths import Paths
    from coterie.modes.crowd.settings import CrowdConfigs

    return CrowdConfigs([Paths.locate().root / "configs"])


def _speaking(no_model: bool) -> LineSource:
    return "phrasebook" if no_model else "model"
