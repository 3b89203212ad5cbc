"""`coterie crowd`: a live chat of many personas around a stream."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.base.paths import Paths
from coterie.base.untrusted import one_line
from coterie.base.values import MAX_COUNT, MAX_DURATION_S
from coterie.cli.common import new_app, open_app

if TYPE_CHECKING:
    from coterie.modes.crowd import CrowdConfigs, LineSource

crowd_app = new_app("crowd")

RoomName = Annotated[str, typer.Option("--room", help="The room; `coterie crowd rooms` lists them.")]
Seconds = Annotated[float | None, typer.Option(help="Stop after this time.", min=1, max=MAX_DURATION_S)]
BusAddress = Annotated[
    str, typer.Option("--bus", help="The NATS server: nats://host:4222. By default crowd.bus of the settings.")
]
WorkerToken = Annotated[
    str,
    typer.Option(
        "--token",
        envvar="COTERIE_CROWD_TOKEN",
        help="From `coterie crowd invite --worker` on the gateway's machine; not needed with its data folder.",
    ),
]
Recogniser = Annotated[
    str,
    typer.Option(
        help="What transcribes speech: moonshine, or whisper:FOLDER with weights. By default crowd.recogniser."
    ),
]
Language = Annotated[
    str,
    typer.Option(
        help="The language of the speech for whisper, such as de. By default crowd.speech_language.", metavar="CODE"
    ),
]
Watch = Annotated[
    bool | None,
    typer.Option(
        "--watch/--no-watch", help="Watch the picture of a video too. By default crowd.watch of the settings."
    ),
]
NoModel = Annotated[bool, typer.Option("--no-model", help="Personas use the lines in their files instead of a model.")]


@crowd_app.command()
def rooms() -> None:
    """List the rooms and their personas."""
    configs = _configs()
    for name, room in configs.rooms().items():
        personas = configs.personas_in(room)
        typer.echo(f"{name}: {room.title}. {room.about}")
        typer.echo(f"  {len(personas)} personas: {', '.join(persona.name for persona in personas)}")


@crowd_app.command()
def demo(
    room: RoomName = "late-shift",
    speed: Annotated[float, typer.Option(help="The speed of the stream; 1 is real time.", min=0.1, max=1_000)] = 1.0,
    seconds: Annotated[float | None, typer.Option(help="Stop after this time.", min=1, max=MAX_DURATION_S)] = None,
    no_model: NoModel = False,
    port: Annotated[int, typer.Option(help="Port of the page; 0 picks a free one.", min=0, max=65535)] = 8000,
    terminal: Annotated[
        bool, typer.Option("--terminal", help="Show the chat in the terminal, without the page.")
    ] = False,
) -> None:
    """Play a sample stream to fifty personas and you. Nothing is kept, nothing leaves this machine."""
    import tempfile

    from coterie.cli.crowd_session import CrowdRun, run_in_terminal, run_with_page
    from coterie.modes.crowd import SAMPLE

    plan = CrowdRun(room, SAMPLE, _line_source(no_model), speed, seconds)
    with tempfile.TemporaryDirectory(prefix="coterie-demo-") as folder:
        paths = Paths.locate({"COTERIE_HOME": folder})
        if terminal:
            run_in_terminal(paths, plan)
        else:
            run_with_page(paths, plan, port)


@crowd_app.command()
def run(
    stream: Annotated[
        str,
        typer.Argument(
            help="A script (.toml), subtitles, a text file to follow, sound or video, an address, microphone, screen,"
            " screen+microphone, or - (typed)."
        ),
    ],
    room: RoomName = "late-shift",
    port: Annotated[
        int | None, typer.Option(help="Serve the chat as WebSocket on this port.", min=0, max=65535)
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after this time.", min=1, max=MAX_DURATION_S)] = None,
    no_model: NoModel = False,
    recogniser: Recogniser = "",
    language: Language = "",
    watch: Watch = None,
) -> None:
    """Run a live room. Its messages are kept in your data folder and can be replayed."""
    from coterie.cli.crowd_session import CrowdRun, run_in_terminal

    run_in_terminal(
        Paths.locate(), CrowdRun(room, stream, _line_source(no_model), 1.0, seconds, recogniser, language, watch, port)
    )


@crowd_app.command()
def gateway(
    bus: BusAddress = "",
    room: RoomName = "late-shift",
    seconds: Seconds = None,
    no_model: NoModel = False,
) -> None:
    """Run a room's gateway, over NATS JetStream. Its log is in your data folder. A second one waits to take over."""
    from coterie.cli.crowd_cluster import run_gateway

    run_gateway(room, bus, _line_source(no_model), seconds)


