"""Running a crowd room for `coterie crowd demo` and `run`, in the terminal or with the web page."""

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

from coterie.app import App, open_store
from coterie.base.clock import SystemClock
from coterie.base.errors import CoterieError
from coterie.base.ids import new_id
from coterie.base.paths import Paths
from coterie.base.supervisor import run_once
from coterie.base.untrusted import one_line
from coterie.eventstore import Bus
from coterie.llm import Models
from coterie.memory import Memory
from coterie.modes.crowd import (
    ChatIdentity,
    ChatMessage,
    ChatTokens,
    CrowdRoom,
    CrowdService,
    CrowdSettings,
    LineSource,
    SenderPost,
    StreamContext,
    contexts_from_lines,
)
from coterie.settings import Settings, load_settings

_YOU = ChatIdentity("you", "owner")
TYPED = "-"
"""The stream that means lines of standard input."""


@dataclass(frozen=True)
class CrowdRun:
    room: str
    stream: str
    text_source: LineSource
    speed: float = 1.0
    seconds: float | None = None
    recogniser: str = ""
    """What transcribes speech; empty for the setting."""
    language: str = ""
    """The language of the speech; empty for the setting."""
    watch: bool | None = None
    """Whether a video's picture is watched; None for the setting."""
    port: int | None = None
    """The port on which the chat is served over WebSocket, if any."""


def run_in_terminal(paths: Paths, plan: CrowdRun) -> None:
    """Block until the stream ends, the time is up, or Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_terminal_session(paths, plan))


def run_with_page(paths: Paths, plan: CrowdRun, port: int) -> None:
    """Run a room with the web page. Block until Ctrl-C, or the time is up."""
    from coterie.surfaces.web import ServerSettings, create_web, run_server

    settings = Settings(models=load_settings(Paths.locate()).settings.models, server=ServerSettings(port=port))
    with open_store(paths) as store:
        app = App(paths, settings, store)
        run_server(create_web(app), settings.server, within=_with_session(app, plan))


@asynccontextmanager
async def _with_session(app: App, plan: CrowdRun) -> AsyncIterator[None]:
    async with app.running():
        room = await app.crowd.start(plan.room, plan.stream, line_source=plan.text_source, speed=plan.speed)
        typer.echo(f"{room.rules.title}: {len(room.authored_personas)} personas. Open /crowd/{plan.room}")
        printer = run_once("messages in the terminal", _print_messages(app.store.bus, plan.room))
        if plan.seconds is not None:
            asyncio.get_running_loop().call_later(plan.seconds, os.kill, os.getpid(), signal.SIGINT)
        try:
            yield
        finally:
            printer.cancel()
            await asyncio.gather(printer, return_exceptions=True)


async def _terminal_session(paths: Paths, plan: CrowdRun) -> None:
    clock, configured = SystemClock(), Paths.locate()
    with open_store(paths, clock=clock) as store:
        settings = load_settings(configured).settings
        models = Models(settings.models, clock=clock, store=store)
        memory = Memory(store, clock=clock)
        reading = _stream_settings(settings.crowd, plan)
        crowd = CrowdService(store, memory, models, clock, configured.root / "configs", reading)
        room = await crowd.room(plan.room)
        tasks = [
            run_once("messages in the terminal", _print_messages(store.bus, plan.room)),
            run_once("lines typed in the terminal", _send_typed_lines(room)),
        ]
        try:
            if plan.stream == TYPED:
                await crowd.start_with_contexts(
                    plan.room, lambda _: contexts_from_lines(_typed_lines(), plan.room, clock), TYPED, plan.text_source
                )
            else:
                await crowd.start(plan.room, plan.stream, line_source=plan.text_source, speed=plan.speed)
            typer.echo(
                f"{room.rules.title}: {len(room.authored_personas)} personas. Type a line to send it; Ctrl-C leaves."
            )
            server = await _serve(room, plan.port) if plan.port is not None else None
            if room.session_task is not None:
                await room.session_task.wait(plan.seconds)
            if room.problem:
                typer.echo(room.problem, err=True)
            if server is not None:
                server.close()
        finally:
            await crowd.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await models.close()


def _stream_settings(settings: CrowdSettings, plan: CrowdRun) -> CrowdSettings:
    """The settings with what the command line says about reading the stream."""
    chosen: dict[str, object] = {"recogniser": plan.recogniser} if plan.recogniser else {}
    if plan.language:
        chosen["speech_language"] = plan.language
    if plan.watch is not None:
        chosen["watch"] = plan.watch
    return settings.model_copy(update=chosen)


async def _serve(room: CrowdRoom, port: int) -> asyncio.Server:
    from coterie.surfaces.websocket import serve

    name = room.rules.name
    tokens = ChatTokens.from_folder(Paths.locate().root, SystemClock())
    own = tokens.issue(name, _YOU)
    typer.echo(f"The chat is at ws://127.0.0.1:{port}/rooms/{name}")
    typer.echo(f"To post as yourself: ws://127.0.0.1:{port}/rooms/{name}?token={own}")
    typer.echo(f"For a guest: coterie crowd invite NAME --room {name}")
    return await serve({name: room}, port=port, tokens=tokens)


async def _typed_lines() -> AsyncIterator[str]:
    """Lines of standard input, read in a thread so that the room is not blocked."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line


async def _send_typed_lines(room: CrowdRoom) -> None:
    if not sys.stdin.isatty():
        return
    async for line in _typed_lines():
        if text := line.strip():
            try:
                await room.gateway.post_from(_YOU, SenderPost(id=new_id(), room=room.rules.name, text=text))
            except CoterieError as error:
                typer.echo(f"  ({error})", err=True)


async def _print_messages(bus: Bus, room: str) -> None:
    async with bus.subscribe(f"*.*.{room}", limit=10_000) as messages:
        async for message in messages:
            if isinstance(message.body, StreamContext):
                _print_context(message.body)
            elif isinstance(message.body, ChatMessage):
                _print_message(message.body)


def _print_context(context: StreamContext) -> None:
    if context.latest:
        typer.secho(f"    ♪ {one_line(context.latest, 160)}", dim=True)
    elif context.vision is not None and (shown := " · ".join(context.vision.on_screen_text) or context.vision.caption):
        typer.secho(f"    ▣ {one_line(shown, 160)}", dim=True)


def _print_message(message: ChatMessage) -> None:
    colour = message.author.colour or "#c0c0c0"
    rgb = (int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16))
    trace = message.trace
    timing = ""
    if trace is not None and trace.heard_ms is not None and trace.decided_ms is not None:
        deciding, writing = trace.decided_ms - trace.heard_ms, message.ts - trace.decided_ms
        timing = typer.style(f"  {trace.because} {deciding / 1_000:.1f}+{writing / 1_000:.1f} s", dim=True)
    name = typer.style(one_line(message.author.name, 40), fg=rgb, bold=True)
    typer.echo(f"{name}: {one_line(message.text, 500)}{timing}")
