"""Parts of a session that run in processes of their own: the stream's context, trends with the ticks, and personas.

Each part may run in several processes; leases decide which one is active. The trends service is the clock of a session:
at each tick it says which messages and which context personas take into account, so that all workers decide as one
process would.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError
from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.base.supervisor import run_once
from coterie.eventstore import Payload
from coterie.modes.crowd.chat_signals import TrendTracker
from coterie.modes.crowd.cluster.broker import Broker, Leases, RunningSession, RunningSessions, StalePublisher
from coterie.modes.crowd.cluster.gateway import KIND_HEADER, TOKEN_HEADER, ClusterClient, RecallQuestion
from coterie.modes.crowd.decisions import derive_seed
from coterie.modes.crowd.errors import BadWireMessage, MessageRefused, NoBroker
from coterie.modes.crowd.events import CrowdOpened
from coterie.modes.crowd.generation import LineRules
from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.prompts import LineRequest
from coterie.modes.crowd.protocol import ChatMessage, ChatPost, StreamContext, Subjects, Tick, Trends
from coterie.modes.crowd.session.session import LineWriter, PersonaRunner, Session, TickShare
from coterie.modes.crowd.settings import RoomConfig

CreateWriter = Callable[[LineRules, RunningSession], LineWriter]
_HISTORY = 5_000
"""Messages of the stream from which a service restores what it knows of the chat."""
_KEPT_CONTEXTS = 20
_POLL_S = 0.1
_CLAIM_S = 0.5
_CATCH_UP_S = 2.0
_MAX_TICK_AGE_MS = 4_000
"""A worker that was stopped for longer skips the ticks it has missed."""
_MAX_SHARDS = 16
_POST_DEADLINE_S = 15.0
_RECALL_TIMEOUT_S = 1.0
_MAX_RECORDS = 10_000
_log = get_logger(__name__)


def shard_of(name: str, shards: int) -> int:
    """The shard of a persona. All personas of a shard are run by the same worker."""
    return derive_seed(name, "shard") % shards


@asynccontextmanager
async def _background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run work beside the body of the context and cancel it at the end. A failure cancels the body and is raised."""
    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(each) for each in work]
        yield
        for task in started:
            task.cancel()


class JoinedSession:
    """A session that a service takes part in, as its gateway describes it now."""

    def __init__(self, running: RunningSession) -> None:
        self.running = running
        self._rules = running.rules
        self._rules_of = running.edit_number

    @property
    def opened(self) -> CrowdOpened:
        return self.running.opened

    @property
    def rules(self) -> RoomConfig:
        """The present rules."""
        if self._rules_of != self.running.edit_number:
            self._rules, self._rules_of = self.running.rules, self.running.edit_number
        return self._rules


TakePart = Callable[[JoinedSession], Coroutine[Any, Any, None]]


