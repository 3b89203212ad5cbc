"""Stream a reply: publish its text live, and append it to the log in small batches.

At most one second or 64 tokens of a reply are not yet durable. However it ends (complete, stopped, provider error,
process killed), the text so far is kept with the reason; `recover` closes replies that a crash left open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.supervisor import run_once
from coterie.conversation.events import AssistantTokens, AssistantTurn
from coterie.conversation.reply_filters import SpeakerGuard
from coterie.conversation.turns import Turn, TurnQueries
from coterie.eventstore import AnyEvent, Bus, BusMessage, NewEvent, NewJob, Store, subject_token
from coterie.llm import ModelError, StreamedReply, TextDelta, status_of

FLUSH_TOKENS = 64
FLUSH_S = 1.0
NOTIFY_S = 0.1
"""Subscribers are notified at most ten times a second: each notification wakes all of them."""
_PAUSE_INTERVALS = 3
"""After this many intervals without text, what was held back is published."""
_log = get_logger(__name__)

JobsAfterReply = Callable[[AssistantTurn], Sequence[NewJob]]
"""The jobs that a finished reply causes; they are queued in the transaction that records it."""


@dataclass(frozen=True)
class LiveText:
    """Reply text that subscribers get before it is in the log."""

    room: str
    reply: str
    offset: int
    """How many characters of the reply come before this text."""
    text: str


class Replies:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._turns = TurnQueries(store)
        self._running: dict[str, asyncio.Task[AssistantTurn]] = {}
        self._buffers: dict[str, _ReplyBuffer] = {}

    async def start(
        self,
        room: str,
        reply_id: str,
        reply: StreamedReply,
        speaker: str,
        jobs_after: JobsAfterReply,
        *,
        start_events: Sequence[NewEvent] = (),
        guard: SpeakerGuard | None = None,
        beginning: str = "",
    ) -> None:
        """Stream a reply in the background. Returns when its start is durable.

        `beginning` is text that the reply continues; the reply's text includes it.

        `start_events` record the start, unless it is in the log already. The model is called meanwhile, but none of its
        text is published or stored before that.
        """
        start_recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        guard = guard or SpeakerGuard()
        run = self._run(room, reply_id, reply, speaker, jobs_after, guard, start_recorded, beginning)
        task = self._running[room] = run_once(f"reply {reply_id}", run)
        task.add_done_callback(lambda _: self._running.pop(room, None) if self._running.get(room) is task else None)
        if not start_events:
            start_recorded.set_result(None)
            return

        def on_recorded(append_task: asyncio.Task[list[AnyEvent]]) -> None:
            if append_task.cancelled() or append_task.exception() is not None:
                start_recorded.cancel()
                task.cancel()
            else:
                start_recorded.set_result(None)

        # Started after the reply's task, so that the model is called first. Nothing is awaited in between: a caller
        # that is cancelled there would leave the reply waiting for a record that is never written.
        append_task = asyncio.create_task(self._store.append(start_events))
        append_task.add_done_callback(on_recorded)
        await asyncio.shield(append_task)  # the reply goes on even if the caller is cancelled

    def is_running(self, room: str) -> bool:
        """False already while the end of the reply is being recorded."""
        task, buffer = self._running.get(room), self._buffers.get(room)
        return task is not None and not task.done() and not (buffer is not None and buffer.is_complete)

    def partial(self, room: str) -> LiveText | None:
        """All text of the running reply so far, durable or not."""
        buffer = self._buffers.get(room)
        return LiveText(room, buffer.reply, 0, buffer.text) if buffer is not None else None

    async def stop(self, room: str) -> bool:
        """End the running reply and keep its text. False if there is none."""
        if not self.is_running(room):
            await self.wait(room)
            return False
        task = self._running[room]
        task.cancel()
        await asyncio.wait([task])
        return True

    async def wait(self, room: str) -> None:
        """Wait until the running reply has ended."""
        task = self._running.get(room)
        if task is not None:
            await asyncio.wait([task])

    async def close(self) -> None:
        for room in list(self._running):
            await self.stop(room)

    async def recover(
        self, jobs_after: Callable[[Turn], JobsAfterReply], is_own: Callable[[Turn], bool] = lambda _: True
    ) -> int:
        """Close replies that a crash left open as truncated, with their durable text.

        `is_own` selects the turns of the calling mode: all modes share the turns.
        """
        open_replies = [turn for turn in self._turns.open_replies() if not self.is_running(turn.room) and is_own(turn)]
        for turn in open_replies:
            ended = AssistantTurn(reply=turn.id, text=turn.text, truncated=True, why="restart")
            await self._end(turn.room, ended, turn.speaker, jobs_after(turn))
        return len(open_replies)

    async def _run(
        self,
        room: str,
        reply_id: str,
        reply: StreamedReply,
        speaker: str,
        jobs_after: JobsAfterReply,
        guard: SpeakerGuard,
        start_recorded: asyncio.Future[None],
        beginning: str,
    ) -> AssistantTurn:
        buffer = self._buffers[room] = _ReplyBuffer(self._store, room, reply_id, speaker)
        truncated, why, status, complete = False, "", None, False
        retry_after_s: float | None = None
        flush_task = run_once(f"store reply {reply_id}", buffer.flush_regularly())
        try:
            async for chunk in reply:
                if not start_recorded.done():
                    await asyncio.shield(start_recorded)
                if isinstance(chunk, TextDelta):
                    if beginning:
                        buffer.add(_joined(beginning, chunk.text))
                        beginning = ""
                    buffer.add(guard.filter(chunk.text))
                    if guard.ended:
                        break
                    if buffer.is_full:
                        await buffer.flush()
            else:
                complete = True
                if reply.answer.reason == "length":
                    truncated, why = True, "length"
        except asyncio.CancelledError:
            truncated, why = True, "stopped"
        except CoterieError as error:
            truncated, why, status = True, redact(str(error)), status_of(error)
            retry_after_s = error.retry_after if isinstance(error, ModelError) else None
        except Exception as error:
            _log.exception("reply failed", room=room, reply=reply_id)
            truncated, why = True, f"Something unexpected went wrong ({type(error).__name__}). Regenerate to try again."
        finally:
            flush_task.cancel()
        if not complete:  # in this task, which opened the connection: it is closed before anything else happens
            await _close_stream(reply)
        await asyncio.wait([start_recorded])
        if start_recorded.cancelled():  # its start could not be recorded, so nothing of it was shown
            self._remove(buffer)
            raise asyncio.CancelledError
        buffer.add(beginning)  # nothing was written after it
        buffer.add(guard.flush())
        buffer.finish()
        ended = AssistantTurn(
            reply=reply_id,
            text=buffer.text,
            truncated=truncated,
            why=why,
            status=status,
            retry_after_s=retry_after_s,
            model=reply.model,
        )
        # A second cancellation must not keep the end of the reply, or its usage, from being recorded.
        try:
            await asyncio.shield(asyncio.gather(self._end(room, ended, speaker, jobs_after), _close_stream(reply)))
        finally:
            self._remove(buffer)
        return ended

    def _remove(self, buffer: _ReplyBuffer) -> None:
        """The next reply may have started as soon as the end of this one was in the log."""
        if self._buffers.get(buffer.room) is buffer:
            del self._buffers[buffer.room]

    async def _end(self, room: str, ended: AssistantTurn, speaker: str, jobs_after: JobsAfterReply) -> list[AnyEvent]:
        event = NewEvent(room, ended, actor=speaker, key=f"reply:{room}:{ended.reply}", turn=ended.reply)
        return await self._store.append([event], jobs=jobs_after(ended))


def _joined(beginning: str, following: str) -> str:
    """The beginning with a space after a complete word, unless what follows brings its own or continues the word."""
    ends_sentence = beginning.rstrip()[-1:] in '.!?…"”»*)'
    return f"{beginning.rstrip()} " if ends_sentence and following[:1].isalnum() else beginning


async def _close_stream(reply: StreamedReply) -> None:
    try:
        await reply.stop()
    except Exception:
        _log.exception("the model's stream was not closed cleanly")


class _ReplyBuffer:
    """Collects the text of a reply, notifies subscribers, and appends token events to the log."""

    def __init__(self, store: Store, room: str, reply_id: str, speaker: str) -> None:
        self.text = ""
        self.is_complete = False
        """Whether the text is complete."""
        self._store = store
        self.room = room
        self.reply = reply_id
        self._speaker = speaker
        self._unflushed: list[str] = []
        self._notifier = _LiveNotifier(store.bus, room, reply_id)

    async def flush_regularly(self) -> None:
        """So that text is durable soon even while the provider pauses."""
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()

    def add(self, text: str) -> None:
        if text:
            self.text += text
            self._unflushed.append(text)
            self._notifier.text_changed(self.text)

    def finish(self) -> None:
        self.is_complete = True
        self._notifier.finish(self.text)

    @property
    def is_full(self) -> bool:
        return len(self._unflushed) >= FLUSH_TOKENS

    async def flush(self) -> None:
        text, self._unflushed = "".join(self._unflushed), []
        if text:
            payload = AssistantTokens(reply=self.reply, text=text)
            await self._store.append([NewEvent(self.room, payload, actor=self._speaker, turn=self.reply)])


class _LiveNotifier:
    """Publishes new text: at once after a pause, else together with the next tokens or after a short wait."""

    def __init__(self, bus: Bus, room: str, reply_id: str) -> None:
        self._bus = bus
        self._subject = f"live.{subject_token(room)}.words"
        self._room = room
        self._reply = reply_id
        self._loop = asyncio.get_running_loop()
        self._text = ""
        self._published = 0
        self._published_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def text_changed(self, text: str) -> None:
        self._text = text
        if self._loop.time() - self._published_at >= NOTIFY_S:
            self._publish()
        elif self._timer is None:
            self._timer = self._loop.call_at(self._published_at + _PAUSE_INTERVALS * NOTIFY_S, self._publish_held)

    def finish(self, text: str) -> None:
        """Publish the rest now."""
        if self._timer is not None:
            self._timer.cancel()
        self._text = text
        if len(text) > self._published:
            self._publish()

    def _publish_held(self) -> None:
        """For a model that pauses; while tokens arrive, the next one publishes what is held."""
        self._timer = None
        if len(self._text) > self._published:
            due = self._published_at + _PAUSE_INTERVALS * NOTIFY_S
            if self._loop.time() >= due:
                self._publish()
            else:
                self._timer = self._loop.call_at(due, self._publish_held)

    def _publish(self) -> None:
        live = LiveText(self._room, self._reply, self._published, self._text[self._published :])
        self._published, self._published_at = len(self._text), self._loop.time()
        self._bus.publish([BusMessage(self._subject, live)])
