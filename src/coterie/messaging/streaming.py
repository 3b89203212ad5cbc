"""Show a message on the platform while it is generated, and fit messages to what the platform takes.

Streaming is only a preview: the final message goes through the outbox, so a failure here loses no text.
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
from coterie.messaging.delivery import MessageOpened, ShownMessage
from coterie.messaging.errors import PlatformRateLimited
from coterie.messaging.inbox import room_stream
from coterie.messaging.ports import Capabilities, EditPacer, Surface
from coterie.messaging.protocol import (
    Deliverable,
    OutgoingMessage,
    OutgoingNotification,
    OutgoingPart,
    OutgoingReaction,
    OutgoingUI,
)

_log = get_logger(__name__)
_BREAKS = tuple(re.compile(pattern) for pattern in (r"\n[ \t]*\n", r"\n", r"(?<=[.!?…。！？])\s", r"\s"))
_FENCE = re.compile(r"^(?:```|~~~)[^\n]*", re.MULTILINE)
_MAX_FENCE = 40
FILE_TOO_LARGE = "{name} is larger than the {limit:.0f} MB that can be sent here. It is in the workspace: {path}"
_MIN_FILL = 0.3
"""A split in the first third would leave a stub: a less natural place further on is better."""


def split_text(text: str, max_length: int, length_of: Callable[[str], int] = len) -> list[str]:
    """At least one part, none longer than `max_length`; joined they are the text.

    A split is made after a paragraph, a line, a sentence or a word, in this order; inside a code block only if nothing
    else fits.
    """
    return [part for part, _ in split_markdown(text, max_length, length_of)]


def split_markdown(text: str, max_length: int, length_of: Callable[[str], int] = len) -> list[tuple[str, str]]:
    """The same parts, each with the line that opened the code block in which it begins, or an empty string.

    A part that begins inside code leaves room for opening it again and for closing it.
    """
    parts: list[tuple[str, str]] = []
    fence = ""
    while True:
        reserved = length_of(fence) + 5 if fence else 0
        part = first_part(text, max(max_length - reserved, 1), length_of, starts_in_code=bool(fence))
        parts.append((part, fence))
        text = text[len(part) :]
        if not text:
            return parts
        fence = _open_fence(part, fence)


def _open_fence(part: str, fence: str) -> str:
    """The line of the code block that is open at the end of this part."""
    for match in _FENCE.finditer(part):
        fence = "" if fence else match[0].rstrip()[:_MAX_FENCE]
    return fence


def fit_to_platform(outgoing: Deliverable, capabilities: Capabilities) -> list[Deliverable]:
    """What is to be sent, in parts that the platform takes.

    Files and buttons go with the last part, the reference with the first. Where there are no buttons, the text says
    what to write; a file that is too large becomes a sentence; a reaction is left out where there are none.
    """
    if isinstance(outgoing, OutgoingReaction):
        return [outgoing] if capabilities.reactions else []
    text, too_large = outgoing.text, []
    if isinstance(outgoing, OutgoingUI) and not capabilities.buttons:
        text = f"{text}\n{outgoing.fallback}" if outgoing.fallback else text
        outgoing = outgoing.model_copy(update={"buttons": (), "fallback": ""})
    elif isinstance(outgoing, OutgoingMessage) and (limit := capabilities.max_file_bytes) is not None:
        too_large = [file for file in outgoing.attachments if file.size > limit]
        small = tuple(file for file in outgoing.attachments if file.size <= limit)
        outgoing = outgoing.model_copy(update={"attachments": small})
    pieces = split_markdown(text, capabilities.max_length, capabilities.length_of)
    parts: list[Deliverable] = []
    if text or not too_large or not isinstance(outgoing, OutgoingMessage) or outgoing.attachments:
        parts = [_part(outgoing, number, pieces) for number in range(len(pieces))]
    for file in too_large:
        limit_mb = (capabilities.max_file_bytes or 0) / 1e6
        sentence = FILE_TOO_LARGE.format(name=file.name[:100], limit=limit_mb, path=file.path)
        parts.append(OutgoingNotification(room=outgoing.room, thread=outgoing.thread, text=sentence))
    return parts


def _part(
    outgoing: OutgoingMessage | OutgoingUI | OutgoingNotification, number: int, pieces: list[tuple[str, str]]
) -> Deliverable:
    text, fence = pieces[number]
    is_first, is_last = number == 0, number == len(pieces) - 1
    changes: dict[str, object] = {"text": text}
    if isinstance(outgoing, OutgoingMessage):
        changes |= {
            "code_fence": fence,
            "attachments": outgoing.attachments if is_last else (),
            "reply_to": outgoing.reply_to if is_first else None,
        }
    elif isinstance(outgoing, OutgoingUI) and not is_last:
        changes |= {"buttons": (), "fallback": ""}
    return outgoing.model_copy(update=changes)


def first_part(
    text: str, max_length: int, length_of: Callable[[str], int] = len, *, starts_in_code: bool = False
) -> str:
    """All of the text if it fits, else its beginning up to the best split."""
    # Every character counts at least one, so the first part cannot reach beyond this window.
    window = text[: max_length + 1]
    if len(window) == len(text) and length_of(window) <= max_length:
        return text
    window = window[: _fitting_length(window, max_length, length_of)]
    return window[: _best_split(window, starts_in_code=starts_in_code)]


def _fitting_length(text: str, max_length: int, length_of: Callable[[str], int]) -> int:
    """How many characters fit; at least one, so that splitting always advances."""
    low, high = 1, min(len(text), max_length)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if length_of(text[:middle]) <= max_length else (low, middle - 1)
    return low


def _best_split(window: str, *, starts_in_code: bool) -> int:
    least = int(len(window) * _MIN_FILL)
    fences = [match.start() for match in _FENCE.finditer(window)]
    if starts_in_code:
        fences.insert(0, -1)
    for outside_code in (True, False):
        for pattern in _BREAKS:
            ends = [match.end() for match in pattern.finditer(window, least)]
            for end in reversed(ends):
                if not outside_code or bisect_right(fences, end - 1) % 2 == 0:
                    return end
    return len(window)


class StreamedMessage:
    """A message that is shown once there is text, and then grows at the platform's pace: by edits, or by previews that
    have no message id."""

    def __init__(
        self, surface: Surface, store: Store, clock: Clock, token: str, shown_before: ShownMessage | None = None
    ) -> None:
        """`shown_before` is what an earlier process showed, or may have shown."""
        self.is_shown = shown_before is not None
        """Whether it was shown, or may have been."""
        self._shown_before = shown_before
        self._surface = surface
        self._store = store
        self._clock = clock
        self._token = token
        self._first: OutgoingPart | None = None
        self._text = ""
        self._shown_text = ""
        self._finished = asyncio.Event()
        self._pacer: EditPacer | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, part: OutgoingPart) -> None:
        self._text += part.text
        now = self._clock.monotonic()
        if self._first is None:
            self._first = part
            self._pacer = EditPacer(self._surface.capabilities.pace, now)
            self._task = asyncio.create_task(self._show(part, self._pacer), name=f"stream {self._token}")
        elif self._pacer is not None:
            self._pacer.text_changed(now)

    async def finish(self) -> None:
        """Wait for the edit that is under way; nothing is shown after this."""
        self._finished.set()
        if self._task is not None:
            await self._task

    async def _show(self, first: OutgoingPart, pacer: EditPacer) -> None:
        capabilities = self._surface.capabilities
        shown = self._shown_before
        if shown is not None and not shown.id and not capabilities.previews:
            age = self._clock.now() - shown.since
            if not capabilities.deduplicates_after(age.total_seconds()):
                return  # a second preview could appear beside the first; the final message comes through the outbox
        try:
            message = shown.id if shown is not None else ""
            while (due := pacer.next_edit_at()) is not None and not await self._finished_by(due):
                text = first_part(
                    self._text, self._surface.capabilities.max_length, self._surface.capabilities.length_of
                )
                if text == self._shown_text or not text.strip():
                    await self._finished_by(self._clock.monotonic() + self._surface.capabilities.pace.min_interval_s)
                    continue
                try:
                    message = await self._send_or_edit(first, text, message)
                    self._shown_text = text
                except PlatformRateLimited as error:
                    pacer.pause_until(self._clock.monotonic() + error.retry_after_s)
                    continue
                pacer.edited(self._clock.monotonic())
        except Exception as error:
            _log.info("a preview ended early", surface=self._surface.name, error=redact(str(error)))

    async def _send_or_edit(self, first: OutgoingPart, text: str, message: str) -> str:
        outgoing = OutgoingMessage(
            room=first.room, text=text, thread=first.thread, reply_to=first.reply_to, streamed=True
        )
        if self._surface.capabilities.previews:
            await self._surface.preview(outgoing, self._token)
            return message
        if message:
            await self._surface.edit(outgoing, message, f"{self._token}.{len(text)}")
            return message
        if not self.is_shown:
            # Recorded before it is sent: after a crash in between, the delivery knows that something may be shown.
            await self._record("")
            self.is_shown = True
        message = await self._surface.send(outgoing, self._token)
        await self._record(message)
        return message

    async def _record(self, message: str) -> None:
        if self._first is not None:
            payload = MessageOpened(token=self._token, message=message)
            await self._store.append([NewEvent(room_stream(self._first.room), payload)])

    async def _finished_by(self, due: float) -> bool:
        """Wait until `due` or until it is finished; returns whether it is finished."""
        wait = due - self._clock.monotonic()
        if wait > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._finished.wait(), wait)
        return self._finished.is_set()
