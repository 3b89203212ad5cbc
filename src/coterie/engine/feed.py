"""Following a room as it happens: what became durable, and words that are not in the log yet, in one sequence.

A listener that left comes back with the id of the last event it saw and misses nothing. Words carry their offset in
the reply, so that none is told twice and none is left out, whenever somebody joins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from coterie.engine.events import AssistantTokens, AssistantTurn
from coterie.engine.replies import Live, Replies
from coterie.kernel import AnyEvent, Message, Store, WhenSlow
from coterie.kernel.bus import word

News = AnyEvent | Live


class Feed:
    def __init__(self, store: Store, replies: Replies) -> None:
        self._store = store
        self._replies = replies

    def last_id(self) -> int:
        return self._store.reader.last_id()

    @asynccontextmanager
    async def follow(self, room: str, after: int | None = None) -> AsyncIterator[Following]:
        """Everything of a room after an event; from now on when none is given."""
        subject = word(room)
        bus = self._store.bus
        # Whoever falls behind loses nothing: events are read from the log, words from the reply itself.
        async with (
            bus.subscribe(f"event.{subject}.>", limit=1, when_slow=WhenSlow.DROP_OLDEST) as events,
            bus.subscribe(f"live.{subject}", limit=1, when_slow=WhenSlow.DROP_OLDEST) as words,
        ):
            following = Following(self._store, self._replies, room, self.last_id() if after is None else after)
            try:
                following.listen(events, words)
                yield following
            finally:
                await following.close()


class Following:
    """One listener in one room."""

    def __init__(self, store: Store, replies: Replies, room: str, after: int) -> None:
        self.after = after
        """The last event that was told."""
        self._store = store
        self._replies = replies
        self._room = room
        self._told: tuple[str, int] = ("", 0)
        self._news = asyncio.Event()
        self._over = False
        self._ears: list[asyncio.Task[None]] = []

    def knows(self, reply: str, length: int) -> None:
        """So much of a reply has been told already, in a snapshot."""
        self._told = (reply, length)

    def listen(self, *sources: AsyncIterator[Message]) -> None:
        self._ears = [asyncio.create_task(self._hear(source)) for source in sources]

    def end(self) -> None:
        """Let the iteration come to its end."""
        self._over = True
        self._news.set()

    async def close(self) -> None:
        for ear in self._ears:
            ear.cancel()
        await asyncio.gather(*self._ears, return_exceptions=True)

    async def _hear(self, source: AsyncIterator[Any]) -> None:
        async for _ in source:
            self._news.set()

    async def __aiter__(self) -> AsyncIterator[News]:
        while not self._over:
            # Words first: a reply that ended meanwhile is told whole by its event.
            words = self._fresh_words()
            ended: set[str] = set()
            while page := self._store.reader.read(after=self.after, limit=200, only_stream=self._room):
                for event in page:
                    self.after = event.id
                    if isinstance(event.payload, AssistantTurn):
                        ended.add(event.payload.reply)
                    if not isinstance(event.payload, AssistantTokens):  # these words are told as they are spoken
                        yield event
            if words is not None and words.reply not in ended:
                self._told = (words.reply, words.offset + len(words.text))
                yield words
            await self._news.wait()
            self._news.clear()

    def _fresh_words(self) -> Live | None:
        so_far = self._replies.so_far(self._room)
        if so_far is None:
            return None
        told = self._told[1] if self._told[0] == so_far.reply else 0
        rest = so_far.text[told:]
        return Live(self._room, so_far.reply, told, rest) if rest else None
