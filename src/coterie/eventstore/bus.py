"""Telling every listener, at once, what just became durable.

The port is small so that a broker can take its place. Subjects are words joined by dots; in a pattern `*` stands for
one word and a final `>` for one or more. The bus carries news, not truth: whoever falls behind reads the log.
"""

from __future__ import annotations

import asyncio
import enum
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, Protocol

from coterie.base.errors import SlowConsumer


class BusMessage(NamedTuple):
    """A named tuple because a busy room makes thousands a second."""

    subject: str
    body: Any


class WhenSlow(enum.Enum):
    """What happens to a listener whose queue is full. Nobody else ever waits for it."""

    DROP_OLDEST = "drop oldest"
    DROP_NEWEST = "drop newest"
    DISCONNECT = "disconnect"
    """Its iteration ends with `SlowConsumer`; it resumes from the log where it left off."""


class Bus(Protocol):
    def publish(self, messages: Iterable[BusMessage]) -> None:
        """Hand messages to every matching listener. Returns at once; may be called from any thread."""
        ...

    def subscribe(
        self, pattern: str, *, limit: int = 1_000, when_slow: WhenSlow = WhenSlow.DISCONNECT
    ) -> AbstractAsyncContextManager[AsyncIterator[BusMessage]]:
        """Messages that are published while the context is open, in order."""
        ...


def matches(pattern: str, subject: str) -> bool:
    words, parts = subject.split("."), pattern.split(".")
    for index, part in enumerate(parts):
        if part == ">":
            return index == len(parts) - 1 and len(words) > index
        if index >= len(words) or part not in ("*", words[index]):
            return False
    return len(words) == len(parts)


def check_pattern(pattern: str) -> None:
    parts = pattern.split(".")
    if not all(parts) or ">" in parts[:-1]:
        raise ValueError(
            f"{pattern!r} is not a subject pattern: words joined by dots, `*` for one, `>` only at the end."
        )


def subject_token(text: str) -> str:
    """Text made safe as words of a subject: `room:01H…` becomes `room.01H…`, wildcards and blanks become `_`."""
    return "".join("." if c == ":" else "_" if c in "*> \t\n" else c for c in text)


# The bus inside one process: bounded queues, one per listener, woken through its own event loop.


class LocalBus:
    def __init__(self) -> None:
        self._listeners: tuple[_Listener, ...] = ()
        self._lock = threading.Lock()

    def publish(self, messages: Iterable[BusMessage]) -> None:
        listeners = self._listeners
        if not listeners:
            return
        batch = list(messages)
        for listener in listeners:
            wanted = [message for message in batch if matches(listener.pattern, message.subject)]
            if wanted:
                listener.offer(wanted)

    @asynccontextmanager
    async def subscribe(
        self, pattern: str, *, limit: int = 1_000, when_slow: WhenSlow = WhenSlow.DISCONNECT
    ) -> AsyncIterator[AsyncIterator[BusMessage]]:
        check_pattern(pattern)
        listener = _Listener(pattern, limit, when_slow, asyncio.get_running_loop())
        with self._lock:
            self._listeners = (*self._listeners, listener)
        try:
            yield listener
        finally:
            with self._lock:
                self._listeners = tuple(other for other in self._listeners if other is not listener)


class _Listener:
    """Publishers put, from any thread; one task takes. The lock is held for moments only."""

    def __init__(self, pattern: str, limit: int, when_slow: WhenSlow, loop: asyncio.AbstractEventLoop) -> None:
        self.pattern = pattern
        self._limit = limit
        self._when_slow = when_slow
        self._loop = loop
        self._thread = threading.get_ident()
        """Where its loop runs: whoever publishes there need not wake it from outside, which costs a system call."""
        self._waiting: deque[BusMessage] = deque()
        self._lock = threading.Lock()
        self._news = asyncio.Event()
        self._lost = False

    def offer(self, messages: list[BusMessage]) -> None:
        with self._lock:
            for message in messages:
                if len(self._waiting) >= self._limit and not self._make_room():
                    break
                self._waiting.append(message)
        if threading.get_ident() == self._thread:
            self._news.set()
            return
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:
            return  # its loop has closed: nobody listens any more

    def _make_room(self) -> bool:
        if self._when_slow is WhenSlow.DROP_OLDEST:
            self._waiting.popleft()
            return True
        if self._when_slow is WhenSlow.DISCONNECT:
            self._lost = True
        return False

    def __aiter__(self) -> AsyncIterator[BusMessage]:
        return self

    async def __anext__(self) -> BusMessage:
        while True:
            with self._lock:
                if self._waiting:
                    return self._waiting.popleft()
                if self._lost:
                    raise SlowConsumer(
                        f"A listener on {self.pattern} fell more than {self._limit} messages behind.",
                        "Read the log from the last event you saw, then subscribe again.",
                    )
                self._news.clear()
            await self._news.wait()
