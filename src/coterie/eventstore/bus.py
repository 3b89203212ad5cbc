"""Publish and subscribe: the protocol, and the bus inside one process.

Subjects are words joined by dots; in a pattern `*` matches one word and a final `>` one or more. Delivery is not
guaranteed: a subscriber that falls behind reads the log.
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
    """A named tuple because a busy crowd room publishes thousands a second."""

    subject: str
    body: Any


class WhenSlow(enum.Enum):
    """What happens to a subscriber whose queue is full. Publishers and other subscribers never wait for it."""

    DROP_OLDEST = "drop oldest"
    DROP_NEWEST = "drop newest"
    DISCONNECT = "disconnect"
    """Its iteration ends with `SlowConsumer`; it can resume from the log."""


class Bus(Protocol):
    def publish(self, messages: Iterable[BusMessage]) -> None:
        """Queue messages for every matching subscriber. Returns at once; may be called from any thread."""
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
    """Text as words of a subject: `room:01H…` becomes `room.01H…`, wildcards and blanks become `_`."""
    return "".join("." if c == ":" else "_" if c in "*> \t\n" else c for c in text)


class LocalBus:
    """The bus inside one process: a bounded queue per subscriber, which is woken through its own event loop."""

    def __init__(self) -> None:
        self._subscriptions: tuple[_Subscription, ...] = ()
        self._lock = threading.Lock()

    def publish(self, messages: Iterable[BusMessage]) -> None:
        subscriptions = self._subscriptions
        if not subscriptions:
            return
        batch = list(messages)
        for subscription in subscriptions:
            matching = [message for message in batch if matches(subscription.pattern, message.subject)]
            if matching:
                subscription.offer(matching)

    @asynccontextmanager
    async def subscribe(
        self, pattern: str, *, limit: int = 1_000, when_slow: WhenSlow = WhenSlow.DISCONNECT
    ) -> AsyncIterator[AsyncIterator[BusMessage]]:
        check_pattern(pattern)
        subscription = _Subscription(pattern, limit, when_slow, asyncio.get_running_loop())
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)
        try:
            yield subscription
        finally:
            with self._lock:
                self._subscriptions = tuple(other for other in self._subscriptions if other is not subscription)


class _Subscription:
    """A subscriber's queue: publishers add from any thread, one task takes."""

    def __init__(self, pattern: str, limit: int, when_slow: WhenSlow, loop: asyncio.AbstractEventLoop) -> None:
        self.pattern = pattern
        self._limit = limit
        self._when_slow = when_slow
        self._loop = loop
        self._thread = threading.get_ident()
        """The thread of its loop: publishing from there needs no thread-safe wake-up, which costs a system call."""
        self._queue: deque[BusMessage] = deque()
        self._lock = threading.Lock()
        self._wakeup = asyncio.Event()
        self._overflowed = False

    def offer(self, messages: list[BusMessage]) -> None:
        with self._lock:
            for message in messages:
                if len(self._queue) >= self._limit and not self._make_room():
                    break
                self._queue.append(message)
        if threading.get_ident() == self._thread:
            self._wakeup.set()
            return
        try:
            self._loop.call_soon_threadsafe(self._wakeup.set)
        except RuntimeError:
            return  # its loop has closed

    def _make_room(self) -> bool:
        if self._when_slow is WhenSlow.DROP_OLDEST:
            self._queue.popleft()
            return True
        if self._when_slow is WhenSlow.DISCONNECT:
            self._overflowed = True
        return False

    def __aiter__(self) -> AsyncIterator[BusMessage]:
        return self

    async def __anext__(self) -> BusMessage:
        while True:
            with self._lock:
                if self._queue:
                    return self._queue.popleft()
                if self._overflowed:
                    raise SlowConsumer(
                        f"A subscriber of {self.pattern} fell more than {self._limit} messages behind.",
                        "Read the log from the last event you saw, then subscribe again.",
                    )
                self._wakeup.clear()
            await self._wakeup.wait()
