"""Limits of what clients send: connections, the time that heads and bodies take, sizes, and what JSON may contain.

The limits of bodies are plain ASGI, below the framework: it reads a whole body before it calls a route, and only bytes
that were counted as they arrived are safe to keep.

A client that sends or reads nothing costs a socket. So a request's head must arrive in time, a client must read what
it asked for, and when there are too many connections, the one that has been waiting longest for its client is closed:
new clients are served even while others hold connections open.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import h11
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from coterie.base.logging import get_logger
from coterie.surfaces.web.shared.errors import error_response

# Connections


_WANTED_FILES = 8_192
_OTHER_FILES = 256
"""Descriptors for the database, models, tools and the like."""
_log = get_logger(__name__)


@dataclass(frozen=True)
class ConnectionLimits:
    total: int = 4_096
    backlog: int = 2_048
    """Connections that the system keeps until they are accepted; many are accepted before the limits apply to them."""
    header_s: float = 10.0
    """How long a request's head may take, from its first byte; for the first one, from the connection on."""
    write_s: float = 60.0
    """How long a client may read nothing while something is to be sent to it."""
    linger_s: float = 2.0
    """How long the rest of a refused body is read and dropped, so that the client can read the response."""
    linger_bytes: int = 2_000_000

    @property
    def per_address(self) -> int:
        return self.total - self.total // 8

    @property
    def streams(self) -> int:
        """Live streams stay open; the rest is for other requests."""
        return self.total * 3 // 4


