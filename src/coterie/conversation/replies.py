"""Giving a reply: words go to everyone who listens as they come, and to the log in small batches.

Tokens that follow each other closely are told together, ten times a second: nobody reads faster, and waking every
listener for each of them costs more than all else that is done with it. At most a second or 64 tokens of a reply are
not yet durable. However it ends (whole, stopped, provider lost, process killed) the text so far is kept, with why it
broke off; `recover` closes what a crash left open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.conversation.events import AssistantTokens, AssistantTurn
from coterie.conversation.speaker_guard import SpeakerGuard
from coterie.conversation.turns import Turn, TurnQueries
from coterie.eventstore import AnyEvent, BusMessage, NewEvent, NewJob, Store
from coterie.eventstore.bus import Bus, subject_token
from coterie.llm.errors import status_of
from coterie.llm.messages import StreamedReply, TextDelta

FLUSH_TOKENS = 64
FLUSH_S = 1.0
NOTIFY_S = 0.1
"""Words are told ten times a second: nobody reads faster, and each telling wakes everybody who listens."""
_PAUSE = 3
"""A model that has said nothing for so many tellings pauses."""
_log = get_logger(__name__)

JobsAfterReply = Callable[[AssistantTurn], Sequence[NewJob]]
"""The jobs a finished reply causes; they are queued in the transaction that records it."""


@dataclass(frozen=True)
class LiveText:
    """What listeners hear of a reply before it is in the log."""

    room: str
    reply: str
    offset: int
    """How many characters came before: whoever joins late knows what is missing."""
    text: str


class Replies:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._timeline = TurnQueries(store)
        self._running: dict[str, asyncio.Task[AssistantTurn]] = {}
        self._spoken: dict[str, _ReplyBuffer] = {}

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
    ) -> None:
        """Give a reply in the background. Returns when its beginning is durable.

        `begins` is what records that (else it is in the log already). The model is asked meanwhile: nothing that it
        says is heard or kept before.
        """
        recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        giving = self._give(room, reply_id, reply, speaker, jobs_after, guard or SpeakerGuard(), recorded)
        task = self._running[room] = asyncio.create_task(giving, name=f"reply {reply_id}")
        task.add_done_callback(lambda _: self._running.pop(room, None) if self._running.get(room) is task else None)
        if not start_events:
            recorded.set_result(None)
            return
        await asyncio.sleep(0)  # lets it ask the model

        def known(writing: asyncio.Task[list[AnyEvent]]) -> None:
            if writing.cancelled() or writing.exception() is not None:
                recorded.cancel()
                task.cancel()
            else:
                recorded.set_result(None)

        writing = asyncio.create_task(self._store.append(start_events))
        writing.add_done_callback(known)
        await asyncio.shield(writing)  # whoever waits for it may leave: what began goes on

    def is_running(self, room: str) -> bool:
        """Not any more while the end of what was said is being recorded."""
        task, spoken = self._running.get(room), self._spoken.get(room)
        return task is not None and not task.done() and not (spoken is not None and spoken.over)

    def partial(self, room: str) -> LiveText | None:
        """All that was said of the reply which is being given, durable or not."""
        flusher = self._spoken.get(room)
        return LiveText(room, flusher.reply, 0, flusher.text) if flusher is not None else None

    async def stop(self, room: str) -> bool:
        """End the reply that is being given, keeping what was said. False if nobody was speaking."""
        if not self.is_running(room):
            await self.wait(room)
            return False
        task = self._running[room]
        task.cancel()
        await asyncio.wait([task])
        return True

    async def wait(self, room: str) -> None:
        """Until whoever speaks has finished."""
        task = self._running.get(room)
        if task is not None:
            await asyncio.wait([task])

    async def close(self) -> None:
        for room in list(self._running):
            await self.stop(room)

    async def recover(
        self, jobs_after: Callable[[Turn], JobsAfterReply], mine: Callable[[Turn], bool] = lambda _: True
    ) -> int:
        """S12: what a crash left open is closed as truncated, with the text that had been made durable.

        Modes share the timeline, so each says which rooms are its own.
        """
        left = [turn for turn in self._timeline.open_replies() if not self.is_running(turn.room) and mine(turn)]
        for turn in left:
            ended = AssistantTurn(reply=turn.id, text=turn.text, truncated=True, why="restart")
            await self._end(turn.room, ended, turn.speaker, jobs_after(turn))
        return len(left)

    async def _give(
        self,
        room: str,
        reply_id: str,
        reply: StreamedReply,
        speaker: str,
        after: JobsAfterReply,
        voice: SpeakerGuard,
        recorded: asyncio.Future[None],
    ) -> AssistantTurn:
        flusher = self._spoken[room] = _ReplyBuffer(self._store, room, reply_id, speaker)
        truncated, why, status, whole = False, "", None, False
        clockwork = asyncio.create_task(flusher.run())
        try:
            async for chunk in reply:
                if not recorded.done():
                    await asyncio.shield(recorded)
                if isinstance(chunk, TextDelta):
                    flusher.add(voice.filter(chunk.text))
                    if voice.ended:
                        break
                    if flusher.is_full:
                        await flusher.flush()
            else:
                whole = True
                if reply.answer.reason == "length":
                    truncated, why = True, "length"
        except asyncio.CancelledError:
            truncated, why = True, "stopped"
        except CoterieError as error:
            truncated, why, status = True, redact(str(error)), status_of(error)
        except Exception as error:
            _log.exception("reply failed", room=room, reply=reply_id)
            truncated, why = True, f"Something unexpected went wrong ({type(error).__name__}). Regenerate to try again."
        finally:
            clockwork.cancel()
        if not whole:  # here, in the task that asked: its connection is closed before anything else is done
            await _let_go(reply)
        await asyncio.wait([recorded])
        if recorded.cancelled():  # that it began could not be recorded: nobody heard of it
            self._hushed(flusher)
            raise asyncio.CancelledError
        flusher.add(voice.flush())
        flusher.hush()
        ended = AssistantTurn(
            reply=reply_id, text=flusher.text, truncated=truncated, why=why, status=status, model=reply.model
        )
        # A second cancellation must not keep the end of the reply from being recorded. What it cost is, with it.
        try:
            await asyncio.shield(asyncio.gather(self._end(room, ended, speaker, after), _let_go(reply)))
        finally:
            self._hushed(flusher)
        return ended

    def _hushed(self, flusher: _ReplyBuffer) -> None:
        """As soon as its end is in the log, somebody else may have begun to speak."""
        if self._spoken.get(flusher.room) is flusher:
            del self._spoken[flusher.room]

    async def _end(self, room: str, ended: AssistantTurn, speaker: str, after: JobsAfterReply) -> list[AnyEvent]:
        draft = NewEvent(room, ended, actor=speaker, key=f"reply:{room}:{ended.reply}", turn=ended.reply)
        return await self._store.append([draft], jobs=after(ended))


async def _let_go(reply: StreamedReply) -> None:
    try:
        await reply.stop()
    except Exception:
        _log.exception("a model was not let go in order")


class _ReplyBuffer:
    """Collects tokens, tells them at once or nearly so, and makes them durable every so often."""

    def __init__(self, store: Store, room: str, reply_id: str, speaker: str) -> None:
        self.text = ""
        self.over = False
        """Whether everything was said."""
        self._store = store
        self.room = room
        self.reply = reply_id
        self._speaker = speaker
        self._waiting: list[str] = []
        self._telling = _LiveNotifier(store.bus, room, reply_id)

    async def run(self) -> None:
        """A provider that pauses must not keep what it has said in memory alone."""
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()

    def add(self, text: str) -> None:
        if text:
            self.text += text
            self._waiting.append(text)
            self._telling.grew(self.text)

    def hush(self) -> None:
        self.over = True
        self._telling.end(self.text)

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= FLUSH_TOKENS

    async def flush(self) -> None:
        text, self._waiting = "".join(self._waiting), []
        if text:
            payload = AssistantTokens(reply=self.reply, text=text)
            await self._store.append([NewEvent(self.room, payload, actor=self._speaker, turn=self.reply)])


class _LiveNotifier:
    """Lets listeners know that a reply has grown: at once after a pause, else with what comes next, or soon."""

    def __init__(self, bus: Bus, room: str, reply_id: str) -> None:
        self._bus = bus
        self._subject = f"live.{subject_token(room)}.words"
        self._room = room
        self._reply = reply_id
        self._loop = asyncio.get_running_loop()
        self._text = ""
        self._told = 0
        self._told_at = 0.0
        self._soon: asyncio.TimerHandle | None = None

    def grew(self, text: str) -> None:
        self._text = text
        if self._loop.time() - self._told_at >= NOTIFY_S:
            self._tell()
        elif self._soon is None:
            self._soon = self._loop.call_at(self._told_at + _PAUSE * NOTIFY_S, self._catch_up)

    def end(self, text: str) -> None:
        """Tell the rest now."""
        if self._soon is not None:
            self._soon.cancel()
        self._text = text
        if len(text) > self._told:
            self._tell()

    def _catch_up(self) -> None:
        """A model that pauses must not keep back what it has said; while it speaks, its next words do this."""
        self._soon = None
        if len(self._text) > self._told:
            due = self._told_at + _PAUSE * NOTIFY_S
            if self._loop.time() >= due:
                self._tell()
            else:
                self._soon = self._loop.call_at(due, self._catch_up)

    def _tell(self) -> None:
        live = LiveText(self._room, self._reply, self._told, self._text[self._told :])
        self._told, self._told_at = len(self._text), self._loop.time()
        self._bus.publish([BusMessage(self._subject, live)])
