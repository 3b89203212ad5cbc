"""A character without an agent: it says what is written for it, after a while, as an agent would. P12

For trying a surface out: rooms, streaming, the notice that something takes long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from coterie.engine.agents import AgentEntry
from coterie.modes.remote.line import Asking, News
from coterie.modes.remote.wire import Done, Progress, TextChunk

_SAYS = ("This is a stand-in: no agent plays this character yet. I heard: {text}",)
_WORD_S = 0.02


class StandIn:
    def __init__(self, entry: AgentEntry) -> None:
        self._says = entry.says or _SAYS
        self._latency_s = entry.latency_s
        self._told: dict[str, int] = {}
        """How many answers each chat has had: the script goes round."""
        self._under_way: dict[str, asyncio.Event] = {}

    async def ask(self, asking: Asking) -> AsyncIterator[News]:
        message, chat = asking.say.id, asking.say.chat
        number = self._told[chat] = self._told.get(chat, -1) + 1
        answer = self._says[number % len(self._says)].replace("{text}", asking.say.text)
        stopped = self._under_way[message] = asyncio.Event()
        yield Progress(message=message, number=1, text="thinking")
        at, pause_s = 1, self._latency_s
        for at, word in enumerate(answer.split(" "), 2):
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), pause_s)
            if stopped.is_set():
                break
            yield TextChunk(message=message, number=at, text=word if at == 2 else f" {word}")
            pause_s = min(_WORD_S, self._latency_s)
        del self._under_way[message]
        yield Done(message=message, number=at + 1)

    async def stop(self, message: str) -> None:
        if message in self._under_way:
            self._under_way[message].set()

    async def settle(self, message: str) -> None:
        """It keeps nothing."""

    async def close(self) -> None:
        """It holds nothing open."""
