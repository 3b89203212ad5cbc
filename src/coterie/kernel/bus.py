"""Telling every listener, at once, what just became durable.

The port is small so that a broker can take its place. Subjects are words joined by dots; in a pattern `*` stands for
one word and a final `>` for one or more. The bus carries news, not truth: whoever falls behind reads the log.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol


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