async def take_part_in_sessions(broker: Broker, room: str, take_part: TakePart) -> None:
    """Run `take_part` for each session of a room, from its beginning to its end, until cancelled.

    It is called again after a failure. Edits during a session change what it was called with.
    """

    async def keep_going(session: JoinedSession) -> None:
        while True:
            try:
                await take_part(session)
            except Exception:
                _log.exception("part of a crowd session failed, starting it again", room=room)
                await asyncio.sleep(_CLAIM_S)
            else:
                return

    running: asyncio.Task[None] | None = None
    joined: JoinedSession | None = None
    try:
        async for session in RunningSessions(broker).changes(room):
            if session is not None and joined is not None and session.opened == joined.opened:
                joined.running = session
                continue
            if running is not None:
                await _cancel(running)
            joined = JoinedSession(session) if session is not None else None
            running = run_once("part of a crowd session", keep_going(joined)) if joined is not None else None
    finally:
        if running is not None:
            await _cancel(running)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class TrendsService:
    """Publishes trends and ticks of a room. Several processes may run it; one of them is active."""

    def __init__(self, broker: Broker, room: str, clock: Clock) -> None:
        self._room = room
        self._broker = broker
        self._subjects = Subjects(room)
        self._leases = Leases(broker)
        self._clock = clock
        self._upto = 0
        self._context = 0

    async def run(self) -> None:
        """Run until cancelled."""
        async with _background(self._leases.run()):
            await take_part_in_sessions(self._broker, self._room, self._take_part)

    async def _take_part(self, session: JoinedSession) -> None:
        lease = f"trends.{self._room}"
        while True:
            await self._leases.wait_for(lease)
            tracker = TrendTracker(self._room)
            self._upto = self._context = 0
            try:
                async with _background(self._read_chat(tracker), self._read_contexts()):
                    await self._catch_up()
                    await self._publish_ticks(session, tracker, lease)
            except* StalePublisher:
                _log.warning("another trends service is active", room=self._room)
                await self._leases.release(lease)

    async def _read_chat(self, tracker: TrendTracker) -> None:
        async for received in self._broker.follow(self._subjects.firehose, history=_HISTORY):
            message = _parse(ChatMessage, received.data)
            if message is not None and message.number > self._upto:
                tracker.add(message)
                self._upto = message.number

    async def _read_contexts(self) -> None:
        async for received in self._broker.follow(self._subjects.context, history=_HISTORY):
            if (context := _parse(StreamContext, received.data)) is not None:
                self._context = context.number

    async def _catch_up(self) -> None:
        """Wait until the messages that were published before are counted."""
        last = await self._broker.last(self._subjects.firehose)
        message = _parse(ChatMessage, last.data) if last is not None else None
        for _ in range(math.ceil(_CATCH_UP_S / _POLL_S)):
            if message is None or self._upto >= message.number:
                return
            await asyncio.sleep(_POLL_S)

    async def _publish_ticks(self, session: JoinedSession, tracker: TrendTracker, lease: str) -> None:
        start_ms = session.opened.start_ms
        last = await self._broker.last(self._subjects.trends)
        sequence = last.sequence if last is not None else 0
        earlier = _parse(Trends, last.data) if last is not None else None
        tick = earlier.tick if earlier is not None else None
        number = tick.number if tick is not None and tick.session == start_ms else 0
        loop = asyncio.get_running_loop()
        due = loop.time()
        while self._leases.holds(lease):
            number += 1
            trends = tracker.trends_at(self._clock.now_ms()).model_copy(update={"tick": self._tick(session, number)})
            sequence = await self._broker.publish_after(self._subjects.trends, trends.to_json().encode(), sequence)
            due = max(due + session.rules.tempo.tick_s, loop.time())
            await asyncio.sleep(max(0.0, due - loop.time()))

    def _tick(self, session: JoinedSession, number: int) -> Tick:
        return Tick(
            session=session.opened.start_ms,
            number=number,
            upto=self._upto,
            context=self._context,
            edit=session.running.edit_number,
        )


class ContextService:
    """Publishes the contexts of a stream. Several processes may read the same one; one of them is active."""

    def __init__(
        self, broker: Broker, room: str, open_contexts: Callable[[float], AsyncIterator[StreamContext]], clock: Clock
    ) -> None:
        """`open_contexts` opens the stream at a number of seconds after its beginning."""
        self._room = room
        self._broker = broker
        self._subjects = Subjects(room)
        self._leases = Leases(broker)
        self._open_contexts = open_contexts
        self._clock = clock
        self._failure: CoterieError | None = None
        self.ended = asyncio.Event()

    async def run(self) -> None:
        """Run until the stream has ended or cannot be read, or until cancelled."""
        async with _background(self._leases.run(), take_part_in_sessions(self._broker, self._room, self._take_part)):
            await self.ended.wait()
        if self._failure is not None:
            raise self._failure

    async def _take_part(self, session: JoinedSession) -> None:
        lease = f"context.{self._room}"
        while not self.ended.is_set():
            await self._leases.wait_for(lease)
            last = await self._broker.last(self._subjects.context)
            earlier = _parse(StreamContext, last.data) if last is not None else None
            number, sequence = earlier.number if earlier is not None else 0, last.sequence if last is not None else 0
            passed_s = max(0.0, (self._clock.now_ms() - session.opened.start_ms) / 1_000)
            try:
                async for context in self._open_contexts(passed_s):
                    if not self._leases.holds(lease):
                        await self._leases.wait_for(lease)
                    number += 1
                    numbered = context.model_copy(update={"number": number}).to_json().encode()
                    sequence = await self._broker.publish_after(self._subjects.context, numbered, sequence)
            except StalePublisher:
                _log.warning("another context service is active", room=self._room)
                await self._leases.release(lease)
            except CoterieError as error:  # reading again would fail again
                self._failure = error
                self.ended.set()
            else:
                self.ended.set()


