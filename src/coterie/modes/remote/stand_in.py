"""A character without an agent: it says what is written for it, after a while, as an agent would. P12

For trying a surface out: rooms, streaming, the notice that something takes long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from coterie.engine.agents import AgentEntry
from coterie.modes.remote.line import AgentRequest, AgentUpdate
from coterie.modes.remote.wire import DoneStep, ProgressStep, TextStep

_DEFAULT_LINES = ("This is a stand-in: no agent plays this character yet. I heard: {text}",)
_WORD_PAUSE_S = 0.02


class ScriptedConnection:
    def __init__(self, entry: AgentEntry) -> None:
        self._lines = entry.says or _DEFAULT_LINES
        self._latency_s = entry.latency_s
        self._answered: dict[str, int] = {}
        """How many answers each chat has had: the script goes round."""
        self._stop_requests: dict[str, asyncio.Event] = {}

    async def ask(self, request: AgentRequest) -> AsyncIterator[AgentUpdate]:
        message, chat = request.message.id, request.message.chat
        number = self._answered[chat] = self._answered.get(chat, -1) + 1
        answer = self._lines[number % len(self._lines)].replace("{text}", request.message.text)
        stopped = self._stop_requests[message] = asyncio.Event()
        yield ProgressStep(message=message, number=1, text="thinking")
        at, pause_s = 1, self._latency_s
        for at, word in enumerate(answer.split(" "), 2):
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), pause_s)
            if stopped.is_set():
                break
            yield TextStep(message=message, number=at, text=word if at == 2 else f" {word}")
            pause_s = min(_WORD_PAUSE_S, self._latency_s)
        del self._stop_requests[message]
        yield DoneStep(message=message, number=at + 1)

    async def stop(self, message: str) -> None:
        if message in self._stop_requests:
            self._stop_requests[message].set()

    async def acknowledge(self, message: str) -> None:
        """It keeps nothing."""

    async def close(self) -> None:
        """It holds nothing open."""
