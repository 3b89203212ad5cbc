"""The port of whoever plays a character from elsewhere: a message goes in, steps come out.

A remote agent at the end of a WebSocket is one; the stand-in, which needs no agent, is another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from coterie.engine.protocol import Attachment
from coterie.modes.remote.wire import Say, Step


@dataclass(frozen=True)
class Anew:
    """Whoever answered has forgotten it and begins again: what it said so far does not count."""


News = Step | Anew


@dataclass(frozen=True)
class Asking:
    """A message on its way to an agent."""

    say: Say
    attachments: tuple[Attachment, ...] = ()
    read: Callable[[Attachment], AsyncIterator[bytes]] | None = None
    """How an attachment's bytes are had."""


class AgentLine(Protocol):
    def ask(self, asking: Asking) -> AsyncIterator[News]:
        """Every step until `Done` or `Failed`, each once. `AgentError` where nothing (more) comes."""
        ...

    async def stop(self, message: str) -> None:
        """It need not go on with this one: `ask` ends."""
        ...

    async def settle(self, message: str) -> None:
        """What it said is kept: it may forget it."""
        ...

    async def close(self) -> None: ...