@crowd_app.command()
def personas(
    bus: BusAddress = "",
    room: RoomName = "late-shift",
    seconds: Seconds = None,
    no_model: NoModel = False,
    token: WorkerToken = "",
) -> None:
    """Run personas of a room whose gateway is elsewhere. Several processes divide them among themselves."""
    from coterie.cli.crowd_cluster import run_personas

    run_personas(room, bus, _line_source(no_model), token, seconds)


@crowd_app.command()
def context(
    stream: Annotated[str, typer.Argument(help="As of `coterie crowd run`: a file, an address, microphone or screen.")],
    bus: BusAddress = "",
    room: RoomName = "late-shift",
    speed: Annotated[float, typer.Option(help="The speed of a recording; 1 is real time.", min=0.1, max=1_000)] = 1.0,
    seconds: Seconds = None,
    recogniser: Recogniser = "",
    language: Language = "",
    watch: Watch = None,
) -> None:
    """Read a stream for a room whose gateway is elsewhere."""
    from coterie.cli.crowd_cluster import run_context

    run_context(room, bus, stream, speed, recogniser, language, watch, seconds)


@crowd_app.command()
def trends(bus: BusAddress = "", room: RoomName = "late-shift", seconds: Seconds = None) -> None:
    """Publish the trends of a room and the ticks at which its personas decide."""
    from coterie.cli.crowd_cluster import run_trends

    run_trends(room, bus, seconds)


@crowd_app.command()
def invite(
    name: Annotated[str, typer.Argument(help="The guest's name in the chat.")],
    room: RoomName = "late-shift",
    days: Annotated[float, typer.Option(help="How long the token is valid.", min=0.01, max=3_650)] = 30,
    worker: Annotated[
        bool, typer.Option("--worker", help="A token for `coterie crowd personas` on another machine instead.")
    ] = False,
) -> None:
    """Create a token with which a guest can post in a room under this name, over WebSocket or NATS."""
    from coterie.base.clock import SystemClock
    from coterie.characters import CharacterQueries
    from coterie.eventstore import LogReader
    from coterie.modes.crowd import ChatIdentity, ChatTokens, check_guest_name

    configs, paths = _configs(), Paths.locate()
    personas = configs.personas_in(configs.room(room))
    owner = ["you"]
    if paths.database.exists():
        with closing(LogReader(paths.database)) as reader:
            owner.append(CharacterQueries(reader).owner().name)
    guest = ChatIdentity(check_guest_name(name, [*owner, *(persona.name for persona in personas)]))
    if worker:
        guest = ChatIdentity(guest.name, "worker")
    token = ChatTokens.from_folder(paths.root, SystemClock()).issue(room, guest, days)
    posts = "run the personas of" if worker else "post in"
    typer.echo(f"{guest.name} can {posts} {room} for {days:g} days. Give this token to nobody else:")
    typer.echo(token)


@crowd_app.command("create-characters")
def create_characters(
    names: Annotated[list[str] | None, typer.Argument(help="Names of personas; all of them if none is given.")] = None,
) -> None:
    """Create characters from personas, for stories. They share the memory of the persona."""
    import asyncio

    from coterie.modes.crowd import character_from_persona

    configs = _configs()
    personas = [configs.persona(name) for name in names or configs.personas()]
    with open_app() as app:
        for persona in personas:
            if persona.character:
                typer.echo(f"{persona.name} is a character already.")
                continue
            character = asyncio.run(app.character_importer.author(character_from_persona(persona)))
            typer.echo(f"Created the character {character.name}.")


@crowd_app.command("add-character")
def add_character(
    name: Annotated[str, typer.Argument(help="The character, by name or id.")],
    room: RoomName = "late-shift",
) -> None:
    """Add a character to a room as a persona that shares its memory. Writes a persona file that you can edit."""
    from coterie.characters import CharacterQueries
    from coterie.eventstore import LogReader
    from coterie.modes.crowd import persona_from_character

    with closing(LogReader(Paths.locate().database)) as reader:
        character = CharacterQueries(reader).find(name)
    persona = _configs().add_member(room, persona_from_character(character.identity))
    typer.echo(f"Added {character.name} to {room} as {persona.name}, from the next session on.")