class _BrokerLink:
    """The room of a persona worker, behind the broker."""

    def __init__(self, broker: Broker, room: str, token: str, clock: Clock, start_ms: int) -> None:
        self._broker = broker
        self._subjects = Subjects(room)
        self._token = token
        self._clock = clock
        self._start_ms = start_ms
        self._client = ClusterClient(broker, room, token)
        self._records: asyncio.Queue[Payload] = asyncio.Queue(_MAX_RECORDS)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def record(self, payload: Payload) -> None:
        if self._records.full():  # the broker is away for hours
            self._records.get_nowait()
        self._records.put_nowait(payload)

    async def send_records(self) -> None:
        """Publish what was recorded, in order, until cancelled."""
        while True:
            payload = await self._records.get()
            headers = {TOKEN_HEADER: self._token, KIND_HEADER: payload.kind, "Nats-Msg-Id": new_id()}
            await self._broker.publish(self._subjects.record, payload.model_dump_json().encode(), headers)

    async def post(self, post: ChatPost) -> ChatMessage:
        if post.reply_to is not None:
            # Of two workers that answer for the same persona, one after the other, only one is heard.
            number = post.reply_to.rpartition("-")[2]
            post = post.model_copy(update={"id": f"{post.author.name}-{self._start_ms:x}-r{number}"})
        try:
            return await self._client.post(post, _POST_DEADLINE_S)
        except NoBroker as error:
            raise MessageRefused("late", error.what, error.fix) from error

    async def recall(self, request: LineRequest) -> Sequence[str]:
        """Without an answer in time the line is written without memories."""
        from nats.errors import Error

        question = RecallQuestion(
            persona=request.persona.name,
            recipient=request.recipient,
            answered_text=request.answered_text,
            about=request.about,
            topics=request.topics[:3],
        )
        try:
            answer = await self._broker.nats.request(
                self._subjects.recall,
                question.model_dump_json().encode(),
                timeout=_RECALL_TIMEOUT_S,
                headers={TOKEN_HEADER: self._token},
            )
            return [str(text) for text in json.loads(answer.data)]
        except (Error, OSError, ValueError):
            return ()


