"""`coterie serve` with one more page, `/slow`, that answers only after a shutdown was requested.

It lets a test hold a request open across a shutdown without guessing how long anything takes.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import uvicorn
from fastapi import FastAPI

from coterie.cli import main
from coterie.surfaces.web import server

_create = server.create_web


def _with_a_slow_page(*arguments: Any, **options: Any) -> FastAPI:
    web = _create(*arguments, **options)

    @web.get("/slow")
    async def slow() -> dict[str, bool]:
        print("slow page asked for", flush=True)
        while not _asked_to_stop():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        return {"finished": True}

    return web


_servers: list[uvicorn.Server] = []
_handle_exit = uvicorn.Server.handle_exit


def _remember(self: uvicorn.Server, number: int, frame: Any) -> None:
    _servers.append(self)
    _handle_exit(self, number, frame)


def _asked_to_stop() -> bool:
    return any(running.should_exit for running in _servers)


if __name__ == "__main__":
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    uvicorn.Server.handle_exit = _remember  # type: ignore[method-assign,assignment]
    server.create_web = _with_a_slow_page
    main()
