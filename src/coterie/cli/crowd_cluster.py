"""Runs one part of a crowd room over a message broker: its gateway, personas, stream context or trends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import typer

from coterie.base.clock import SystemClock
from coterie.base.errors import InUse
from coterie.base.paths import Paths
from coterie.base.supervisor import Supervisor
from coterie.modes.crowd import (
    Broker,
    ChatIdentity,
    ChatTokens,
    ContextService,
    CrowdCluster,
    CrowdService,
    IdentityRefused,
    LineSource,
    NoBroker,
    PersonaWorker,
    StreamContext,
    TrendsService,
    create_line_writer,
    model_captioner,
    open_stream,
)

if TYPE_CHECKING:
    from coterie.eventstore import Store
    from coterie.llm import Models

_LOCK_RETRY_S = 0.3


def run_gateway(room: str, bus: str, line_source: LineSource, seconds: float | None) -> None:
    """Run the gateway of a room and its log. Blocks."""
    _run(_gateway(room, _address(bus), line_source), seconds)


def run_personas(room: str, bus: str, line_source: LineSource, token: str, seconds: float | None) -> None:
    """Run personas of a room. Blocks."""
    _run(_personas(room, _address(bus), line_source, token), seconds)


def run_context(
    room: str,
    bus: str,
    stream: str,
    speed: float,
    recogniser: str,
    language: str,
    watch: bool | None,
    seconds: float | None,
) -> None:
    """Read a stream for a room. Blocks until it ends. What is empty is as in the settings."""
    _run(_context(room, _address(bus), stream, speed, recogniser, language, watch), seconds)


def run_trends(room: str, bus: str, seconds: float | None) -> None:
    """Publish trends of a room. Blocks."""
    _run(_trends(room, _address(bus)), seconds)


def _address(bus: str) -> str:
    if bus:
        return bus
    from coterie.settings import load_settings

    if address := load_settings(Paths.locate()).settings.crowd.bus:
        return address
    raise NoBroker("There is no NATS server.", "Give one with --bus, or in the settings as crowd.bus.")


def _run(work: Awaitable[None], seconds: float | None) -> None:
    async def until_stopped() -> None:
        # A session that is stopped ends; only a killed one goes on.
        if (task := asyncio.current_task()) is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with contextlib.suppress(asyncio.CancelledError, TimeoutError):
            async with asyncio.timeout(seconds):
                await work

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(until_stopped())


@asynccontextmanager
async def _connected(address: str) -> AsyncIterator[Broker]:
    broker = await Broker.connect(address)
    try:
        yield broker
    finally:
        await broker.close()


async def _gateway(room: str, address: str, line_source: LineSource) -> None:
    from coterie.llm import Models
    from coterie.memory import Memory
    from coterie.settings import load_settings

    paths, clock = Paths.locate(), SystemClock()
    settings = load_settings(paths).settings
    supervisor = Supervisor(clock)
    async with _store(paths, clock) as store:
        models = Models(settings.models, clock=clock, store=store)
        cluster = CrowdCluster(address, ChatTokens.from_folder(paths.root, clock), database=paths.database)
        memory = Memory(store, clock=clock)
        crowd = CrowdService(store, memory, models, clock, paths.root / "configs", settings.crowd, supervisor, cluster)
        try:
            opened = await crowd.host(room, line_source)
            await cluster.ready_gateway(room)
            typer.echo(f"The gateway of {room} listens on {address}.")
            if opened.session_task is not None:
                await opened.session_task.wait()
            if opened.problem:
                typer.echo(opened.problem, err=True)
        finally:
            await crowd.close()
            await supervisor.stop()
            await models.close()


@asynccontextmanager
async def _store(paths: Paths, clock: SystemClock) -> AsyncIterator[Store]:
    """Open the data folder. If another process uses it, wait until that one ends, and take over."""
    from coterie.app import open_store

    with contextlib.ExitStack() as stack:
        waiting = False
        while True:
            try:
                store = stack.enter_context(open_store(paths, clock=clock))
            except InUse as locked:
                if not waiting:
                    typer.echo(f"Waiting to take over: {locked.what}")
                waiting = True
                await asyncio.sleep(_LOCK_RETRY_S)
            else:
                break
        yield store


async def _personas(room: str, address: str, line_source: LineSource, token: str) -> None:
    paths, clock = Paths.locate(), SystemClock()
    if not token:
        if not (paths.root / "crowd.key").exists():
            raise IdentityRefused(
                "This data folder has no key of the room.",
                "Run `coterie crowd invite NAME --worker` with the gateway's data folder, and give its token here"
                " with --token.",
            )
        token = ChatTokens.from_folder(paths.root, clock).issue(room, ChatIdentity("personas", "worker"))
    models = None if line_source == "phrasebook" else _models(paths, clock)
    async with _connected(address) as broker:
        worker = PersonaWorker(
            broker,
            room,
            token,
            lambda rules, running: create_line_writer(models, rules, room, running.speaking),
            clock,
            on_problem=lambda problem: typer.echo(problem, err=True),
        )
        typer.echo(f"Personas of {room} are run here, over {address}.")
        try:
            await worker.run()
        finally:
            if models is not None:
                await models.close()


def _models(paths: Paths, clock: SystemClock) -> Models:
    from coterie.llm import Models
    from coterie.settings import load_settings

    return Models(load_settings(paths).settings.models, clock=clock)


async def _context(
    room: str, address: str, stream: str, speed: float, recogniser: str, language: str, watch: bool | None
) -> None:
    from coterie.settings import load_settings

    clock, paths = SystemClock(), Paths.locate()
    settings = load_settings(paths).settings.crowd
    models = _models(paths, clock)

    def open_contexts(start_s: float) -> AsyncIterator[StreamContext]:
        return open_stream(
            stream,
            room,
            clock,
            speed=speed,
            recogniser=recogniser or settings.recogniser,
            language=language or settings.speech_language,
            start_s=start_s,
            watch=settings.watch if watch is None else watch,
            caption=model_captioner(models, room),
        )

    open_contexts(0.0)  # raises now if there is no such stream
    try:
        async with _connected(address) as broker:
            typer.echo(f"{stream} is read for {room}, over {address}.")
            await ContextService(broker, room, open_contexts, clock).run()
            typer.echo("The stream has ended.")
    finally:
        await models.close()


async def _trends(room: str, address: str) -> None:
    async with _connected(address) as broker:
        typer.echo(f"Trends of {room} are published over {address}.")
        await TrendsService(broker, room, SystemClock()).run()
