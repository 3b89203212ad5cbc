"""One room, a thousand sockets: what falls into one tick is put into one frame, made once, and handed to everybody.

A reader that cannot keep up is not waited for and not fed: as soon as its buffer has drained it gets a snapshot, and
goes on from there. The port is two calls, so that any WebSocket library can stand behind it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from coterie.modes.crowd.protocol import ChatMessage

TICK_S = 0.05
_MOST_WAITING = 256 * 1024
"""Bytes a socket may have outstanding before its reader counts as slow."""
_SNAPSHOT = 100


class Frame(NamedTuple):
    """What a tick tells everybody, encoded once."""

    text: bytes
    """Its JSON."""
    websocket: bytes
    """The same as a WebSocket sends it: a server's frames are the same bytes for everybody."""


class Socket(Protocol):
    def send(self, frame: Frame) -> None:
        """Hand a frame over. Never blocks."""
        ...

    def waiting(self) -> int:
        """Bytes handed over that the network has not taken yet."""
        ...


class Fanout:
    def __init__(self, snapshot: Callable[[int], Sequence[ChatMessage]], told: int = 0) -> None:
        """`snapshot` gives the newest so many messages of the room; `told` is the number of its last one so far."""
        self._snapshot = snapshot
        self._sockets: dict[Socket, bool] = {}
        """Socket → whether it has fallen behind."""
        self._gathered: list[ChatMessage] = []
        self._due: asyncio.TimerHandle | None = None
        self.told = told
        """Up to which number everybody has heard. What is newer is still to come, and is in no snapshot."""
        self.frames = 0
        self.dropped = 0

    def join(self, socket: Socket, missed: Sequence[ChatMessage] | None = None) -> None:
        """A new reader gets a snapshot; one that comes back gets what it `missed`."""
        self.flush()
        if missed is None:
            socket.send(self._picture())
        else:
            known = missed[-1].number if missed else 0
            since = [message for message in self._snapshot(_SNAPSHOT) if known and message.number > known]
            heard = [message for message in (*missed, *since) if message.number <= self.told]
            socket.send(frame("messages", heard))
        self._sockets[socket] = False

    def leave(self, socket: Socket) -> None:
        self._sockets.pop(socket, None)

    @property
    def readers(self) -> int:
        return len(self._sockets)

    def tell(self, messages: Sequence[ChatMessage]) -> None:
        """Everybody hears of these with the next tick."""
        self._gathered.extend(messages)
        if self._due is None and self._gathered:
            self._due = asyncio.get_running_loop().call_later(TICK_S, self.flush)

    def flush(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if not self._gathered:
            return
        news = frame("messages", self._gathered)
        self.told = self._gathered[-1].number
        self._gathered = []
        caught_up: Frame | None = None
        sent = 0
        for socket, behind in list(self._sockets.items()):
            waiting = socket.waiting()
            if waiting > _MOST_WAITING:
                self.dropped += 1
                self._sockets[socket] = True
                continue
            if behind:
                if waiting:
                    continue
                caught_up = caught_up or self._picture()
                self._sockets[socket] = False
                socket.send(caught_up)
            else:
                socket.send(news)
            sent += 1
        self.frames += sent

    def _picture(self) -> Frame:
        return frame("snapshot", [message for message in self._snapshot(_SNAPSHOT) if message.number <= self.told])


def frame(kind: str, messages: Sequence[ChatMessage]) -> Frame:
    """The JSON of a frame: its kind, and the messages in order."""
    text = f'{{"type":"{kind}","messages":[{",".join([message.wire() for message in messages])}]}}'.encode()
    return Frame(text, _head(len(text)) + text)


def _head(length: int) -> bytes:
    """RFC 6455, 5.2: a whole, unmasked text frame of so many bytes."""
    if length < 126:
        return bytes([0x81, length])
    return struct.pack("!BBH", 0x81, 126, length) if length < 65_536 else struct.pack("!BBQ", 0x81, 127, length)
