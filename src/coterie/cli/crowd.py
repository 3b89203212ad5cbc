"""`coterie crowd`: a room full of personas around a stream, in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli._app import new_app

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator

    from coterie.base.home import Home
    from coterie.kernel import Bus, Store
    from coterie.modes.crowd.gateway import Gateway
    from coterie.modes.crowd.personas import Roster
    from coterie.modes.crowd.protocol import ChatMessage, StreamContext
    from coterie.modes.crowd.session.script import Script

app = new_app("A room full of personas around a stream: demo, run, replay.")

_WAKING_S = 120
RoomName = Annotated[str, typer.Option("--room", help="Which room; `coterie crowd rooms` lists them.")]
NoModel = Annotated[bool, typer.Option("--no-model", help="Personas speak from their own phrasebooks.")]


@app.command()
def rooms() -> None:
    """List rooms and who is in them."""
    roster = _roster()
    for name, room in roster.rooms().items():
        everybody = roster.of(room)
        typer.echo(f"{name}: {room.title}. {room.about}")
        typer.echo(f"  {len(everybody)} regulars: {', '.join(persona.name for persona in everybody)}")


@app.command()
def demo(
    room: RoomName = "late-shift",
    speed: Annotated[float, typer.Option(help="How much faster than life the stream goes.", min=0.1)] = 1.0,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long.", min=1)] = None,
    no_model: NoModel = False,
) -> None:
    """A scripted stream, fifty regulars and you: type to join in. Nothing is kept, nothing leaves this machine."""
    import tempfile

    from coterie.base.home import Home
    from coterie.modes.crowd.configs import SHIPPED
    from coterie.modes.crowd.session.script import Script

    script = Script.read(SHIPPED / "streams" / "left-door.toml")
    with tempfile.TemporaryDirectory(prefix="coterie-demo-") as folder:
        _play(
            Home.locate({"COTERIE_HOME": folder}),
            room,
            script,
            speed=speed,
            seconds=seconds,
            no_model=no_model,
            port=None,
        )


@app.command()
def run(
    stream: Annotated[
        str, typer.Argument(help="A script (.toml), subtitles (.srt, .vtt), a text file to follow, or -.")
    ],
    room: RoomName = "late-shift",
    port: Annotated[int | None, typer.Option(help="Serve the chat over WebSocket on this port.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long.", min=1)] = None,
    no_model: NoModel = False,
) -> None:
    """A live room in your data folder: what is said is kept, and can be replayed."""
    from coterie.base.home import Home

    _play(Home.locate(), room, stream, speed=1.0, seconds=seconds, no_model=no_model, port=port)


@app.command()
def replay(
    room: RoomName = "late-shift",
    change: Annotated[Path | None, typer.Option(help="A persona's TOML file, as they might have been.")] = None,
    show: Annotated[int, typer.Option(help="How many lines of the difference to show.")] = 20,
) -> None:
    """Play the room's last session again: to the byte, or with one persona changed."""
    from coterie.base.config import load
    from coterie.base.home import Home
    from coterie.base.text import one_line
    from coterie.kernel import LogReader
    from coterie.modes.crowd.errors import BadRecording
    from coterie.modes.crowd.personas import Persona
    from coterie.modes.crowd.session.recording import last_session
    from coterie.modes.crowd.session.replay import Replay

    roster = _roster()
    changed = [load(Persona, file=change).settings] if change is not None else []
    reader = LogReader(Home.locate().database)
    try:
        events = last_session(reader, room)
    finally:
        reader.close()
    result = Replay(events, roster.moderator(roster.room(room)), changed={each.name: each for each in changed}).run()
    if not changed:
        if not result.identical:
            raise BadRecording(
                f"The replay of {room} differs: {result.changed_decisions} decisions, {len(result.only_now())} lines.",
                "It was recorded by another version of Coterie, or with other moderation lists.",
            )
        typer.echo(f"Identical: {len(result.messages)} messages, {result.decisions} moments, SHA-256 {result.hash}")
        return
    typer.echo(f"{len(result.only_then())} lines that were said would not be; {len(result.only_now())} others would.")
    for sign, messages in (("-", result.only_then()), ("+", result.only_now())):
        for message in messages[:show]:
            typer.echo(f"{sign} {one_line(message.author.name, 40)}: {one_line(message.text, 200)}")


@app.command()
def why(
    persona: Annotated[str, typer.Argument(help="Whose decisions.")],
    room: RoomName = "late-shift",
    last: Annotated[int, typer.Option(help="How many.", min=1)] = 5,
) -> None:
    """Why somebody spoke: the numbers of their last decisions."""
    from coterie.base.home import Home
    from coterie.kernel import LogReader
    from coterie.modes.crowd.events import CrowdTicked
    from coterie.modes.crowd.session.recording import last_session

    reader = LogReader(Home.locate().database)
    try:
        events = last_session(reader, room)
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


def _roster() -> Roster:
    from coterie.base.home import Home
    from coterie.modes.crowd.personas import Roster

    return Roster([Home.locate().root / "configs"])


def _play(
    home: Home,
    room: str,
    stream: Script | str,
    *,
    speed: float,
    seconds: float | None,
    no_model: bool,
    port: int | None,
) -> None:
    import asyncio
    import contextlib

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_evening(home, room, stream, speed, seconds, no_model, port))


