"""An evening as it happens: contexts come in, people chat, everybody thinks once a second, lines are written. C6, C7

All that happens goes through the gateway's one queue in its order, so that the log can be played again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from coterie.base.logging import get_logger
from coterie.kernel import Bus, Message, WhenSlow
from coterie.modes.crowd.errors import Refused
from coterie.modes.crowd.events import CrowdHeard, CrowdOpened, CrowdWritten, Decided
from coterie.modes.crowd.gateway import Gateway
from coterie.modes.crowd.memories import Keeper
from coterie.modes.crowd.mind import Scene
from coterie.modes.crowd.personas import Persona, RoomFile
from coterie.modes.crowd.protocol import StreamContext, Subjects
from coterie.modes.crowd.session.evening import Evening
from coterie.modes.crowd.voice import Brief, Manners
from coterie.modes.crowd.voice.model_voice import Line

_log = get_logger(__name__)


class Voice(Protocol):
    async def write(self, brief: Brief, deadline_s: float) -> Line: ...


class Live:
    def __init__(
        self,
        room: RoomFile,
        personas: Sequence[Persona],
        gateway: Gateway,
        bus: Bus,
        voice: Callable[[Manners], Voice],
        *,
        seed: int,
        keeper: Keeper | None = None,
    ) -> None:
        """`voice` is made for the room's manners; `keeper` keeps what personas remember."""
        start_ms = gateway.now_ms()
        self.evening = Evening(room, personas, seed, start_ms)
        for message in gateway.latest(100):
            self.evening.manners.hear(message.text)
        self._gateway = gateway
        self._bus = bus
        self._voice = voice(self.evening.manners)
        self._keeper = keeper
        self._subjects = Subjects(room.name)
        self._tick = 0
        self._writing: set[asyncio.Task[None]] = set()
        self._opened = CrowdOpened(
            room=room.name,
            seed=seed,
            start_ms=start_ms,
            rules=room.model_dump(mode="json"),
            personas=tuple(persona.model_dump(mode="json") for persona in personas),
        )

    async def run(self, contexts: AsyncIterator[StreamContext], *, linger_s: float = 0) -> None:
        """Until the stream is over, and `linger_s` longer."""
        self._gateway.note(self._opened)
        try:
            async with asyncio.TaskGroup() as tasks:
                beside = [tasks.create_task(self._listen()), tasks.create_task(self._think())]
                async for context in contexts:
                    self.attend(context)
                await asyncio.sleep(linger_s)
                for task in beside:
                    task.cancel()
        finally:
            unfinished = list(self._writing)
            for writing in unfinished:
                writing.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
            await self._gateway.settle()

    @property
    def writing(self) -> int:
        """Lines in the making."""
        return len(self._writing)

    def attend(self, context: StreamContext) -> None:
        at_ms = self._gateway.now_ms()
        self.evening.attend(context, at_ms)
        self._gateway.note(CrowdHeard(at_ms=at_ms, context=context))
        self._bus.publish([Message(self._subjects.context, context)])

    async def _listen(self) -> None:
        async with self._bus.subscribe(self._subjects.firehose, limit=100_000, when_slow=WhenSlow.DISCONNECT) as heard:
            async for message in heard:
                self.evening.hear(message.body)

    async def _think(self) -> None:
        loop = asyncio.get_running_loop()
        step_s = self.evening.room.tempo.tick_s
        due = loop.time() + step_s
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            due = max(due + step_s, loop.time())
            self._tick += 1
            scene = self.evening.scene(self._tick, self._gateway.now_ms())
            ticked = self.evening.ticked(scene, self.evening.think(scene))
            self._gateway.note(ticked)
            self._bus.publish([Message(self._subjects.trends, scene.trends)])
            if self._keeper is not None:
                self._keeper.settle(self.evening.hearing.screen, scene.at_ms)
            for decided in ticked.spoke:
                task = loop.create_task(self._speak(decided, self.evening.brief(decided, scene), scene))
                self._writing.add(task)
                task.add_done_callback(self._done)

    async def _speak(self, decided: Decided, brief: Brief, scene: Scene) -> None:
        began = asyncio.get_running_loop().time()
        if self._keeper is not None:
            brief = replace(brief, remembered=tuple(self._keeper.recall(brief)))
        line = await self._voice.write(brief, self.evening.room.tempo.line_deadline_s)
        seconds = asyncio.get_running_loop().time() - began
        written_ms = self._gateway.now_ms()
        if line.outcome == "written":
            await asyncio.sleep(max(0.0, self.evening.typing_ms(decided, line.text) / 1_000 - seconds))
            why = self.evening.manners.trouble(line.text, to_person=brief.to_person)
            if why:
                line = Line("refused", line.text, line.model, why)
        if line.outcome == "written":
            at_ms = self._gateway.now_ms()
            post = self.evening.post(decided, scene.at_ms, scene.tick, line.text, written_ms, at_ms)
            try:
                await self._gateway.post(post)
                if (
                    self._keeper is not None
                    and (answered := self.evening.hearing.find(post.reply_to or "")) is not None
                ):
                    self._keeper.talked(decided.persona, answered)
            except Refused as refused:
                line = Line("refused", line.text, line.model, refused.what)
        if line.outcome != "written":
            self.evening.give_up(decided)
        self._gateway.note(
            CrowdWritten(
                persona=decided.persona,
                tick=scene.tick,
                at_ms=self._gateway.now_ms(),
                outcome=line.outcome,
                text=line.text,
                why=line.why,
                model=line.model,
                seconds=round(seconds, 3),
            )
        )

    def _done(self, task: asyncio.Task[None]) -> None:
        self._writing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a line was lost", error=str(error))