class PersonaWorker:
    """Runs personas of a room's session. Each persona belongs to a shard, and each shard to one worker at a time."""

    def __init__(
        self,
        broker: Broker,
        room: str,
        token: str,
        create_writer: CreateWriter,
        clock: Clock,
        on_problem: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._room = room
        self._broker = broker
        self._subjects = Subjects(room)
        self._leases = Leases(broker)
        self._token = token
        self._create_writer = create_writer
        self._clock = clock
        self._on_problem = on_problem
        self._id = new_id()
        self._messages: deque[ChatMessage] = deque()
        """Messages that no tick has taken into account yet."""
        self._read = 0
        """The number of the last message that was read."""
        self._contexts: OrderedDict[int, tuple[StreamContext, int]] = OrderedDict()
        self._session: Session | None = None
        self._edit = 0
        """The number of the edit that applies."""
        self._shards: dict[str, tuple[str, ...]] = {}
        """Lease → the names of its personas."""

    async def run(self) -> None:
        """Run until cancelled."""
        async with _background(self._leases.run()):
            await take_part_in_sessions(self._broker, self._room, self._take_part)

    @property
    def names(self) -> tuple[str, ...]:
        """The personas that this worker runs now."""
        return tuple(
            sorted(name for lease, names in self._shards.items() if self._leases.holds(lease) for name in names)
        )

    async def _take_part(self, joined: JoinedSession) -> None:
        opened = joined.opened
        personas = [Persona.model_validate(persona) for persona in opened.personas]
        session = self._session = Session(
            RoomConfig.model_validate(opened.rules), personas, opened.seed, opened.start_ms, opened.relationships
        )
        self._edit = 0
        self._messages.clear()
        self._contexts.clear()
        self._read = 0
        self._shards = _shards(self._room, [persona.name for persona in personas])
        link = _BrokerLink(self._broker, self._room, self._token, self._clock, opened.start_ms)
        runner = PersonaRunner(
            session,
            link,
            self._create_writer(session.line_rules, joined.running),
            on_problem=self._on_problem,
            may_post=self._runs,
        )
        try:
            async with _background(self._read_chat(), self._read_contexts(), self._claim_shards(), link.send_records()):
                await self._run_ticks(joined, session, runner)
        finally:
            await runner.cancel()
            await self._leases.release_all()

    def _runs(self, persona: str) -> bool:
        return any(persona in names for lease, names in self._shards.items() if self._leases.holds(lease))

    async def _read_chat(self) -> None:
        async for received in self._broker.follow(self._subjects.firehose, history=_HISTORY):
            message = _parse(ChatMessage, received.data)
            if message is not None and message.number > self._read:
                self._messages.append(message)
                self._read = message.number

    async def _read_contexts(self) -> None:
        async for received in self._broker.follow(self._subjects.context, history=_HISTORY):
            if (context := _parse(StreamContext, received.data)) is not None:
                self._contexts[context.number] = (context, received.at_ms)
                if len(self._contexts) > _KEPT_CONTEXTS:
                    self._contexts.popitem(last=False)

    async def _claim_shards(self) -> None:
        """Hold a fair share of the shards: take free ones, and release some when another worker comes."""
        member = f"worker.{self._room}.{self._id}"
        while True:
            await self._leases.take(member)
            share = math.ceil(len(self._shards) / max(1, await self._leases.count(f"worker.{self._room}.*")))
            held = [lease for lease in self._shards if self._leases.holds(lease)]
            for lease in held[share:]:
                await self._leases.release(lease)
            others = [lease for lease in self._shards if lease not in held]
            # Workers begin at different places, so that they do not compete for the same shards.
            start = derive_seed(self._id) % max(1, len(others))
            missing = share - len(held)
            for lease in others[start:] + others[:start]:
                if missing <= 0:
                    break
                missing -= await self._leases.take(lease)
            await asyncio.sleep(_CLAIM_S)

    async def _run_ticks(self, joined: JoinedSession, session: Session, runner: PersonaRunner) -> None:
        before: frozenset[str] = frozenset()
        async for received in self._broker.follow(self._subjects.trends):
            trends = _parse(Trends, received.data)
            tick = trends.tick if trends is not None else None
            if trends is None or tick is None or tick.session != session.start_ms:
                continue
            if self._clock.now_ms() - trends.ts > _MAX_TICK_AGE_MS:
                continue
            if not await self._apply_tick(joined, session, tick):
                continue
            names = self.names
            arrived = tuple(name for name in names if name not in before)
            before = frozenset(names)
            if not names:
                continue
            session.join(arrived)
            state = session.room_state(tick.number, trends.ts, trends)
            runner.run_tick(state, TickShare(names, arrived, tick.context, tick.edit))

    async def _apply_tick(self, joined: JoinedSession, session: Session, tick: Tick) -> bool:
        """Take the messages, the context and the edit of a tick into account. False if they have not arrived."""
        for _ in range(math.ceil(_CATCH_UP_S / _POLL_S)):
            edited = tick.edit in (self._edit, joined.running.edit_number)
            if edited and self._read >= tick.upto and (not tick.context or tick.context in self._contexts):
                break
            await asyncio.sleep(_POLL_S)
        else:
            return False
        if tick.edit != self._edit:
            self._edit = tick.edit
            personas = joined.running.personas
            session.edit(joined.rules, personas)
            self._shards = _shards(self._room, [persona.name for persona in personas])
        while self._messages and self._messages[0].number <= tick.upto:
            session.add_message(self._messages.popleft())
        if tick.context:
            session.set_context(*self._contexts[tick.context])
        return True


def _shards(room: str, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    count = max(1, min(_MAX_SHARDS, len(names)))
    return {
        f"personas.{room}.{shard}": members
        for shard in range(count)
        if (members := tuple(name for name in names if shard_of(name, count) == shard))
    }


def _parse(kind: type[Any], data: bytes) -> Any:
    """The message, or None for what is not one: readers are not stopped by it."""
    try:
        return kind.from_json(data)
    except BadWireMessage as error:
        _log.error("a subject of the room has a message that is not valid", error=error.what)
        return None
