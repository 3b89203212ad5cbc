"""A server with configurable faults that speaks OpenAI's or Anthropic's protocol on a real socket.

Each model has a list of behaviours, one per request; the last one is repeated. Requests and disconnects are recorded.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

Send = Callable[[bytes], Awaitable[None]]


class Connection:
    """The server's side of one request."""

    def __init__(self, server: FaultServer, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.body = body
        self.anthropic = server.anthropic
        self._writer = writer

    @property
    def port(self) -> int:
        """The client's port, which tells its connections apart."""
        return int(self._writer.get_extra_info("peername")[1])

    async def status(self, code: int, error: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        body = json.dumps({"type": "error", "error": error}).encode()
        lines = [f"HTTP/1.1 {code} Status", "content-type: application/json", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def begin(self) -> None:
        await self.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        if self.anthropic:
            usage = {"input_tokens": 7, "output_tokens": 1}
            message = {"id": "m", "type": "message", "role": "assistant", "model": self.body["model"], "content": []}
            start = {"type": "message_start", "message": {**message, "usage": usage}}
            await self.event(start)
            block = {"type": "text", "text": ""}
            await self.event({"type": "content_block_start", "index": 0, "content_block": block})

    async def send_text(self, *words: str) -> None:
        for word in words:
            await self.event(self.text_event(word))

    def text_event(self, word: str) -> dict[str, Any]:
        if self.anthropic:
            delta = {"type": "text_delta", "text": word}
            return {"type": "content_block_delta", "index": 0, "delta": delta}
        return self._openai({"delta": {"role": "assistant", "content": word}, "finish_reason": None})

    async def end(self, tokens: int = 3) -> None:
        for event in self.end_events(tokens):
            await self.event(event)
        if not self.anthropic:
            await self.chunk(b"data: [DONE]\n\n")
        await self.raw(b"0\r\n\r\n")

    def end_events(self, tokens: int) -> list[dict[str, Any]]:
        if self.anthropic:
            delta = {"stop_reason": "end_turn", "stop_sequence": None}
            return [
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": delta, "usage": {"output_tokens": tokens}},
                {"type": "message_stop"},
            ]
        usage = {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}
        return [self._openai({"delta": {}, "finish_reason": "stop"}), {**self._openai(None), "usage": usage}]

    async def event(self, data: dict[str, Any]) -> None:
        await self.chunk(self.encode(data))

    def encode(self, data: dict[str, Any]) -> bytes:
        name = f"event: {data['type']}\n" if self.anthropic else ""
        return f"{name}data: {json.dumps(data)}\n\n".encode()

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def reset(self) -> None:
        """Close with RST, as when the machine crashes."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def _openai(self, choice: dict[str, Any] | None) -> dict[str, Any]:
        choices = [{"index": 0, **choice}] if choice else []
        kind = "chat.completion.chunk"
        return {"id": "c", "object": kind, "created": 1, "model": self.body["model"], "choices": choices}


Behaviour = Callable[[Connection], Awaitable[None]]


class FaultServer:
    def __init__(self, *, anthropic: bool = False) -> None:
        self.anthropic = anthropic
        self.behaviours: dict[str, list[Behaviour]] = {}
        self.requests: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.headers: list[str] = []
        self.client_disconnected = asyncio.Event()
        """Set when a client closed its connection before the end of the answer."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        root = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return root if self.anthropic else f"{root}/v1"

    def on(self, model: str, *behaviours: Behaviour) -> None:
        self.behaviours[model] = list(behaviours)

    def count(self, model: str) -> int:
        return len(self.requests[model])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FaultServer]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield self
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.headers.append(head)
                length = next(
                    (
                        int(line.split(":")[1])
                        for line in head.splitlines()
                        if line.lower().startswith("content-length")
                    ),
                    0,
                )
                body = json.loads(await reader.readexactly(length) or b"{}")
                await self._answer(body, reader, writer)
        self._tasks.discard(task)
        writer.close()

    async def _answer(self, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        model = body["model"]
        self.requests[model].append(body)
        behaviours = self.behaviours.get(model, [says("Hello ", "there.")])
        behaviour = behaviours.pop(0) if len(behaviours) > 1 else behaviours[0]
        answering = asyncio.ensure_future(behaviour(Connection(self, body, writer)))
        disconnect = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({answering, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                self.client_disconnected.set()
                raise ConnectionResetError
            await answering
        finally:
            for task in (answering, disconnect):
                task.cancel()
            await asyncio.gather(answering, disconnect, return_exceptions=True)


def says(*words: str) -> Behaviour:
    async def behave(connection: Connection) -> None:
        await connection.begin()
        await connection.send_text(*words)
        await connection.end(len(words))

    return behave


def fails(code: int, *, retry_after: str | None = None, kind: str = "some_error", message: str = "No.") -> Behaviour:
    async def behave(connection: Connection) -> None:
        headers = {"retry-after": retry_after} if retry_after is not None else {}
        error = {"type": kind, "code": kind, "message": message}
        await connection.status(code, error, headers)

    return behave


async def never_answers(connection: Connection) -> None:
    await asyncio.sleep(3600)


def resets_after(*words: str) -> Behaviour:
    async def behave(connection: Connection) -> None:
        await connection.begin()
        await connection.send_text(*words)
        await asyncio.sleep(0.05)
        connection.reset()

    return behave


def hangs_after(*words: str) -> Behaviour:
    async def behave(connection: Connection) -> None:
        await connection.begin()
        await connection.send_text(*words)
        await asyncio.sleep(3600)

    return behave


def sends_byte_by_byte(*words: str) -> Behaviour:
    """Sends some text, then one byte at a time without completing an event."""

    async def behave(connection: Connection) -> None:
        await connection.begin()
        await connection.send_text(*words)
        for byte in connection.encode(connection.text_event("x" * 10_000)):
            await connection.chunk(bytes([byte]))
            await asyncio.sleep(0.02)

    return behave


async def malformed_sse(connection: Connection) -> None:
    await connection.begin()
    await connection.chunk(b"event: \xff\xfe\ndata: {{{{ not json\n\ndata without a colon\n\n")
    await connection.raw(b"0\r\n\r\n")


async def invalid_json(connection: Connection) -> None:
    body = b'{"choices": [{"message"'
    await connection.raw(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    )


async def empty_answer(connection: Connection) -> None:
    await connection.begin()
    await connection.end(0)


async def closes_without_output(connection: Connection) -> None:
    await connection.begin()
    await connection.raw(b"0\r\n\r\n")


def overloaded_in_stream(*words: str) -> Behaviour:
    async def behave(connection: Connection) -> None:
        await connection.begin()
        await connection.send_text(*words)
        error = {"type": "overloaded_error", "message": "Overloaded", "code": "overloaded_error"}
        await connection.event({"type": "error", "error": error})
        await connection.raw(b"0\r\n\r\n")

    return behave


def ends_without_reason(*words: str, closing: bool) -> Behaviour:
    """Ends the response without saying why; with `closing` with the protocol's last event, as broken servers do."""

    async def behave(connection: Connection) -> None:
        await connection.begin()
        await connection.send_text(*words)
        if closing and connection.anthropic:
            await connection.event({"type": "content_block_stop", "index": 0})
            delta = {"stop_reason": None, "stop_sequence": None}
            await connection.event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 3}})
            await connection.event({"type": "message_stop"})
        elif closing:
            usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
            await connection.event({**connection.text_event(""), "choices": [], "usage": usage})
            await connection.chunk(b"data: [DONE]\n\n")
        await connection.raw(b"0\r\n\r\n")

    return behave


def sends_chunks(*chunks: bytes) -> Behaviour:
    """A stream of any bytes, which ends normally."""

    async def behave(connection: Connection) -> None:
        await connection.begin()
        for chunk in chunks:
            if chunk:
                await connection.chunk(chunk)
        await connection.raw(b"0\r\n\r\n")

    return behave
