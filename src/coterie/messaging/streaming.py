"""A message that grows on a platform while it is being made. P5

It is shown once there is something to show and then edited at the platform's pace. All of it is for the eye only: the
final form goes through the outbox, so that whatever fails here costs a preview and never a word.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress

from coterie.base.clock import Clock
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.eventstore import NewEvent, Store
from coterie.messaging.errors import PlatformRateLimited
from coterie.messaging.inbox import room_stream
from coterie.messaging.outbox import MessageOpened
from coterie.messaging.ports import EditPacer, Surface
from coterie.messaging.protocol import OutgoingMessage, OutgoingPart

# Cutting a long text into messages at sensible places. P5
#
# The parts joined are the text again, to the byte. A cut is looked for, in this order, after a paragraph, a line, a
# sentence, a word; inside a code block only if nothing else fits.


_PLACES = tuple(re.compile(pattern) for pattern in (r"\n[ \t]*\n", r"\n", r"(?<=[.!?…。！？])\s", r"\s"))
_FENCE = re.compile(r"^(?:```|~~~)", re.MULTILINE)
_LEAST = 0.3
"""A cut in the first third would leave a stub: a lesser place further on is better."""


def split_text(text: str, max_length: int, length_of: Callable[[str], int] = len) -> list[str]:
    """At least one part, none longer than `longest` by `measure`."""
    parts: list[str] = []
    while True:
        part = first_part(text, max_length, length_of)
        parts.append(part)
        text = text[len(part) :]
        if not text:
            return parts


def first_part(text: str, max_length: int, length_of: Callable[[str], int] = len) -> str:
    """All of the text if it fits, else as much as makes a sensible beginning."""
    # Nothing is measured as less than one, so what lies beyond cannot be part of it.
    window = text[: max_length + 1]
    if len(window) == len(text) and length_of(window) <= max_length:
        return text
    window = window[: _fitting(window, max_length, length_of)]
    return window[: _cut(window)]


def _fitting(text: str, longest: int, measure: Callable[[str], int]) -> int:
    """How many characters of the text are not too long; at least one, so that every part takes something."""
    low, high = 1, min(len(text), longest)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if measure(text[:middle]) <= longest else (low, middle - 1)
    return low


def _cut(window: str) -> int:
    least = int(len(window) * _LEAST)
    fences = [match.start() for match in _FENCE.finditer(window)]
    for outside_code in (True, False):
        for place in _PLACES:
            ends = [match.end() for match in place.finditer(window, least)]
            for end in reversed(ends):
                if not outside_code or bisect_right(fences, end - 1) % 2 == 0:
                    return end
    return len(window)


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
