"""A thousand readers of a room in a separate process, so that their CPU time is not the server's.

`python -m bench.lib.websocket_readers PORT READERS SLOW PATH` connects, prints "ready", reads until standard input
ends, and prints the delays of messages for a few readers in milliseconds. SLOW of them never read after the handshake.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time

from bench.lib.loopback import run_on_any_core

_WATCHED = 5
_SENT = re.compile(rb'"ts":(\d+)')


class Reader(asyncio.Protocol):
    def __init__(self, path: str, slow: bool, delays: list[float] | None) -> None:
        self._path = path
        self._slow = slow
        self._delays = delays
        self._open = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(
            (
                f"GET {self._path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            ).encode()
        )

    def data_received(self, data: bytes) -> None:
        now = time.time() * 1_000
        if not self._open:
            self._open = True
            self.ready.set_result(None)
            if self._slow and self._transport is not None:
                self._transport.pause_reading()
        elif self._delays is not None:
            self._delays.extend(now - int(sent) for sent in _SENT.findall(data))


async def main(port: int, readers: int, slow: int, path: str) -> None:
    loop = asyncio.get_running_loop()
    delays: list[float] = []
    connected = []
    for number in range(readers):
        watched = delays if slow <= number < slow + _WATCHED else None

        def reader(slow_one: bool = number < slow, watched: list[float] | None = watched) -> Reader:
            return Reader(path, slow_one, watched)

        _, protocol = await loop.create_connection(reader, "127.0.0.1", port)
        connected.append(protocol.ready)
    await asyncio.gather(*connected)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(delays), flush=True)


if __name__ == "__main__":
    run_on_any_core()
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