def limits_for_this_process() -> ConnectionLimits:
    """Raise the number of files that this process may open, and stay below it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(_WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    files = _WANTED_FILES if soft == resource.RLIM_INFINITY else soft
    backlog = min(ConnectionLimits.backlog, files // 4)
    return ConnectionLimits(total=max(32, min(ConnectionLimits.total, files - backlog - _OTHER_FILES)), backlog=backlog)


class OpenConnections:
    """All connections by address, and among them those that wait for their client, the longest waiting first."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: defaultdict[str, set[LimitedProtocol]] = defaultdict(set)
        self._waiting: defaultdict[str, dict[LimitedProtocol, None]] = defaultdict(dict)
        self._count = 0

    def admit(self, connection: LimitedProtocol) -> bool:
        """Register a new connection; one that waits is closed for it if there are too many."""
        address = connection.address
        if len(self._open[address]) >= self.limits.per_address:
            admitted = self._close_one_of(address)
        elif self._count >= self.limits.total:
            admitted = self._close_one_of(max(self._open, key=lambda each: len(self._waiting.get(each, ()))))
        else:
            admitted = True
        if not admitted:
            _log.warning("a connection was refused, because too many are open", open=self._count)
            return False
        self._open[address].add(connection)
        self._count += 1
        return True

    def set_waiting(self, connection: LimitedProtocol, waiting: bool) -> None:
        if connection not in self._open.get(connection.address, ()):
            return
        if waiting:
            self._waiting[connection.address].setdefault(connection)
        elif (others := self._waiting.get(connection.address)) is not None:
            others.pop(connection, None)

    def remove(self, connection: LimitedProtocol) -> None:
        address = connection.address
        if (group := self._open.get(address)) is not None and connection in group:
            group.remove(connection)
            self._count -= 1
            if not group:
                del self._open[address]
        if (waiting := self._waiting.get(address)) is not None:
            waiting.pop(connection, None)
            if not waiting:
                del self._waiting[address]

    def _close_one_of(self, address: str) -> bool:
        for connection in self._waiting.get(address, ()):
            _log.warning("a waiting connection was closed, because too many are open", open=self._count)
            self.remove(connection)
            connection.transport.abort()
            return True
        return False


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol with time limits. `limited_protocol` makes the class for a server."""

    open_connections: ClassVar[OpenConnections]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.address = ""
        self._admitted = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._lingered_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._admitted = self.open_connections.admit(self)
        if not self._admitted:
            transport.write(_TOO_MANY)
            transport.close()
            return
        self.open_connections.set_waiting(self, True)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        if not self._admitted or self.transport.is_closing():
            return
        if self._linger_timer is not None:
            self._lingered_bytes += len(data)
            if self._lingered_bytes > self.open_connections.limits.linger_bytes:
                self.transport.abort()
                return
        super().data_received(data)
        self._note_state()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY:  # it was answered before its body was complete
            if self._linger_timer is None:
                self._lingered_bytes = 0
                limit = self.open_connections.limits.linger_s
                self._linger_timer = self.loop.call_later(limit, self.transport.abort)
            return
        self._note_state()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_connections.remove(self)
        for timer in (self._head_timer, self._write_timer, self._linger_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            limit = self.open_connections.limits.write_s
            self._write_timer = self.loop.call_later(limit, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _note_state(self) -> None:
        """After something came in or went out: is the server waiting for the client?"""
        state = self.conn.their_state
        if self._linger_timer is not None and state is not h11.SEND_BODY:
            self._linger_timer.cancel()
            self._linger_timer = None
        self.open_connections.set_waiting(self, state in (h11.IDLE, h11.SEND_BODY))
        if state is not h11.IDLE:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None
        elif self.timeout_keep_alive_task is None:  # part of a head came in; uvicorn's timer covers idle connections
            self._start_head_timer()

    def _start_head_timer(self) -> None:
        if self._head_timer is None and not self.transport.is_closing():
            limit = self.open_connections.limits.header_s
            self._head_timer = self.loop.call_later(limit, self.transport.abort)


def limited_protocol(limits: ConnectionLimits) -> type[LimitedProtocol]:
    """The protocol class of one server, for `uvicorn.Config(http=…)`."""

    class Protocol(LimitedProtocol):
        open_connections = OpenConnections(limits)

    return Protocol


def _too_many() -> bytes:
    body = json.dumps({"error": "Too many connections are open.", "fix": "Try again in a few seconds."}).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Retry-After: 5\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


_TOO_MANY = _too_many()


_MAX_JSON_VALUES = 100_000
"""More take seconds to parse, in which nothing else is answered."""
_STREAMS_STARTING = 8
_JSON_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')


@dataclass(frozen=True)
class BodyLimits:
    login_bytes: int = 10_000
    """`/login` is the one route with a body that needs no session."""
    bytes: int = 4_000_000
    upload_bytes: int = 101_000_000
    """Slightly more than a card may have, so that the card's own error is shown."""
    seconds: float = 20.0
    bytes_per_s: float = 20_000.0
    """A body may take `seconds`, and longer while it arrives at this rate."""

    def max_bytes(self, path: str) -> int:
        if path == "/login":
            return self.login_bytes
        return self.upload_bytes if is_upload(path) else self.bytes

    def max_seconds(self, received: int) -> float:
        return self.seconds + received / self.bytes_per_s


def is_upload(path: str) -> bool:
    """Whether the body is a file, whatever content type it claims."""
    return path.endswith(("/import", "/picture", "/webhook/files"))


def is_live_stream(method: str, path: str) -> bool:
    return method == "GET" and path.endswith(("/live", "/events"))


class BodyRefused(HTTPException):
    """A body that is too large, too slow or unreadable. The framework passes on only this kind while it reads."""

    def __init__(self, status: int, what: str, fix: str) -> None:
        super().__init__(status, what.removesuffix("."))
        self.fix = fix


