"""An evening of the crowd, in the terminal or with its page: what `coterie crowd demo` and `run` do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import typer

from coterie.app import App, Settings, load_settings, open_store
from coterie.base.clock import SystemClock
from coterie.base.errors import CoterieError
from coterie.base.home import Home
from coterie.base.ids import new_id
from coterie.base.text import one_line
from coterie.kernel import Bus
from coterie.llm.router import Models
from coterie.memory import Memory
from coterie.modes.crowd import Author, ChatMessage, ChatPost, Hall, OpenRoom, Speaking, StreamContext
from coterie.modes.crowd.session.feeds import spoken

TYPED = "-"


@dataclass(frozen=True)
class Plan:
    room: str
    stream: str
    speaking: Speaking
    speed: float = 1.0
    seconds: float | None = None
    port: int | None = None
    """Where the chat is served over WebSocket."""


def in_terminal(home: Home, plan: Plan) -> None:
    """Blocks until the stream is over, the time is up, or Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_in_terminal(home, plan))


def with_page(home: Home, plan: Plan, port: int) -> None:
    """The same with the page around it. Blocks until Ctrl-C, or the time is up."""
    from coterie.surfaces.web.listen import listen
    from coterie.surfaces.web.server import create_web
    from coterie.surfaces.web.settings import ServerSettings

    settings = Settings(models=load_settings(Home.locate()).settings.models, server=ServerSettings(port=port))
    with open_store(home) as store:
        house = App(home, settings, store)
        listen(create_web(house), settings.server, within=_shown(house, plan))


def as_gateway(home: Home, name: str, bus: str, seconds: float | None) -> None:
    """A room without an evening: its gateway, for whoever is on the broker. Blocks."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_as_gateway(home, name, bus, seconds))


async def _as_gateway(home: Home, name: str, bus: str, seconds: float | None) -> None:
    from coterie.modes.crowd.cluster import Broker, Intake
    from coterie.modes.crowd.gateway import Gateway
    from coterie.modes.crowd.personas import Roster
    from coterie.modes.crowd.session.replay import door_of

    roster = Roster([Home.locate().root / "configs"])
    rules = roster.room(name)
    with open_store(home) as store:
        gateway = Gateway(store, door_of(rules, roster.of(rules), roster.moderator(rules)), SystemClock())
        await gateway.recover()
        broker = await Broker.connect(bus)
        typer.echo(f"The gateway of {name} listens on {bus}.")
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await Intake(broker, gateway, store.bus).run()
        finally:
            await gateway.settle()
            await broker.close()


@asynccontextmanager
async def _shown(house: App, plan: Plan) -> AsyncIterator[None]:
    async with house.running():
        room = await house.crowd.start(plan.room, plan.stream, speaking=plan.speaking, speed=plan.speed)
        typer.echo(f"{room.rules.title}: {len(room.authored)} regulars. Look in at /crowd/{plan.room}")
        showing = asyncio.create_task(_show(house.store.bus, plan.room))
        if plan.seconds is not None:
            asyncio.get_running_loop().call_later(plan.seconds, os.kill, os.getpid(), signal.SIGINT)
        try:
            yield
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)


async def _in_terminal(home: Home, plan: Plan) -> None:
    clock, own = SystemClock(), Home.locate()
    with open_store(home, clock=clock) as store:
        models = Models(load_settings(own).settings.models, clock=clock, store=store)
        hall = Hall(store, Memory(store, clock=clock), models, clock, own.root / "configs")
        room = await hall.room(plan.room)
        beside = [asyncio.create_task(_show(store.bus, plan.room)), asyncio.create_task(_join_in(room))]
        try:
            if plan.stream == TYPED:
                await hall.play(plan.room, spoken(_typed(), plan.room, clock), TYPED, plan.speaking)
            else:
                await hall.start(plan.room, plan.stream, speaking=plan.speaking, speed=plan.speed)
            typer.echo(f"{room.rules.title}: {len(room.authored)} regulars. Type a line to join in; Ctrl-C leaves.")
            server = await _serve(room, plan.port) if plan.port is not None else None
            if room.evening is not None:
                await asyncio.wait([room.evening], timeout=plan.seconds)
            if room.trouble:
                typer.echo(room.trouble, err=True)
            if server is not None:
                server.close()
        finally:
            await hall.close()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await models.close()


async def _serve(room: OpenRoom, port: int) -> asyncio.Server:
    from coterie.surfaces.firehose.server import serve

    typer.echo(f"The chat is at ws://127.0.0.1:{port}/rooms/{room.rules.name}")
    return await serve({room.rules.name: room}, port=port)


async def _typed() -> AsyncIterator[str]:
    """Lines of standard input, read aside so that the room goes on."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line


async def _join_in(room: OpenRoom) -> None:
    if not sys.stdin.isatty():
        return
    async for line in _typed():
        if text := line.strip():
            author = Author(name="you", kind="human")
            try:
                await room.gateway.post(ChatPost(id=new_id(), room=room.rules.name, author=author, text=text))
            except CoterieError as refused:
                typer.echo(f"  ({refused})", err=True)


async def _show(bus: Bus, room: str) -> None:
    async with bus.subscribe(f"*.*.{room}", limit=10_000) as heard:
        async for news in heard:
            if isinstance(news.body, StreamContext):
                typer.secho(f"    ♪ {one_line(news.body.summary, 160)}", dim=True)
            elif isinstance(news.body, ChatMessage):
                _show_line(news.body)


def _show_line(message: ChatMessage) -> None:
    colour = message.author.colour or "#c0c0c0"
    rgb = (int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16))
    trace = message.trace
    took = ""
    if trace is not None and trace.heard_ms is not None and trace.decided_ms is not None:
        thought, wrote = trace.decided_ms - trace.heard_ms, message.ts - trace.decided_ms
        took = typer.style(f"  {trace.because} {thought / 1_000:.1f}+{wrote / 1_000:.1f} s", dim=True)
    name = typer.style(one_line(message.author.name, 40), fg=rgb, bold=True)
    typer.echo(f"{name}: {one_line(message.text, 500)}{took}")
