"""Limits of connections, below the framework: how many are open, and how long the server waits for a client.

A client that sends or reads nothing costs a socket. So a request's head must arrive in time, a client must read what it
asked for, and when there are too many connections, the one that has been waiting longest for its client is closed: new
clients are served even while others hold connections open. `limits` has the limits of a request's body.
"""

from __future__ import annotations

import asyncio
import json
import resource
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from coterie.base.logging import get_logger

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