@crowd_app.command()
def replay(
    room: RoomName = "late-shift",
    change: Annotated[
        Path | None, typer.Option(help="A changed persona file (TOML), to compare with the recording.")
    ] = None,
    model: Annotated[
        bool, typer.Option("--model", help="With --change: the model of the role `crowd` writes the new lines.")
    ] = False,
    speed: Annotated[
        float, typer.Option(help="Print the replayed chat at this speed; 1 is real time, 0 prints none.", min=0)
    ] = 0,
    show: Annotated[int, typer.Option(help="How many lines of the difference to print.", min=0, max=MAX_COUNT)] = 20,
) -> None:
    """Replay the last session of a room: identically, or with one persona changed."""
    from contextlib import ExitStack

    from coterie.eventstore import LogReader
    from coterie.modes.crowd import BadRecording, Replay, last_session_events, model_lines, read_persona

    configs = _configs()
    changed = [read_persona(change)] if change is not None else []
    with closing(LogReader(Paths.locate().database)) as reader:
        events = last_session_events(reader, room)
    with ExitStack() as stack:
        lines = None
        if model and changed:
            from coterie.llm import Models
            from coterie.settings import load_settings

            lines = stack.enter_context(model_lines(Models(load_settings(Paths.locate()).settings.models), room))
        by_name = {persona.name: persona for persona in changed}
        result = Replay(events, configs.moderator(configs.room(room)), changed=by_name, lines=lines).run()
    if speed:
        _print_at_speed([(message.ts, message.author.name, message.text) for message in result.messages], speed)
    if not changed:
        if not result.identical:
            raise BadRecording(
                f"The replay of {room} differs: {result.changed_decisions} decisions,"
                f" {len(result.only_replayed())} lines.",
                "It was recorded by another version of Coterie, or with other moderation lists.",
            )
        typer.echo(f"Identical: {len(result.messages)} messages, {result.decisions} ticks, SHA-256 {result.hash}")
        return
    typer.echo(
        f"{len(result.only_recorded())} lines only in the recording, {len(result.only_replayed())} only in the replay."
    )
    for sign, messages in (("-", result.only_recorded()), ("+", result.only_replayed())):
        for message in messages[:show]:
            typer.echo(f"{sign} {one_line(message.author.name, 40)}: {one_line(message.text, 200)}")


def _print_at_speed(messages: list[tuple[int, str, str]], speed: float) -> None:
    import time

    for number, (at_ms, name, text) in enumerate(messages):
        before_ms = messages[number - 1][0] if number else at_ms
        time.sleep(max(0.0, (at_ms - before_ms) / 1_000 / speed))
        typer.echo(f"{one_line(name, 40)}: {one_line(text, 500)}")


@crowd_app.command()
def decisions(
    persona: Annotated[str, typer.Argument(help="The name of a persona.")],
    room: RoomName = "late-shift",
    last: Annotated[int, typer.Option(help="How many decisions.", min=1, max=MAX_COUNT)] = 5,
) -> None:
    """Show the last decisions of a persona to send a line, with their probabilities."""
    from coterie.eventstore import LogReader
    from coterie.modes.crowd import CrowdTicked, last_session_events

    with closing(LogReader(Paths.locate().database)) as reader:
        events = last_session_events(reader, room)
    decided = [
        (event.tick, decision)
        for event in events
        if isinstance(event, CrowdTicked)
        for decision in event.spoke
        if decision.persona == persona
    ]
    for tick, decision in decided[-last:]:
        parts = " × ".join(f"{name} {value:g}" for name, value in decision.parts.items())
        typer.echo(f"tick {tick}: {decision.because}, p {decision.p:.3f} = {parts}; rolled {decision.roll:.3f}")
    if not decided:
        typer.echo(f"{persona} sent no line in the last session.")


def _configs() -> CrowdConfigs:
    from coterie.modes.crowd import CrowdConfigs

    return CrowdConfigs([Paths.locate().root / "configs"])


def _line_source(no_model: bool) -> LineSource:
    return "phrasebook" if no_model else "model"
