"""An ASGI application on a real socket, behind the protocol class of the server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn

from coterie.surfaces.web.shared.limits import ConnectionLimits, limited_protocol

TIMEOUT_S = 60
"""Against hanging tests."""


@asynccontextmanager
async def serving(app: Any, limits: ConnectionLimits | None = None) -> AsyncIterator[int]:
    """Serve until the end of the context; gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            app,
            http=limited_protocol(limits or ConnectionLimits()),
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not server.started:
                    await asyncio.sleep(0.01)
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task


class Connection:
    """A client that sends exactly the bytes it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def response(self) -> tuple[int, bytes]:
        """The status and the body of one response that has a length."""
        async with asyncio.timeout(TIMEOUT_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
            lengths = [line.split(":")[1] for line in head.splitlines() if line.startswith("content-length")]
            body = await self._reader.readexactly(int(lengths[0])) if lengths else b""
        return int(head.split()[1]), body

    async def read_until_closed(self) -> bytes:
        """What still arrives before the server closes or resets the connection."""
        received = b""
        async with asyncio.timeout(TIMEOUT_S):
            with suppress(ConnectionError):
                while data := await self._reader.read(65_536):
                    received += data
        return received

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
