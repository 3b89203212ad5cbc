"""Listening for requests until told to stop, then letting open ones finish."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import NamedTuple

import uvicorn
from fastapi import FastAPI

from coterie.base.errors import InUse
from coterie.base.heap import tune_gc
from coterie.surfaces.web.settings import ServerSettings


class ServerExit(NamedTuple):
    port: int
    by_signal: bool


def run_server(
    web: FastAPI, settings: ServerSettings, *, within: AbstractAsyncContextManager[None], anew: bool = False
) -> ServerExit:
    """Blocks. A port that is taken is told before anything starts; `within` is entered first and left last.

    `anew`: the caller starts a server again at the same port, so that a page may ask for that.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((settings.host, settings.port))
        except OSError as error:
            raise InUse(
                f"Port {settings.port} on {settings.host} cannot be used ({error.strerror}).",
                "Stop whatever uses it, or choose another: coterie serve --port 8001",
            ) from error
        port: int = door.getsockname()[1]
        config = uvicorn.Config(
            web,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=settings.drain_s,
        )
        server = uvicorn.Server(config)
        if anew:
            web.state.start_anew = partial(setattr, server, "should_exit", True)
        with _signals_stop(server) as signals:
            asyncio.run(_serve(server, door, within))
        return ServerExit(port, bool(signals))


async def _serve(server: uvicorn.Server, door: socket.socket, within: AbstractAsyncContextManager[None]) -> None:
    # Not as the framework's lifespan: there an error at the start becomes a traceback, here it stays a sentence.
    async with within:
        tune_gc()
        door.listen(server.config.backlog)  # whoever reads the address and comes at once waits, and is not turned away
        host, port = door.getsockname()[:2]
        print(f"Coterie is at http://{f'[{host}]' if ':' in host else host}:{port}  (Ctrl-C stops it)", flush=True)
        await server.serve(sockets=[door])


@contextmanager
def _signals_stop(server: uvicorn.Server) -> Iterator[list[int]]:
    """Stopping when asked is a good end: uvicorn would raise the signal again and so die of it, store still open."""
    signals: list[int] = []

    def stop(number: int, _frame: object) -> None:
        signals.append(number)
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
