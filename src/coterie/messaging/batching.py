"""What is answered together: a burst from several people, or what piled up while we were away. P4, D14

One person's messages are answered one by one. Where several people talk, the answer waits until they pause. What is
older than a limit gets one answer for all of it: nobody wants a hundred replies to yesterday.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

from coterie.base.clock import Clock
from coterie.messaging.inbox import Inbox, ReceivedMessage
from coterie.messaging.protocol import Account, Incoming, IncomingMessage, RoomRef
from coterie.messaging.settings import SurfacesSettings

_MOST_LINES = 40


class MessageBatcher:
    def __init__(
        self, inbox: Inbox, clock: Clock, settings: SurfacesSettings, may_speak_in: Callable[[Account, RoomRef], bool]
    ) -> None:
        self._inbox = inbox
        self._clock = clock
        self._settings = settings
        self._heard_in = may_speak_in

    async def next_batch(self, room: RoomRef, waiting: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
        first = waiting[0]
        if first.batch is not None:  # it was settled before a crash
            return [one for one in waiting if one.batch == first.batch]
        run = self._run(waiting)
        limit = self._clock.now() - timedelta(seconds=self._settings.backlog_s)
        old = [one for one in run if one.at < limit]
        if len(old) > 1:
            return old
        if len(run) > 0 and self._inbox.several_people(room, run[-1].id):
            return await self._until_quiet(room, run)
        return waiting[:1]

    async def _until_quiet(self, room: RoomRef, run: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
        most = run[0].ts + timedelta(seconds=self._settings.burst_most_s)
        while True:
            quiet = run[-1].ts + timedelta(seconds=self._settings.burst_quiet_s)
            wait = (min(quiet, most) - self._clock.now()).total_seconds()
            if wait <= 0:
                return run
            await asyncio.sleep(wait)
            run = self._run(self._inbox.waiting(room))

    def _run(self, waiting: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        """Messages in a row that may be answered together: in one thread, all from people who may speak there."""
        run: list[ReceivedMessage] = []
        for one in waiting:
            it = one.incoming
            fits = isinstance(it, IncomingMessage) and one.batch is None and self._heard_in(it.account, it.room)
            if not fits or (run and it.thread != run[0].incoming.thread):
                break
            run.append(one)
        return run


def merge_messages(batch: Sequence[ReceivedMessage]) -> Incoming:
    """Several messages as one: who said what, in order. The first one's key stands for all."""
    first = batch[0].incoming
    if len(batch) == 1 or not isinstance(first, IncomingMessage):
        return first
    messages = [one.incoming for one in batch if isinstance(one.incoming, IncomingMessage)]
    several = len({it.account.id for it in messages}) > 1
    lines = [f"{it.account.name or it.account.id}: {it.text}" if several else it.text for it in messages]
    if len(lines) > _MOST_LINES:
        lines = [f"({len(lines) - _MOST_LINES} earlier messages are left out.)", *lines[-_MOST_LINES:]]
    return first.model_copy(
        update={
            "text": "\n".join(lines),
            "attachments": tuple(file for it in messages for file in it.attachments),
            "reply_to": None,
        }
    )