class BodyLimitMiddleware:
    def __init__(self, app: ASGIApp, limits: BodyLimits | None = None) -> None:
        self._app = app
        self._limits = limits or BodyLimits()
        self._streams = 0
        self._starting = asyncio.Semaphore(_STREAMS_STARTING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(scope, receive, self._limits)
        try:
            body.check_declared_size()
        except BodyRefused as refused:
            await error_response(refused.status_code, f"{refused.detail}.", refused.fix)(scope, receive, send)
            return

        if not is_live_stream(scope["method"], scope["path"]):
            await self._app(scope, body.receive, partial(_send_and_note, body, send))
            return
        if self._streams >= scope["app"].state.max_streams:
            refusal = error_response(503, "Too many pages follow live changes.", "Close some of them, or try later.")
            await refusal(scope, receive, send)
            return
        await self._stream(scope, body, send)

    async def _stream(self, scope: Scope, body: _Body, send: Send) -> None:
        """A few streams start at a time: after a restart all pages come back at once, and others must be answered."""
        await self._starting.acquire()
        starting = True

        async def send_and_release(message: Message) -> None:
            nonlocal starting
            await _send_and_note(body, send, message)
            if starting:
                starting = False
                self._starting.release()

        self._streams += 1
        try:
            await self._app(scope, body.receive, send_and_release)
        finally:
            self._streams -= 1
            if starting:
                self._starting.release()


class _Body:
    """The body of one request, counted and timed as it arrives; JSON is checked before it is passed on."""

    def __init__(self, scope: Scope, receive: Receive, limits: BodyLimits) -> None:
        self._receive = receive
        self._headers = Headers(scope=scope)
        self._path: str = scope["path"]
        self._limits = limits
        self._max_bytes = limits.max_bytes(self._path)
        self._received = 0
        self._complete = False
        self._started_at: float | None = None
        self.response_started = False

    def check_declared_size(self) -> None:
        size = self._headers.get("content-length", "0")
        if not size.isdecimal() or len(size) > 18 or int(size) > self._max_bytes:
            raise self._too_large()

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            message = await self._receive_part()
            if is_upload(self._path) or message["type"] != "http.request":
                return message
            parts = [message.get("body", b"")]
            while message.get("more_body", False):
                message = await self._receive_part()
                if message["type"] != "http.request":
                    return message
                parts.append(message.get("body", b""))
            whole = b"".join(parts)
            if whole and self._is_json():
                _check_json(whole)
        except BodyRefused:
            if self.response_started:  # a live stream waits for the end of its connection here
                return {"type": "http.disconnect"}
            raise
        return {"type": "http.request", "body": whole, "more_body": False}

    async def _receive_part(self) -> Message:
        now = asyncio.get_running_loop().time()
        if self._started_at is None:
            self._started_at = now
        limit = self._started_at + self._limits.max_seconds(self._received)
        try:
            async with asyncio.timeout_at(limit):
                message = await self._receive()
        except TimeoutError:
            raise BodyRefused(408, "The request's body took too long to arrive.", "Send it again, faster.") from None
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
            if self._received > self._max_bytes:
                raise self._too_large()
        return message

    def _is_json(self) -> bool:
        kind = self._headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        return kind.startswith("application/") and kind.endswith(("/json", "+json"))

    def _too_large(self) -> BodyRefused:
        most = f"{self._max_bytes // 1_000_000} MB" if self._max_bytes >= 1_000_000 else f"{self._max_bytes:,} bytes"
        return BodyRefused(413, f"The request is larger than {most}.", "Send less at once.")


async def _send_and_note(body: _Body, send: Send, message: Message) -> None:
    body.response_started = True
    await send(message)


def _check_json(body: bytes) -> None:
    """Refuse what cannot be stored or computed with: deep nesting, half of a surrogate pair, NaN, other encodings."""
    if _has_too_many_values(body):
        raise BodyRefused(400, f"The request's body has more than {_MAX_JSON_VALUES:,} values.", "Send less at once.")
    try:
        from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise BodyRefused(
            400, f"The request's body is not valid JSON: {error}.", "Correct it; /openapi.json describes every request."
        ) from None


def _has_too_many_values(body: bytes) -> bool:
    if _count_marks(body) <= _MAX_JSON_VALUES:
        return False
    # Long texts have many commas too. Without their strings only the structure is left.
    return body.count(b'"') > 2 * _MAX_JSON_VALUES or _count_marks(_JSON_STRING.sub(b"", body)) > _MAX_JSON_VALUES


def _count_marks(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")
