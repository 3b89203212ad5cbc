"""The gateway's part of a session whose personas, trends and stream run in other processes."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from coterie.base.supervisor import run_once
from coterie.eventstore import Bus, BusMessage, Payload
from coterie.modes.crowd.cluster.broker import Broker, RunningSession, RunningSessions
from coterie.modes.crowd.cluster.gateway import ClusterGateway, RecallQuestion
from coterie.modes.crowd.decisions import FACTORS, Decision
from coterie.modes.crowd.errors import BadWireMessage, NoBroker
from coterie.modes.crowd.events import CrowdHeard, CrowdOpened, CrowdTicked, CrowdWritten
from coterie.modes.crowd.gateway import ChatIdentity, ChatTokens, Gateway
from coterie.modes.crowd.memory import PersonaMemory
from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.prompts import LineRequest
from coterie.modes.crowd.protocol import StreamContext, Subjects, Trends
from coterie.modes.crowd.session.session import Session, edit_event, store_due_memories
from coterie.modes.crowd.settings import RoomConfig

_CONNECT_TIMEOUT_S = 20
_RESTORED_MESSAGES = 1_000
_RESTORED_CONTEXTS = 20


class CrowdCluster:
    """This process's connection to the broker, and its gateways there."""

    def __init__(self, address: str, tokens: ChatTokens, *, database: Path, run_personas: bool = True) -> None:
        """`database` holds the log of the rooms and is locked by this process.

        `run_personas` is whether this process also runs personas and trends of its sessions.
        """
        place = f"{socket.gethostname()} {database.resolve()}"
        self._database = hashlib.sha256(place.encode()).hexdigest()[:32]
        self.run_personas = run_personas
        self._address = address
        self._tokens = tokens
        self._broker: Broker | None = None
        self._connecting = asyncio.Lock()
        self._gateways: dict[str, ClusterGateway] = {}
        self._changed = asyncio.Condition()

    async def broker(self) -> Broker:
        """Connect on first use. Raises `NoBroker`."""
        async with self._connecting:
            if self._broker is None:
                self._broker = await Broker.connect(self._address)
            return self._broker

    async def serve(self, gateway: Gateway, bus: Bus) -> None:
        """Be the gateway of a room, until cancelled."""
        room = gateway.admission.room
        served = ClusterGateway(await self.broker(), gateway, bus, self._tokens, database=self._database)
        if (before := self._gateways.get(room)) is not None:  # it failed or lost its lease during a session
            served.on_record, served.answer_recall = before.on_record, before.answer_recall
        self._gateways[room] = served

        async def notify_when_ready() -> None:
            await served.ready.wait()
            async with self._changed:
                self._changed.notify_all()

        notifying = run_once("readiness of a crowd gateway", notify_when_ready())
        try:
            await served.run()
        finally:
            notifying.cancel()
            await asyncio.gather(notifying, return_exceptions=True)

    async def ready_gateway(self, room: str) -> ClusterGateway:
        """The gateway of a room, however long it takes to connect or until another process has ended."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_ready(room))
        return self._gateways[room]

    def _is_ready(self, room: str) -> bool:
        gateway = self._gateways.get(room)
        return gateway is not None and gateway.ready.is_set()

    async def gateway(self, room: str) -> ClusterGateway:
        """The gateway of a room, once it is connected. Raises `NoBroker` if it is not in time."""
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                return await self.ready_gateway(room)
        except TimeoutError:
            raise NoBroker(
                f"{room} is not connected to the NATS server at {self._address}.",
                "Check that it runs and that no other process is the gateway of the room; `coterie doctor` says more.",
            ) from None

    def worker_token(self, room: str) -> str:
        return self._tokens.issue(room, ChatIdentity("personas", "worker"))

    async def close(self) -> None:
        if self._broker is not None:
            await self._broker.close()
            self._broker = None


class ClusterSession:
    """Announces a session to persona workers, stores what they decide, and remembers for them."""

    def __init__(
        self,
        opened: CrowdOpened,
        gateway: Gateway,
        bus: Bus,
        cluster: ClusterGateway,
        *,
        speaking: str,
        resumed: RunningSession | None = None,
        memory: PersonaMemory | None = None,
        on_context: Callable[[StreamContext], None] = lambda _: None,
        on_problem: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`resumed` is the session as its gateway left it, if it began in a process that was killed."""
        personas = [Persona.model_validate(persona) for persona in opened.personas]
        self.session = Session(
            RoomConfig.model_validate(opened.rules), personas, opened.seed, opened.start_ms, opened.relationships
        )
        self._running = resumed or RunningSession(opened=opened, speaking=speaking)
        if self._running.edit is not None:
            self.session.edit(self._running.rules, self._running.personas)
        self._next_edit: asyncio.Queue[tuple[RoomConfig, Sequence[Persona]]] = asyncio.Queue()
        self._edit_in_tick = asyncio.Condition()
        self._ticked_edit = 0
        """The number of the edit that the last tick referred to."""
        self.memory = memory
        self._opened = opened
        self._resumed = resumed is not None
        self._gateway = gateway
        self._bus = bus
        self._cluster = cluster
        self._sessions = RunningSessions(cluster.broker)
        self._subjects = Subjects(opened.room)
        self._on_context = on_context
        self._on_problem = on_problem
        self._heard = 0

    @property
    def lines_in_progress(self) -> int:
        return sum(decider.typing for decider in self.session.deciders.values())

    async def run(self, stream_ends: asyncio.Event, *, linger_s: float = 0) -> None:
        """Run until the stream ends, and `linger_s` longer."""
        await self._restore()
        if not self._resumed:
            self._gateway.record(self._opened)
            await self._gateway.flush()
        self._cluster.on_record = self._on_record
        self._cluster.answer_recall = self._recall
        await self._sessions.announce(self._running)
        try:
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(work)
                    for work in (
                        self._read_chat(),
                        self._read_contexts(),
                        self._read_trends(),
                        self._announce_edits(),
                    )
                ]
                await stream_ends.wait()
                await asyncio.sleep(linger_s)
                for task in background:
                    task.cancel()
        finally:
            with suppress(Exception):  # workers of a session that a gateway does not answer fall quiet
                async with asyncio.timeout(1):
                    await self._sessions.withdraw(self._opened.room)
            await self._gateway.flush()

    def edit(self, room: RoomConfig, personas: Sequence[Persona]) -> None:
        """Apply edited files in all processes, from a tick on that the trends service chooses."""
        self.session.edit(room, personas)
        self._next_edit.put_nowait((room, personas))

    async def _announce_edits(self) -> None:
        """Announce one edit after the other; the next one once a tick refers to it, so that no process misses it."""
        while True:
            room, personas = await self._next_edit.get()
            while not self._next_edit.empty():
                room, personas = self._next_edit.get_nowait()
            edit = edit_event(room, personas, self._running.edit_number + 1)
            self._running = self._running.model_copy(update={"edit": edit})
            # The log has it before any tick that refers to it.
            self._gateway.record(edit)
            await self._gateway.flush()
            await self._sessions.announce(self._running)
            await self._wait_for_tick_with(edit.number)

    async def _wait_for_tick_with(self, edit: int) -> None:
        async with self._edit_in_tick:
            await self._edit_in_tick.wait_for(lambda: self._ticked_edit >= edit)

    async def _restore(self) -> None:
        """Read what the session has recorded before."""
        for message in self._gateway.latest(_RESTORED_MESSAGES):
            if self._resumed:
                self.session.add_message(message)
        for payload in await self._gateway.recent_events([CrowdHeard.kind], _RESTORED_CONTEXTS):
            if isinstance(payload, CrowdHeard):
                self._heard = payload.context.number if self._resumed else 0
                if self._resumed:
                    self.session.set_context(payload.context, payload.at_ms)
                    self._on_context(payload.context)

    async def _read_chat(self) -> None:
        async with self._bus.subscribe(self._subjects.firehose, limit=100_000) as messages:
            async for message in messages:
                posted = message.body
                self.session.add_message(posted)
                answered = self.session.history.find(posted.reply_to or "")
                if self.memory is not None and posted.author.kind == "persona" and answered is not None:
                    self.memory.record_answer(posted.author.name, answered)

    async def _read_contexts(self) -> None:
        history = _RESTORED_CONTEXTS * 100 if self._resumed else 0
        async for received in self._cluster.broker.follow(self._subjects.context, history=history):
            try:
                context = StreamContext.from_json(received.data)
            except BadWireMessage as error:
                self._on_problem(error.what)
                continue
            if self._resumed and context.number <= self._heard:
                continue
            self._heard = context.number
            self.session.set_context(context, received.at_ms)
            self._gateway.record(CrowdHeard(at_ms=received.at_ms, context=context))
            self._on_context(context)
            self._bus.publish([BusMessage(self._subjects.context, context)])

    async def _read_trends(self) -> None:
        async for received in self._cluster.broker.follow(self._subjects.trends):
            try:
                trends = Trends.from_json(received.data)
            except BadWireMessage as error:
                self._on_problem(error.what)
                continue
            if trends.tick is not None and trends.tick.session == self._opened.start_ms:
                async with self._edit_in_tick:
                    self._ticked_edit = trends.tick.edit
                    self._edit_in_tick.notify_all()
            self.session.trends = trends
            self._bus.publish([BusMessage(self._subjects.trends, trends)])
            store_due_memories(self.memory, self.session, self._gateway.now_ms(), self._on_problem)

    def _on_record(self, payload: Payload) -> None:
        """Show on the page what a worker has decided."""
        if isinstance(payload, CrowdTicked):
            for spoke in payload.spoke:
                if (decider := self.session.deciders.get(spoke.persona)) is not None:
                    decider.typing = True
                    factors: dict[str, Any] = {name: spoke.parts[name] for name in FACTORS if name in spoke.parts}
                    self.session.recent_decisions[spoke.persona].append(
                        Decision(spoke.persona, payload.tick, True, spoke.because, spoke.p, spoke.roll, **factors)
                    )
        elif isinstance(payload, CrowdWritten):
            if (decider := self.session.deciders.get(payload.persona)) is not None:
                decider.typing = False
            if payload.outcome == "failed":
                self._on_problem(f"A line was not written: {payload.why}")

    def _recall(self, question: RecallQuestion) -> Sequence[str]:
        decider = self.session.deciders.get(question.persona)
        if self.memory is None or decider is None:
            return ()
        request = LineRequest(
            persona=decider.persona,
            tick=0,
            because="base",
            seed=0,
            about=question.about,
            topics=question.topics,
            recipient=question.recipient,
            answered_text=question.answered_text,
        )
        return self.memory.recall(request)