async def _evening(
    home: Home, name: str, stream: Script | str, speed: float, seconds: float | None, no_model: bool, port: int | None
) -> None:
    import asyncio
    import contextlib

    from coterie.app import load_settings, open_store
    from coterie.base.clock import SystemClock
    from coterie.base.home import Home
    from coterie.llm.messages import Prompt
    from coterie.llm.roles import Role
    from coterie.llm.router import Models
    from coterie.memory import Memory
    from coterie.modes.crowd.drift import DriftBook, Happened
    from coterie.modes.crowd.gateway import Gateway
    from coterie.modes.crowd.memories import Keeper
    from coterie.modes.crowd.session.live import Live, Voice
    from coterie.modes.crowd.session.replay import door_of
    from coterie.modes.crowd.voice import Manners
    from coterie.modes.crowd.voice.model_voice import ModelVoice, PhrasebookVoice

    clock, roster = SystemClock(), _roster()
    room = roster.room(name)
    with open_store(home, clock=clock) as store:
        authored, drift = roster.of(room), DriftBook(store, room.name)
        personas = drift.drifted(authored)
        gateway = Gateway(store, door_of(room, personas, roster.moderator(room)), clock)
        await gateway.recover()
        models = None if no_model else Models(load_settings(Home.locate()).settings.models, clock=clock, store=store)

        if models is not None:
            typer.echo("Waking the model …", err=True)
            await models.ask(Role.CROWD, Prompt.of("Say hi.", max_tokens=1), deadline_s=_WAKING_S)

        def voice(manners: Manners) -> Voice:
            if models is None:
                return PhrasebookVoice(manners)
            return ModelVoice(models, manners, room.name, stand_in=room.tempo.stand_in)

        keeper = Keeper(Memory(store, clock=clock), room.name, [persona.name for persona in personas])
        live = Live(room, personas, gateway, store.bus, voice, seed=gateway.now_ms(), keeper=keeper)
        typer.echo(f"{room.title}: {len(personas)} regulars. Type a line to join in; Ctrl-C leaves.")
        beside = [asyncio.create_task(_show(store.bus, room.name)), asyncio.create_task(_join_in(gateway))]
        server = await _serve(gateway, store, port, beside) if port is not None else None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await live.run(_contexts(stream, room.name, speed), linger_s=15 / speed)
            for persona in authored:
                await drift.look_back(persona, Happened.of(persona.name, live.evening.hearing.recent))
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            if server is not None:
                server.close()
            await gateway.settle()
            if models is not None:
                await models.close()


async def _serve(gateway: Gateway, store: Store, port: int, beside: list[asyncio.Task[None]]) -> asyncio.Server:
    import asyncio

    from coterie.modes.crowd.gateway import Room
    from coterie.surfaces.firehose.server import serve

    room = Room(gateway, store.bus)
    beside.append(asyncio.create_task(room.run()))
    typer.echo(f"The chat is at ws://127.0.0.1:{port}/rooms/{gateway.door.room}")
    return await serve({gateway.door.room: room}, port=port)


def _contexts(stream: Script | str, room: str, speed: float) -> AsyncIterator[StreamContext]:
    from coterie.base.clock import SystemClock
    from coterie.modes.crowd.errors import BadRoster
    from coterie.modes.crowd.session.feeds import followed, scripted, spoken, subtitles
    from coterie.modes.crowd.session.script import Script

    clock = SystemClock()
    if isinstance(stream, Script):
        return scripted(stream, room, clock, speed=speed)
    if stream == "-":
        return spoken(_typed(), room, clock)
    file = Path(stream)
    if not file.is_file():
        raise BadRoster(
            f"There is no file {file}.", "Name a script, subtitles or a text file; `-` reads what is typed."
        )
    if file.suffix == ".toml":
        return scripted(Script.read(file), room, clock, speed=speed)
    if file.suffix in (".srt", ".vtt"):
        return scripted(subtitles(file), room, clock, speed=speed)
    return spoken(followed(file), room, clock)


async def _typed() -> AsyncIterator[str]:
    """Lines of standard input, read aside so that the room goes on."""
    import asyncio
    import sys

    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line


async def _join_in(gateway: Gateway) -> None:
    import sys

    from coterie.base.ids import new_id
    from coterie.modes.crowd.errors import Refused
    from coterie.modes.crowd.protocol import Author, ChatPost

    if not sys.stdin.isatty():
        return
    async for line in _typed():
        if text := line.strip():
            author = Author(name="you", kind="human")
            try:
                await gateway.post(ChatPost(id=new_id(), room=gateway.door.room, author=author, text=text))
            except Refused as refused:
                typer.echo(f"  ({refused})", err=True)


async def _show(bus: Bus, room: str) -> None:
    from coterie.base.text import one_line
    from coterie.modes.crowd.protocol import ChatMessage, StreamContext

    async with bus.subscribe(f"*.*.{room}", limit=10_000) as heard:
        async for news in heard:
            if isinstance(news.body, StreamContext):
                typer.secho(f"    ♪ {one_line(news.body.summary, 160)}", dim=True)
            elif isinstance(news.body, ChatMessage):
                _show_line(news.body)


def _show_line(message: ChatMessage) -> None:
    from coterie.base.text import one_line

    colour = message.author.colour or "#c0c0c0"
    rgb = (int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16))
    trace = message.trace
    took = ""
    if trace is not None and trace.heard_ms is not None and trace.decided_ms is not None:
        thought, wrote = trace.decided_ms - trace.heard_ms, message.ts - trace.decided_ms
        took = typer.style(f"  {trace.because} {thought / 1_000:.1f}+{wrote / 1_000:.1f} s", dim=True)
    name = typer.style(one_line(message.author.name, 40), fg=rgb, bold=True)
    typer.echo(f"{name}: {one_line(message.text, 500)}{took}")
