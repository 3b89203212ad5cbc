"""Following a room as it happens: what became durable, and words that are not in the log yet, in one sequence.

A listener that left comes back with the id of the last event it saw and misses nothing. Words carry their offset in
the reply, so that none is told twice and none is left out, whenever somebody joins.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coterie.conversation.events import AssistantTokens, AssistantTurn
from coterie.conversation.replies import LiveText, Replies
from coterie.eventstore import AnyEvent, BusMessage, Store, WhenSlow
from coterie.eventstore.bus import subject_token

FeedItem = AnyEvent | LiveText
_AT_ONCE = 200


class Feed:
    def __init__(self, store: Store, replies: Replies) -> None:
        self._store = store
        self._replies = replies

    def last_id(self) -> int:
        return self._store.reader.last_id()

    @asynccontextmanager
    async def follow(self, room: str, after: int | None = None) -> AsyncIterator[FeedSubscription]:
        """Everything of a room after an event; from now on when none is given."""
        subject = subject_token(room)
        bus = self._store.bus
        # Events and words alike, and only that there are some: whoever falls behind loses nothing, because events are
        # read from the log and words from the reply itself. A listener that rests between two looks is not woken.
        async with bus.subscribe(f"*.{subject}.>", limit=1, when_slow=WhenSlow.DROP_OLDEST) as news:
            yield FeedSubscription(self._store, self._replies, room, news, self.last_id() if after is None else after)


class FeedSubscription:
    """One listener in one room."""

    def __init__(self, store: Store, replies: Replies, room: str, news: AsyncIterator[BusMessage], after: int) -> None:
        self.after = after
        """The last event that was told."""
        self._store = store
        self._replies = replies
        self._room = room
        self._told: tuple[str, int] = ("", 0)
        self._last = -1
        """The log's last event when it was last looked at: while words come, nothing else does as a rule."""
        self._news = news
        self._over = False

    def mark_sent(self, reply: str, length: int) -> None:
        """So much of a reply has been told already, in a snapshot."""
        self._told = (reply, length)

    def close(self) -> None:
        """Let the iteration come to its end. Others in the room look around, too, and find nothing new."""
        self._over = True
        self._store.bus.publish([BusMessage(f"live.{subject_token(self._room)}.over", None)])

    async def __aiter__(self) -> AsyncIterator[FeedItem]:
        """One after the other."""
        async for look in self.batches():
            for news in look:
                yield news

    async def batches(self) -> AsyncIterator[list[FeedItem]]:
        """All that is new at a look, in its order: whoever shows how things stand now need not show each step."""
        while not self._over:
            # Words first: a reply that ended meanwhile is told whole by its event.
            words = self._fresh_words()
            last = self._store.reader.last_id()
            page = self._since() if last != self._last else []
            # What a reply's tokens were is told as they are spoken.
            news: list[FeedItem] = [event for event in page if not isinstance(event.payload, AssistantTokens)]
            caught_up = len(page) < _AT_ONCE
            self._last = last if caught_up else -1
            if words is not None and caught_up and not any(_ends(event, words.reply) for event in page):
                self._told = (words.reply, words.offset + len(words.text))
                news.append(words)
            self.after = page[-1].id if page else self.after
            if news:
                yield news
            if caught_up and not self._over:
                await anext(self._news)

    def _since(self) -> list[AnyEvent]:
        return self._store.reader.read(after=self.after, limit=_AT_ONCE, only_stream=self._room)

    def _fresh_words(self) -> LiveText | None:
        so_far = self._replies.partial(self._room)
        if so_far is None:
            return None
        told = self._told[1] if self._told[0] == so_far.reply else 0
        rest = so_far.text[told:]
        return LiveText(self._room, so_far.reply, told, rest) if rest else None


def _ends(event: AnyEvent, reply: str) -> bool:
    return isinstance(event.payload, AssistantTurn) and event.payload.reply == reply
