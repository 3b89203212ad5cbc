"""An evening as it happens: contexts come in, people chat, everybody thinks once a second, lines are written. C6, C7

All that happens goes through the gateway's one queue in its order, so that the log can be played again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from coterie.base.logging import get_logger
from coterie.eventstore import Bus, BusMessage, WhenSlow
from coterie.modes.crowd.decisions import RoomState
from coterie.modes.crowd.errors import MessageRefused
from coterie.modes.crowd.events import CrowdHeard, CrowdOpened, CrowdWritten, SpeakDecision
from coterie.modes.crowd.gateway import Gateway
from coterie.modes.crowd.generation import LineRequest, LineRules
from coterie.modes.crowd.generation.writers import WrittenLine
from coterie.modes.crowd.memory import PersonaMemory
from coterie.modes.crowd.personas import Persona, RoomConfig
from coterie.modes.crowd.protocol import StreamContext, Subjects
from coterie.modes.crowd.session.session import Session

_log = get_logger(__name__)


class LineWriter(Protocol):
    async def write(self, request: LineRequest, deadline_s: float) -> WrittenLine: ...


class LiveSession:
    def __init__(
        self,
        room: RoomConfig,
        personas: Sequence[Persona],
        gateway: Gateway,
        bus: Bus,
        create_writer: Callable[[LineRules], LineWriter],
        *,
        seed: int,
        memory: PersonaMemory | None = None,
    ) -> None:
        """`voice` is made for the room's manners; `keeper` keeps what personas remember."""
        start_ms = gateway.now_ms()
        self.session = Session(room, personas, seed, start_ms)
        for message in gateway.latest(100):
            self.session.line_rules.add_recent(message.text)
        self._gateway = gateway
        self._bus = bus
        self._writer = create_writer(self.session.line_rules)
        self._memory = memory
        self._subjects = Subjects(room.name)
        self._tick = 0
        self._writing: set[asyncio.Task[None]] = set()
        self._opening_event = CrowdOpened(
            room=room.name,
            seed=seed,
            start_ms=start_ms,
            rules=room.model_dump(mode="json"),
            personas=tuple(persona.model_dump(mode="json") for persona in personas),
        )

    async def run(self, contexts: AsyncIterator[StreamContext], *, linger_s: float = 0) -> None:
        """Until the stream is over, and `linger_s` longer."""
        self._gateway.record(self._opening_event)
        try:
            async with asyncio.TaskGroup() as tasks:
                beside = [tasks.create_task(self._read_chat()), tasks.create_task(self._run_ticks())]
                async for context in contexts:
                    self.set_context(context)
                await asyncio.sleep(linger_s)
                for task in beside:
                    task.cancel()
        finally:
            unfinished = list(self._writing)
            for writing in unfinished:
                writing.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
            await self._gateway.flush()

    @property
    def lines_in_progress(self) -> int:
        """Lines in the making."""
        return len(self._writing)

    def set_context(self, context: StreamContext) -> None:
        at_ms = self._gateway.now_ms()
        self.session.set_context(context, at_ms)
        self._gateway.record(CrowdHeard(at_ms=at_ms, context=context))
        self._bus.publish([BusMessage(self._subjects.context, context)])

    async def _read_chat(self) -> None:
        async with self._bus.subscribe(self._subjects.firehose, limit=100_000, when_slow=WhenSlow.DISCONNECT) as heard:
            async for message in heard:
                self.session.add_message(message.body)

    async def _run_ticks(self) -> None:
        loop = asyncio.get_running_loop()
        step_s = self.session.room.tempo.tick_s
        due = loop.time() + step_s
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            due = max(due + step_s, loop.time())
            self._tick += 1
            scene = self.session.room_state(self._tick, self._gateway.now_ms())
            ticked = self.session.tick_event(scene, self.session.decide(scene))
            self._gateway.record(ticked)
            self._bus.publish([BusMessage(self._subjects.trends, scene.trends)])
            if self._memory is not None:
                self._memory.store_due(self.session.history.spam_filter, scene.at_ms)
            for decided in ticked.spoke:
                task = loop.create_task(self._write_line(decided, self.session.line_request(decided, scene), scene))
                self._writing.add(task)
                task.add_done_callback(self._done)

    async def _write_line(self, decision: SpeakDecision, request: LineRequest, state: RoomState) -> None:
        began = asyncio.get_running_loop().time()
        if self._memory is not None:
            request = replace(request, memories=tuple(self._memory.recall(request)))
        line = await self._writer.write(request, self.session.room.tempo.line_deadline_s)
        seconds = asyncio.get_running_loop().time() - began
        written_ms = self._gateway.now_ms()
        if line.outcome == "written":
            await asyncio.sleep(max(0.0, self.session.typing_ms(decision, line.text) / 1_000 - seconds))
            why = self.session.line_rules.rejection_reason(line.text, to_person=request.recipient_is_person)
            if why:
                line = WrittenLine("refused", line.text, line.model, why)
        if line.outcome == "written":
            at_ms = self._gateway.now_ms()
            post = self.session.post(decision, state.at_ms, state.tick, line.text, written_ms, at_ms)
            try:
                await self._gateway.post(post)
                if (
                    self._memory is not None
                    and (answered := self.session.history.find(post.reply_to or "")) is not None
                ):
                    self._memory.record_answer(decision.persona, answered)
            except MessageRefused as refused:
                line = WrittenLine("refused", line.text, line.model, refused.what)
        if line.outcome != "written":
            self.session.cancel_line(decision)
        self._gateway.record(
            CrowdWritten(
                persona=decision.persona,
                tick=state.tick,
                at_ms=self._gateway.now_ms(),
                outcome=line.outcome,
                text=line.text,
                why=line.reason,
                model=line.model,
                seconds=round(seconds, 3),
            )
        )

    def _done(self, task: asyncio.Task[None]) -> None:
        self._writing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a line was lost", error=str(error))
