"""One room, a thousand sockets: what falls into one tick is put into one frame, made once, and handed to everybody.

A reader that cannot keep up is not waited for and not fed: as soon as its buffer has drained it gets a snapshot, and
goes on from there. Sockets tell when that is so instead of being asked: a tick is one write for each reader, and
nothing else. The port is one call, so that any WebSocket library can stand behind it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from coterie.modes.crowd.protocol import ChatMessage

TICK_S = 0.05
MAX_OUTSTANDING_BYTES = 256 * 1024
"""Bytes a socket may have outstanding before its reader counts as slow."""
_SNAPSHOT_SIZE = 100


class Frame(NamedTuple):
    """What a tick tells everybody, encoded once."""

    text: bytes
    """Its JSON."""
    websocket: bytes
    """The same as a WebSocket sends it: a server's frames are the same bytes for everybody."""


Write = Callable[[bytes], None]
Encoding = Literal["text", "websocket"]


class Socket(Protocol):
    """One reader. It calls `hold` when more than `MOST_WAITING` bytes are outstanding, and `drained` when none are."""

    @property
    def encoding(self) -> Encoding:
        """Which of a frame's encodings it is handed."""
        ...

    @property
    def write(self) -> Write:
        """Hand bytes over. Never blocks."""
        ...


class Fanout:
    def __init__(self, snapshot: Callable[[int], Sequence[ChatMessage]], last_sent: int = 0) -> None:
        """`snapshot` gives the newest so many messages of the room; `told` is the number of its last one so far."""
        self._snapshot = snapshot
        self._active: dict[Encoding, dict[Socket, Write]] = {"text": {}, "websocket": {}}
        self._paused: set[Socket] = set()
        self._resuming: set[Socket] = set()
        """They were held, and get a snapshot with the next tick."""
        self._pending: list[ChatMessage] = []
        self._timer: asyncio.TimerHandle | None = None
        self.last_sent = last_sent
        """Up to which number everybody has heard. What is newer is still to come, and is in no snapshot."""
        self.frames = 0
        self.dropped = 0

    def join(self, socket: Socket, missed: Sequence[ChatMessage] | None = None) -> None:
        """A new reader gets a snapshot; one that comes back gets what it `missed`."""
        self.flush()
        if missed is None:
            first = self._snapshot_frame()
        else:
            known = missed[-1].number if missed else 0
            since = [message for message in self._snapshot(_SNAPSHOT_SIZE) if known and message.number > known]
            first = encode_frame(
                "messages", [message for message in (*missed, *since) if message.number <= self.last_sent]
            )
        self._activate(socket)
        socket.write(getattr(first, socket.encoding))

    def leave(self, socket: Socket) -> None:
        self._active[socket.encoding].pop(socket, None)
        self._paused.discard(socket)
        self._resuming.discard(socket)

    def pause(self, socket: Socket) -> None:
        """This reader is slow: it is not fed until it has drained."""
        if self._active[socket.encoding].pop(socket, None) is not None or socket in self._resuming:
            self._resuming.discard(socket)
            self._paused.add(socket)

    def resume(self, socket: Socket) -> None:
        """Nothing is outstanding any more: what it missed comes as a snapshot, with the next tick."""
        if socket in self._paused:
            self._paused.discard(socket)
            self._resuming.add(socket)

    @property
    def readers(self) -> int:
        return sum(map(len, self._active.values())) + len(self._paused) + len(self._resuming)

    def send(self, messages: Sequence[ChatMessage]) -> None:
        """Everybody hears of these with the next tick."""
        self._pending.extend(messages)
        if self._timer is None and self._pending:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pending:
            return
        news = encode_frame("messages", self._pending)
        self.last_sent = self._pending[-1].number
        self._pending = []
        self.dropped += len(self._paused)
        caught_up, self._resuming = self._resuming, set()
        for encoding, fed in self._active.items():
            data: bytes = getattr(news, encoding)
            writes = list(fed.values())  # whoever is held while being written to leaves the dict
            for write in writes:
                write(data)
            self.frames += len(writes)
        if caught_up:
            picture = self._snapshot_frame()
            for socket in caught_up:
                self._activate(socket)
                socket.write(getattr(picture, socket.encoding))
            self.frames += len(caught_up)

    def _activate(self, socket: Socket) -> None:
        self._active[socket.encoding][socket] = socket.write

    def _snapshot_frame(self) -> Frame:
        return encode_frame(
            "snapshot", [message for message in self._snapshot(_SNAPSHOT_SIZE) if message.number <= self.last_sent]
        )


def encode_frame(kind: str, messages: Sequence[ChatMessage]) -> Frame:
    """The JSON of a frame: its kind, and the messages in order."""
    text = f'{{"type":"{kind}","messages":[{",".join([message.to_json() for message in messages])}]}}'.encode()
    return Frame(text, _websocket_header(len(text)) + text)


def _websocket_header(length: int) -> bytes:
    """RFC 6455, 5.2: a whole, unmasked text frame of so many bytes."""
    if length < 126:
        return bytes([0x81, length])
    return struct.pack("!BBH", 0x81, 126, length) if length < 65_536 else struct.pack("!BBQ", 0x81, 127, length)
