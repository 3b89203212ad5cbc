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
from weakref import WeakKeyDictionary

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


_AT_ONCE = 32
"""Up to so many subscribers of one pattern are woken immediately; if there are more, all of them a few at a time."""
_PER_STEP = 8
_LISTENERS_SHARE = 0.2
"""The share of an event loop's time that the woken subscribers may take while others wait to be woken."""
_MAX_PAUSE_S = 0.25


class LocalBus:
    """The bus inside one process: a bounded queue per subscriber, which is woken through its own event loop."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, tuple[_Subscription, ...]] = {}
        """Pattern → its subscribers, in the order of subscribing."""
        self._lock = threading.Lock()
        self._wakers: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waker] = WeakKeyDictionary()

    def publish(self, messages: Iterable[BusMessage]) -> None:
        subscriptions = self._subscriptions
        if not subscriptions:
            return
        batch = list(messages)
        few: dict[_Waker, list[_Subscription]] = {}
        many: dict[_Waker, list[_Subscription]] = {}
        for pattern, subscribers in subscriptions.items():
            if matching := [message for message in batch if matches(pattern, message.subject)]:
                woken = many if len(subscribers) > _AT_ONCE else few
                for subscription in subscribers:
                    if subscription.offer(matching):
                        woken.setdefault(subscription.waker, []).append(subscription)
        for waker in {**few, **many}:
            waker.wake(few.get(waker, []), many.get(waker, []))

    @asynccontextmanager
    async def subscribe(
        self, pattern: str, *, limit: int = 1_000, when_slow: WhenSlow = WhenSlow.DISCONNECT
    ) -> AsyncIterator[AsyncIterator[BusMessage]]:
        check_pattern(pattern)
        loop = asyncio.get_running_loop()
        with self._lock:
            waker = self._wakers.get(loop)
            if waker is None:
                waker = self._wakers[loop] = _Waker(loop)
            subscription = _Subscription(pattern, limit, when_slow, waker)
            others = self._subscriptions.get(pattern, ())
            self._subscriptions = {**self._subscriptions, pattern: (*others, subscription)}
        try:
            yield subscription
        finally:
            with self._lock:
                others = tuple(other for other in self._subscriptions[pattern] if other is not subscription)
                rest = {one: subscribers for one, subscribers in self._subscriptions.items() if one != pattern}
                self._subscriptions = {**rest, pattern: others} if others else rest


class _Waker:
    """Wakes the subscribers of one event loop: few at once, many slowly.

    A thousand pages that follow one chat would otherwise all be served before the reply that they wait for goes on. A
    subscriber that is woken later finds everything that was published meanwhile.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        """The thread of the loop: publishing from there needs no thread-safe wake-up, which costs a system call."""
        self._waiting: dict[_Subscription, None] = {}
        self._pacing = False

    def wake(self, now: list[_Subscription], slowly: list[_Subscription]) -> None:
        if threading.get_ident() == self._thread:
            self._wake(now, slowly)
            return
        try:
            self._loop.call_soon_threadsafe(self._wake, now, slowly)
        except RuntimeError:
            return  # the loop has closed

    def _wake(self, now: list[_Subscription], slowly: list[_Subscription]) -> None:
        for subscription in now:
            subscription.wakeup.set()
        self._waiting.update(dict.fromkeys(slowly))
        if self._waiting and not self._pacing:
            self._pacing = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        """Wake the next few, see how long the loop is busy with them, and pause accordingly."""
        for subscription in list(self._waiting)[:_PER_STEP]:
            del self._waiting[subscription]
            subscription.wakeup.set()
        self._loop.call_soon(self._after, self._loop.time(), 3)

    def _after(self, started: float, rounds: int) -> None:
        if rounds:  # a subscriber's work takes a few rounds of the loop
            self._loop.call_soon(self._after, started, rounds - 1)
            return
        busy = self._loop.time() - started
        if self._waiting:
            self._loop.call_later(min(busy * (1 / _LISTENERS_SHARE - 1), _MAX_PAUSE_S), self._step)
        else:
            self._pacing = False


class _Subscription:
    """A subscriber's queue: publishers add from any thread, one task takes."""

    def __init__(self, pattern: str, limit: int, when_slow: WhenSlow, waker: _Waker) -> None:
        self.pattern = pattern
        self.waker = waker
        self.wakeup = asyncio.Event()
        self._limit = limit
        self._when_slow = when_slow
        self._queue: deque[BusMessage] = deque()
        self._lock = threading.Lock()
        self._overflowed = False

    def offer(self, messages: list[BusMessage]) -> bool:
        """Queue messages. False if it was to be woken already, for messages that it has not taken yet."""
        with self._lock:
            idle = not self._queue
            for message in messages:
                if len(self._queue) >= self._limit and not self._make_room():
                    break
                self._queue.append(message)
            return idle or self._overflowed

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
                self.wakeup.clear()
            await self.wakeup.wait()
