"""A message that grows on a platform while it is being made. P5

It is shown once there is something to show and then edited at the platform's pace. All of it is for the eye only: the
final form goes through the outbox, so that whatever fails here costs a preview and never a word.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from coterie.base.clock import Clock
from coterie.base.logging import get_logger
from coterie.base.masking import redact
from coterie.engine.inbox import room_stream
from coterie.engine.outbox import MessageOpened
from coterie.engine.pacing import EditPacer
from coterie.engine.protocol import OutgoingMessage, OutgoingPart
from coterie.engine.splitting import first_part
from coterie.engine.surface import Surface
from coterie.engine.surface_errors import PlatformRateLimited
from coterie.kernel import NewEvent, Store

_log = get_logger(__name__)


class StreamedMessage:
    def __init__(
        self, surface: Surface, store: Store, clock: Clock, token: str, shown_before: str | None = None
    ) -> None:
        """`before` is the id of what an earlier process showed of it; empty if it may have shown something."""
        self.is_shown = shown_before is not None
        """Whether anything of it was shown, or may have been."""
        self._before = shown_before
        self._surface = surface
        self._store = store
        self._clock = clock
        self._token = token
        self._first: OutgoingPart | None = None
        self._text = ""
        self._shown = ""
        self._over = asyncio.Event()
        self._pacer: EditPacer | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, part: OutgoingPart) -> None:
        self._text += part.text
        now = self._clock.monotonic()
        if self._first is None:
            self._first = part
            self._pacer = EditPacer(self._surface.capabilities.pace, now)
            self._task = asyncio.create_task(self._show(part, self._pacer), name=f"growing {self._token}")
        elif self._pacer is not None:
            self._pacer.text_changed(now)

    async def finish(self) -> None:
        """Let whatever is on its way arrive; nothing is shown after this."""
        self._over.set()
        if self._task is not None:
            await self._task

    async def _show(self, first: OutgoingPart, pacer: EditPacer) -> None:
        if self._before == "" and not self._surface.capabilities.deduplicates:
            return  # another preview could stand beside the first; the final form comes through the outbox
        try:
            message = self._before or ""
            while (due := pacer.next_edit_at()) is not None and not await self._ended_by(due):
                text = first_part(
                    self._text, self._surface.capabilities.max_length, self._surface.capabilities.length_of
                )
                if text == self._shown or not text.strip():
                    await self._ended_by(self._clock.monotonic() + self._surface.capabilities.pace.min_interval_s)
                    continue
                try:
                    message = await self._put(first, text, message)
                    self._shown = text
                except PlatformRateLimited as error:
                    pacer.pause_until(self._clock.monotonic() + error.retry_after_s)
                    continue
                pacer.edited(self._clock.monotonic())
        except Exception as error:
            _log.info("a preview ended early", surface=self._surface.name, error=redact(str(error)))

    async def _put(self, first: OutgoingPart, text: str, message: str) -> str:
        now = OutgoingMessage(room=first.room, text=text, thread=first.thread, streamed=True)
        if message:
            await self._surface.edit(now, message, f"{self._token}.{len(text)}")
            return message
        if not self.is_shown:
            # Said before it is done: after a crash in between, the final form knows that something may stand there.
            await self._record("")
            self.is_shown = True
        message = await self._surface.send(now, self._token)
        await self._record(message)
        return message

    async def _record(self, message: str) -> None:
        if self._first is not None:
            payload = MessageOpened(token=self._token, message=message)
            await self._store.append([NewEvent(room_stream(self._first.room), payload)])

    async def _ended_by(self, due: float) -> bool:
        """Wait until then, or until it is over; whether it is."""
        wait = due - self._clock.monotonic()
        if wait > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), wait)
        return self._over.is_set()
