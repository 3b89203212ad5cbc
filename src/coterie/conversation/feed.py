"""Follow a room live: events as they become durable and reply text before it is in the log, in one sequence.

A subscriber that reconnects passes the id of the last event it saw and misses nothing. Live text carries its offset in
the reply, so that no part is repeated or skipped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Any

from coterie.conversation.events import AssistantTokens, AssistantTurn
from coterie.conversation.replies import LiveText, Replies
from coterie.eventstore import AnyEvent, BusMessage, Store, WhenSlow, subject_token

FeedItem = AnyEvent | LiveText
_PAGE_SIZE = 200


_MAX_SHARED = 1_000


class SharedReads:
    """Results of reads that hold until the log grows. Many pages that follow one chat ask for the same ones."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._at = -1
        self._results: dict[Hashable, Any] = {}

    def current(self, last: int | None = None) -> dict[Hashable, Any]:
        """The results by key, to look one up or to add it. `last` is the id of the last event, if it is known."""
        at = self._store.reader.last_id() if last is None else last
        if at != self._at or len(self._results) >= _MAX_SHARED:
            self._at, self._results = at, {}
        return self._results


class Feed:
    def __init__(self, store: Store, replies: Replies) -> None:
        self._store = store
        self._replies = replies
        self.shared = SharedReads(store)

    def last_id(self) -> int:
        return self._store.reader.last_id()

    @asynccontextmanager
    async def follow(self, room: str, after: int | None = None) -> AsyncIterator[FeedSubscription]:
        """Everything in a room after an event, or from now on without one."""
        subject = subject_token(room)
        # The bus only signals that there is something new: events are read from the log and text from the reply itself,
        # so a slow subscriber loses nothing, and one that pauses between two reads is not woken.
        async with self._store.bus.subscribe(f"*.{subject}.>", limit=1, when_slow=WhenSlow.DROP_OLDEST) as signals:
            start = self.last_id() if after is None else after
            yield FeedSubscription(self._store, self._replies, self.shared, room, signals, start)


class FeedSubscription:
    """One subscriber of one room."""

    def __init__(
        self,
        store: Store,
        replies: Replies,
        shared: SharedReads,
        room: str,
        signals: AsyncIterator[BusMessage],
        after: int,
    ) -> None:
        self.after = after
        """The id of the last event that was sent."""
        self._store = store
        self._replies = replies
        self._shared = shared
        self._room = room
        self._sent: tuple[str, int] = ("", 0)
        """The current reply, and how many characters of it were sent."""
        self._last_seen = -1
        """The log's last event at the last read: while text streams, there is usually no other."""
        self._signals = signals
        self._closed = False

    def mark_sent(self, reply: str, length: int) -> None:
        """This many characters of a reply were already sent, in a snapshot."""
        self._sent = (reply, length)

    def close(self) -> None:
        """End the iteration. The signal also wakes the room's other subscribers, who find nothing new."""
        self._closed = True
        self._store.bus.publish([BusMessage(f"live.{subject_token(self._room)}.over", None)])

    async def __aiter__(self) -> AsyncIterator[FeedItem]:
        async for batch in self.batches():
            for item in batch:
                yield item

    async def batches(self) -> AsyncIterator[list[FeedItem]]:
        """Everything new at each read, in order, for subscribers that show only the resulting state."""
        while not self._closed:
            # Text before events: the event of a reply that ended meanwhile contains all of its text.
            text = self._new_text()
            last = self._store.reader.last_id()
            page = self._read_page(last) if last != self._last_seen else []
            # Token events were already sent as live text.
            batch: list[FeedItem] = [event for event in page if not isinstance(event.payload, AssistantTokens)]
            caught_up = len(page) < _PAGE_SIZE
            self._last_seen = last if caught_up else -1
            if text is not None and caught_up and not any(_is_end_of(event, text.reply) for event in page):
                self._sent = (text.reply, text.offset + len(text.text))
                batch.append(text)
            self.after = page[-1].id if page else self.after
            if batch:
                yield batch
            if caught_up and not self._closed:
                await anext(self._signals)

    async def reply_text(self, reply: str) -> AsyncIterator[str]:
        """The text of one reply as it arrives, until the reply has ended; the parts joined are the whole text."""
        length = 0
        async for item in self:
            if isinstance(item, LiveText):
                if item.reply == reply and item.offset + len(item.text) > length:
                    yield item.text[length - item.offset :]
                    length = item.offset + len(item.text)
            elif isinstance(item.payload, AssistantTurn) and item.payload.reply == reply:
                if rest := item.payload.text[length:]:
                    yield rest
                return

    def _read_page(self, last: int) -> list[AnyEvent]:
        known, key = self._shared.current(last), ("page", self._room, self.after)
        if key not in known:
            known[key] = self._store.reader.read(after=self.after, limit=_PAGE_SIZE, only_stream=self._room)
        page: list[AnyEvent] = known[key]
        return page

    def _new_text(self) -> LiveText | None:
        partial = self._replies.partial(self._room)
        if partial is None:
            return None
        sent = self._sent[1] if self._sent[0] == partial.reply else 0
        rest = partial.text[sent:]
        return LiveText(self._room, partial.reply, sent, rest) if rest else None


def _is_end_of(event: AnyEvent, reply: str) -> bool:
    return isinstance(event.payload, AssistantTurn) and event.payload.reply == reply
