"""Reading a streamed answer in sips: what came within a tenth of a second is read, and handed on, together.

A model sends a packet for each token, and waking for each of them costs a server more than all that it then does with
it. The rest between two readings is taken beneath HTTP and TLS, where one reading takes whatever has come: nothing can
fall behind, however busy the machine. Only a trickle is sipped. Handshakes, headers, short answers, the first words of
a long one and large bodies are read as they come. Sips grow with the answer: the further its words are ahead of
anybody's eyes, the less it matters how often new ones are added.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import httpcore2
import httpx2
from anyio.abc import ByteStream

SIP_S, LONGEST_SIP_S = 0.1, 0.3
_GROWS = 0.025
"""A sip is so much of the time that the words have taken: the longest from twelve seconds on."""
_AT_ONCE = 16
"""So many readings after a request are not delayed: a short answer is whole by then."""
_TRICKLE = 16_384
"""Bytes: a reading that brings more than this was worth waking for."""
_MOST_PIECES = 1_000
"""More than this is not read ahead of whoever listens."""


class Sips(ByteStream):
    """A connection that is read in sips."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._trickled = 0
        """Small readings in a row, with nothing sent between them."""
        self._began = self._last = 0.0
        """When the trickle began: a model may have read its prompt for long before."""

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        loop = asyncio.get_running_loop()
        if self._trickled >= _AT_ONCE:
            sip = min(max((self._last - self._began) * _GROWS, SIP_S), LONGEST_SIP_S)
            if (rest := self._last + sip - loop.time()) > 0:
                await asyncio.sleep(rest)
        data = await self._stream.receive(max_bytes)
        self._last = loop.time()
        self._trickled = self._trickled + 1 if len(data) <= _TRICKLE else 0
        if self._trickled <= _AT_ONCE:
            self._began = self._last
        return data

    async def send(self, item: bytes) -> None:
        self._trickled = 0
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return self._stream.extra_attributes


class Together(httpx2.AsyncByteStream):
    """An answer's body whose pieces are handed on together where they came together.

    A task of its own takes the pieces out of what was read: it gets through all of them before it has to wait, and
    only then is the listener's turn.
    """

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body
        self._pieces: list[bytes] = []
        self._came = asyncio.Event()
        self._taken = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Whoever iterates again goes on where the one before left off: so the rest of an answer is drained."""
        reading = self._reading = self._reading or asyncio.create_task(self._read(), name="a model's answer")
        while self._pieces or not reading.done():
            await self._came.wait()
            self._came.clear()
            self._taken.set()
            pieces, self._pieces = self._pieces, []
            if pieces:
                yield b"".join(pieces)
        reading.result()

    async def aclose(self) -> None:
        if self._reading is not None and not self._reading.done():
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await self._body.aclose()

    async def _read(self) -> None:
        try:
            async for piece in self._body:
                self._pieces.append(piece)
                self._came.set()
                if len(self._pieces) >= _MOST_PIECES:
                    self._taken.clear()
                    await self._taken.wait()
        finally:
            self._came.set()


class _Sipping(httpcore2.AnyIOBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's own signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        connected: Any = await super().connect_tcp(host, port, timeout, local_address, socket_options)
        connected._stream = Sips(connected._stream)
        return connected  # type: ignore[no-any-return]  # its stream is not part of the library's public types


def sipping(client: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """The same client, its connections (those by way of a proxy too) read in sips.

    The library takes such a backend in a pool that one makes oneself, and then knows of no proxies; so it is put into
    the pools that it made. A test notices if they are ever called something else.
    """
    for transport in filter(None, (client._transport, *client._mounts.values())):
        transport._pool._network_backend = _Sipping()  # type: ignore[attr-defined]
    client.event_hooks["response"].append(_together)
    return client


async def _together(response: httpx2.Response) -> None:
    body = response.stream
    if isinstance(body, httpx2.AsyncByteStream) and "text/event-stream" in response.headers.get("content-type", ""):
        response.stream = Together(body)
