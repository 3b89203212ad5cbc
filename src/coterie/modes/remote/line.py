"""The port of whoever plays a character from elsewhere: a message goes in, steps come out.

A remote agent at the end of a WebSocket is one; the stand-in, which needs no agent, is another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from coterie.engine.protocol import Attachment
from coterie.modes.remote.wire import MessageFrame, Step


@dataclass(frozen=True)
class AgentRestarted:
    """Whoever answered has forgotten it and begins again: what it said so far does not count."""


AgentUpdate = Step | AgentRestarted


@dataclass(frozen=True)
class AgentRequest:
    """A message on its way to an agent."""

    message: MessageFrame
    attachments: tuple[Attachment, ...] = ()
    read: Callable[[Attachment], AsyncIterator[bytes]] | None = None
    """How an attachment's bytes are had."""


class AgentConnection(Protocol):
    def ask(self, request: AgentRequest) -> AsyncIterator[AgentUpdate]:
        """Every step until `Done` or `Failed`, each once. `AgentError` where nothing (more) comes."""
        ...

    async def stop(self, message: str) -> None:
        """It need not go on with this one: `ask` ends."""
        ...

    async def acknowledge(self, message: str) -> None:
        """What it said is kept: it may forget it."""
        ...

    async def close(self) -> None: ...
