"""Many readers of an event stream in a process of their own, so that their CPU time is not the bench's.

`python -m bench.lib.stream_readers PORT READERS COOKIE PATH` connects, prints "ready" when every stream has begun, and
reads until standard input ends.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_AT_ONCE = 50


@contextmanager
def stream_readers(port: int, readers: int, cookie: str, path: str) -> Iterator[subprocess.Popen[str]]:
    """Run the readers; the context begins when all of them read."""
    command = [sys.executable, "-m", "bench.lib.stream_readers", str(port), str(readers), cookie, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise SystemExit("The live streams could not be opened.")
        try:
            yield process
        finally:
            process.stdin.close()


class Reader(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        self._request = request
        self.ready: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self.ready.done():
            self.ready.set_result(data.startswith(b"HTTP/1.1 200"))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ready.done():
            self.ready.set_result(False)


async def main(port: int, count: int, cookie: str, path: str) -> None:
    loop = asyncio.get_running_loop()
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n".encode()
    readers: list[Reader] = []
    for start in range(0, count, _AT_ONCE):
        batch = [
            (await loop.create_connection(lambda: Reader(request), "127.0.0.1", port))[1]
            for _ in range(min(_AT_ONCE, count - start))
        ]
        if not all(await asyncio.gather(*(reader.ready for reader in batch))):
            print("refused", flush=True)
            return
        readers += batch
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]))
