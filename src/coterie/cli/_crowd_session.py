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
from coterie.base.ids import new_id
from coterie.base.paths import Paths
from coterie.base.text import one_line
from coterie.eventstore import Bus
from coterie.llm.router import Models
from coterie.memory import Memory
from coterie.modes.crowd import ChatAuthor, ChatMessage, ChatPost, CrowdRoom, CrowdService, LineSource, StreamContext
from coterie.modes.crowd.session.stream_sources import contexts_from_lines

TYPED = "-"


@dataclass(frozen=True)
class CrowdRun:
    room: str
    stream: str
    text_source: LineSource
    speed: float = 1.0
    seconds: float | None = None
    port: int | None = None
    """Where the chat is served over WebSocket."""


def run_in_terminal(home: Paths, plan: CrowdRun) -> None:
    """Blocks until the stream is over, the time is up, or Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_in_terminal(home, plan))


def run_with_page(home: Paths, plan: CrowdRun, port: int) -> None:
    """The same with the page around it. Blocks until Ctrl-C, or the time is up."""
    from coterie.surfaces.web.server import create_web, run_server
    from coterie.surfaces.web.server_settings import ServerSettings

    settings = Settings(models=load_settings(Paths.locate()).settings.models, server=ServerSettings(port=port))
    with open_store(home) as store:
        house = App(home, settings, store)
        run_server(create_web(house), settings.server, within=_shown(house, plan))


def run_gateway(home: Paths, name: str, bus: str, seconds: float | None) -> None:
    """A room without an evening: its gateway, for whoever is on the broker. Blocks."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_as_gateway(home, name, bus, seconds))


async def _as_gateway(home: Paths, name: str, bus: str, seconds: float | None) -> None:
    from coterie.modes.crowd.cluster import Broker, ClusterGateway
    from coterie.modes.crowd.gateway import Gateway
    from coterie.modes.crowd.session.replay import admission_for
    from coterie.modes.crowd.settings import CrowdConfigs

    roster = CrowdConfigs([Paths.locate().root / "configs"])
    rules = roster.room(name)
    with open_store(home) as store:
        gateway = Gateway(
            store, admission_for(rules, roster.personas_in(rules), roster.moderator(rules)), SystemClock()
        )
        await gateway.recover()
        broker = await Broker.connect(bus)
        typer.echo(f"The gateway of {name} listens on {bus}.")
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await ClusterGateway(broker, gateway, store.bus).run()
        finally:
            await gateway.flush()
            await broker.close()


@asynccontextmanager
async def _shown(house: App, plan: CrowdRun) -> AsyncIterator[None]:
    async with house.running():
        room = await house.crowd.start(plan.room, plan.stream, line_source=plan.text_source, speed=plan.speed)
        typer.echo(f"{room.rules.title}: {len(room.authored_personas)} regulars. Look in at /crowd/{plan.room}")
        showing = asyncio.create_task(_show(house.store.bus, plan.room))
        if plan.seconds is not None:
            asyncio.get_running_loop().call_later(plan.seconds, os.kill, os.getpid(), signal.SIGINT)
        try:
            yield
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)


async def _in_terminal(home: Paths, plan: CrowdRun) -> None:
    clock, own = SystemClock(), Paths.locate()
    with open_store(home, clock=clock) as store:
        models = Models(load_settings(own).settings.models, clock=clock, store=store)
        hall = CrowdService(store, Memory(store, clock=clock), models, clock, own.root / "configs")
        room = await hall.room(plan.room)
        beside = [asyncio.create_task(_show(store.bus, plan.room)), asyncio.create_task(_join_in(room))]
        try:
            if plan.stream == TYPED:
                await hall.start_with_contexts(
                    plan.room, contexts_from_lines(_typed(), plan.room, clock), TYPED, plan.text_source
                )
            else:
                await hall.start(plan.room, plan.stream, line_source=plan.text_source, speed=plan.speed)
            typer.echo(
                f"{room.rules.title}: {len(room.authored_personas)} regulars. Type a line to join in; Ctrl-C leaves."
            )
            server = await _serve(room, plan.port) if plan.port is not None else None
            if room.session_task is not None:
                await asyncio.wait([room.session_task], timeout=plan.seconds)
            if room.problem:
                typer.echo(room.problem, err=True)
            if server is not None:
                server.close()
        finally:
            await hall.close()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await models.close()


async def _serve(room: CrowdRoom, port: int) -> asyncio.Server:
    from coterie.surfaces.websocket.server import serve

    typer.echo(f"The chat is at ws://127.0.0.1:{port}/rooms/{room.rules.name}")
    return await serve({room.rules.name: room}, port=port)


async def _typed() -> AsyncIterator[str]:
    """Lines of standard input, read aside so that the room goes on."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line


async def _join_in(room: CrowdRoom) -> None:
    if not sys.stdin.isatty():
        return
    async for line in _typed():
        if text := line.strip():
            author = ChatAuthor(name="you", kind="human")
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
