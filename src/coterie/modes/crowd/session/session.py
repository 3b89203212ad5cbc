"""A session of a room: who decides to speak at each tick, and what becomes a post.

`Session` has no clock and calls no model, so a live session, a simulation and a replay run the same code.
`PersonaRunner` lets personas decide, write and post; it is the same in one process and in a worker on another machine.
`LiveSession` is a whole session in the process of the gateway.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from coterie.base.logging import get_logger
from coterie.base.supervisor import describe, run_once
from coterie.eventstore import Bus, BusMessage, Payload, WhenSlow
from coterie.modes.crowd.chat_signals import TrendTracker
from coterie.modes.crowd.decisions import (
    ChatHistory,
    Decision,
    PersonaDecider,
    RoomState,
    compute_room_state,
    derive_random,
)
from coterie.modes.crowd.drift import ActivityTracker
from coterie.modes.crowd.errors import MessageRefused
from coterie.modes.crowd.events import CrowdEdited, CrowdHeard, CrowdOpened, CrowdTicked, CrowdWritten, SpeakDecision
from coterie.modes.crowd.gateway import Gateway
from coterie.modes.crowd.generation import LineRules, WrittenLine
from coterie.modes.crowd.memory import PersonaMemory
from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.prompts import LineRequest
from coterie.modes.crowd.protocol import ChatAuthor, ChatMessage, ChatPost, StreamContext, Subjects, Trace, Trends
from coterie.modes.crowd.settings import RoomConfig

_MAX_DECISIONS = 120
_PROMPT_MESSAGES = 12
_MAX_SHOWN = 5
_log = get_logger(__name__)


@dataclass(frozen=True)
class TickShare:
    """The personas that one process runs at a tick, if a session is divided among several."""

    names: tuple[str, ...]
    joined: tuple[str, ...] = ()
    """Those that it runs since this tick; another process may have been writing for them."""
    context: int | None = None
    """The number of the stream context that all processes use at this tick."""
    edit: int = 0
    """The number of the edit that applies in all processes at this tick."""


class Session:
    """The personas of a room with the chat they have read. Times and lines are passed in."""

    def __init__(
        self,
        room: RoomConfig,
        personas: Sequence[Persona],
        seed: int,
        start_ms: int,
        relationships: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        """`relationships` are those at the beginning: persona → person → number from -1 to 1."""
        self.start_ms = start_ms
        self.room = room
        self.seed = seed
        self.history = ChatHistory()
        self.trend_tracker = TrendTracker(room.name)
        self.line_rules = LineRules(room.tempo.longest_line)
        self.deciders = {
            each.name: PersonaDecider(each, room, seed, (relationships or {}).get(each.name)) for each in personas
        }
        self.activity = ActivityTracker(self.deciders)
        self._vocabulary = frozenset(word for persona in personas for word in persona.interests)
        """The interests of all personas."""
        self._talkativeness = sum(decider.traits.talkativeness for decider in self.deciders.values())
        self.recent_decisions: dict[str, deque[Decision]] = {
            name: deque(maxlen=_MAX_DECISIONS) for name in self.deciders
        }
        """The latest decisions of each persona, to speak or not."""
        self._line_seeds: dict[str, int] = {}
        """The seed of the line that each persona wrote last."""
        self.trends: Trends | None = None

    def add_message(self, message: ChatMessage) -> None:
        entry = self.history.add(message)
        self.activity.add(entry, self.history.find(message.reply_to or ""))
        self.trend_tracker.add(message)
        self.line_rules.add_recent(message.text)
        decider = self.deciders.get(message.author.name)
        if decider is not None and message.author.kind == "persona":
            decider.last_spoke_ms = message.ts
            decider.typing = False

    def set_context(self, context: StreamContext, at_ms: int) -> None:
        self.history.set_context(context, at_ms)

    def edit(self, room: RoomConfig, personas: Sequence[Persona]) -> None:
        """Go on with edited rules and personas. Who is not among them leaves, and who is new joins."""
        self.room = room
        for persona in personas:
            before = self.deciders.get(persona.name)
            decider = PersonaDecider(persona, room, self.seed, before.relationships if before is not None else None)
            if before is not None:
                decider.typing, decider.last_spoke_ms = before.typing, before.last_spoke_ms
            self.deciders[persona.name] = decider
            self.recent_decisions.setdefault(persona.name, deque(maxlen=_MAX_DECISIONS))
            self.activity.join(persona.name)
        names = {persona.name for persona in personas}
        for name, decider in self.deciders.items():
            decider.left = name not in names
        self._vocabulary = frozenset(word for persona in personas for word in persona.interests)
        self._talkativeness = sum(persona.traits.talkativeness for persona in personas)

    def join(self, names: Iterable[str]) -> None:
        """These personas are run by another process from now on, which does not know what they were writing."""
        for name in names:
            if name in self.deciders:
                self.deciders[name].typing = False

    def room_state(self, tick: int, at_ms: int, trends: Trends | None = None) -> RoomState:
        """The room at a tick; `trends` are those of a trends service, if they are not to be computed here."""
        self.trends = trends or self.trend_tracker.trends_at(at_ms)
        return compute_room_state(self.history, self.room, self.trends, tick, at_ms, self._talkativeness)

    def decide(self, state: RoomState, names: Iterable[str] | None = None) -> list[Decision]:
        """Return the decisions to speak of all personas, or of these. They are independent of each other."""
        speaking: list[Decision] = []
        for name in self.deciders if names is None else names:
            decision = self.deciders[name].decide(state)
            self.recent_decisions[name].append(decision)
            if decision.speaks:
                speaking.append(decision)
        return speaking

    def tick_event(self, state: RoomState, speaking: Sequence[Decision], share: TickShare | None = None) -> CrowdTicked:
        """Return the tick as an event, and mark the personas that speak as typing.

        `share` says which personas decided, if others decide elsewhere.
        """
        spoke = []
        for decision in sorted(speaking, key=lambda each: each.persona):
            decider = self.deciders[decision.persona]
            decider.typing = True
            self._line_seeds[decision.persona] = decider.line_seed(decision.tick)
            target = decision.target.message if decision.target is not None else None
            spoke.append(
                SpeakDecision(
                    persona=decision.persona,
                    because=decision.because,
                    p=round(decision.p, 9),
                    roll=round(decision.roll, 9),
                    parts=decision.factors,
                    reply_to=target.id if target is not None else None,
                    to=target.author.name if target is not None else "",
                    spoken_ms=self._spoken_ms() if target is None else None,
                    heard_ms=target.ts if target is not None else self._context_ms(),
                    seed=decider.line_seed(decision.tick),
                )
            )
        return CrowdTicked(
            tick=state.tick,
            at_ms=state.at_ms,
            upto=self.history.last_number,
            spoke=tuple(spoke),
            personas=share.names if share is not None else None,
            joined=share.joined if share is not None else (),
            context=share.context if share is not None else None,
            edit=share.edit if share is not None else 0,
        )

    def _context_ms(self) -> int | None:
        return self.history.context_ms if self.history.context is not None else None

    def _spoken_ms(self) -> int | None:
        return self.history.context.window.end if self.history.context is not None else None

    def line_request(self, decision: SpeakDecision, state: RoomState) -> LineRequest:
        persona = self.deciders[decision.persona].persona
        context = self.history.context
        target = self.history.find(decision.reply_to or "")
        words = sorted(target.words) if target is not None else list(context.keywords if context else ())
        known = [word for word in words if word in self._vocabulary]
        liked = [word for word in known if word in persona.interests]
        event = state.event if decision.because == "event" else None
        return LineRequest(
            persona=persona,
            tick=state.tick,
            because=decision.because,
            seed=decision.seed,
            event=event.kind if event is not None else "",
            about=event.about if event is not None else "",
            topics=tuple(liked or known),
            recipient=decision.to,
            answered_text=target.message.text if target is not None else "",
            recipient_is_person=target is not None and target.from_person,
            relationship=self.deciders[decision.persona].relationships.get(decision.to, 0.0),
            stand_in=self.room.tempo.stand_in,
            transcript=context.transcript if context is not None else "",
            on_screen=shown_texts(context),
            recent=tuple(
                (entry.message.author.name, entry.message.text)
                for entry in list(self.history.recent)[-_PROMPT_MESSAGES:]
            ),
        )

    def typing_ms(self, decision: SpeakDecision, text: str) -> int:
        """Simulated time to react and type."""
        reaction = 800 + 2_200 * derive_random(decision.seed, "pause")
        return round(reaction + len(text) / self.room.tempo.typing_per_s * 1_000 * 0.5)

    def post(
        self,
        decision: SpeakDecision,
        tick_ms: int,
        tick: int,
        text: str,
        written_ms: int,
        at_ms: int,
        *,
        model: str | None = None,
        fallback: str | None = None,
    ) -> ChatPost:
        """Return the post for a line. The persona is typing until the message arrives or is cancelled."""
        persona = self.deciders[decision.persona].persona
        return ChatPost(
            id=f"{persona.name}-{self.start_ms:x}-{tick}",
            room=self.room.name,
            author=ChatAuthor(name=persona.name, kind="persona", badges=persona.badges, colour=persona.colour),
            text=text,
            reply_to=decision.reply_to,
            trace=Trace(
                because=decision.because,
                spoken_ms=decision.spoken_ms,
                heard_ms=decision.heard_ms,
                decided_ms=tick_ms,
                written_ms=written_ms,
                posted_ms=at_ms,
                decision=f"{persona.name}@{tick}",
                model=model or None,
                fallback=fallback or None,
            ),
        )

    def cancel_line(self, decision: SpeakDecision) -> None:
        """End typing without a message, unless the persona writes another line since.

        That happens where another process has taken over the persona before the line was refused.
        """
        if self._line_seeds.get(decision.persona) == decision.seed:
            self.deciders[decision.persona].typing = False


def shown_texts(context: StreamContext | None) -> tuple[str, ...]:
    """What a prompt says about the stream's picture: its caption and the first lines of text."""
    vision = context.vision if context is not None else None
    if vision is None:
        return ()
    return tuple(filter(None, [vision.caption, *vision.on_screen_text]))[:_MAX_SHOWN]


class LineWriter(Protocol):
    async def write(self, request: LineRequest, deadline_s: float) -> WrittenLine: ...


class RoomLink(Protocol):
    """What personas need of their room, in the gateway's process or over a broker."""

    def now_ms(self) -> int: ...

    def record(self, payload: Payload) -> None:
        """Store an event of the session in the room's log, after those recorded before."""
        ...

    async def post(self, post: ChatPost) -> ChatMessage:
        """Post a persona's line. Raises `MessageRefused` if it is not admitted."""
        ...

    async def recall(self, request: LineRequest) -> Sequence[str]:
        """What the persona remembers about the recipient and the topic."""
        ...


class PersonaRunner:
    """Lets personas of a session decide at each tick, writes their lines and posts them."""

    def __init__(
        self,
        session: Session,
        link: RoomLink,
        writer: LineWriter,
        *,
        on_problem: Callable[[str], None] = lambda _: None,
        may_post: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`on_problem` is told about failures after which the session goes on. `may_post` says whether a persona is
        still run here; its line is dropped if not.
        """
        self.session = session
        self._link = link
        self._writer = writer
        self._on_problem = on_problem
        self._may_post = may_post
        self._writing: set[asyncio.Task[None]] = set()

    @property
    def lines_in_progress(self) -> int:
        return len(self._writing)

    def run_tick(self, state: RoomState, share: TickShare | None = None) -> None:
        """Decide for all personas, or for those of the share, and start to write the lines."""
        speaking = self.session.decide(state, share.names if share is not None else None)
        tick = self.session.tick_event(state, speaking, share)
        self._link.record(tick)
        for decision in tick.spoke:
            request = self.session.line_request(decision, state)
            task = run_once("crowd line", self._write_line(decision, request, state))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def cancel(self) -> None:
        """Stop writing."""
        unfinished = list(self._writing)
        for writing in unfinished:
            writing.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)

    async def _write_line(self, decision: SpeakDecision, request: LineRequest, state: RoomState) -> None:
        try:
            await self._write_and_post(decision, request, state)
        except Exception as error:
            # The outcome is recorded, and the persona may speak again.
            self.session.cancel_line(decision)
            what = describe(error)[0]
            at_ms = self._link.now_ms()
            self._link.record(
                CrowdWritten(persona=decision.persona, tick=state.tick, at_ms=at_ms, outcome="failed", why=what)
            )
            self._on_problem(f"A line was not written: {what}")
            raise

    async def _write_and_post(self, decision: SpeakDecision, request: LineRequest, state: RoomState) -> None:
        started = asyncio.get_running_loop().time()
        request = replace(request, memories=tuple(await self._link.recall(request)))
        line = await self._writer.write(request, self.session.room.tempo.line_deadline_s)
        seconds = asyncio.get_running_loop().time() - started
        written_ms = self._link.now_ms()
        if line.outcome == "written":
            await asyncio.sleep(max(0.0, self.session.typing_ms(decision, line.text) / 1_000 - seconds))
            reason = self.session.line_rules.refusal_reason(line.text, to_person=request.recipient_is_person)
            if not reason and not self._may_post(decision.persona):
                reason = "another process has taken over the persona"
            if reason:
                line = WrittenLine("refused", line.text, line.model, reason)
        if line.outcome == "written":
            at_ms = self._link.now_ms()
            post = self.session.post(
                decision,
                state.at_ms,
                state.tick,
                line.text,
                written_ms,
                at_ms,
                model=line.model,
                fallback=line.fallback,
            )
            try:
                await self._link.post(post)
            except MessageRefused as refused:
                line = WrittenLine("refused", line.text, line.model, refused.what)
        if line.outcome != "written":
            self.session.cancel_line(decision)
        self._link.record(
            CrowdWritten(
                persona=decision.persona,
                tick=state.tick,
                at_ms=self._link.now_ms(),
                outcome=line.outcome,
                text=line.text,
                why=line.reason,
                model=line.model,
                seconds=round(seconds, 3),
                fallback=line.fallback,
            )
        )


class _GatewayLink:
    """The room of a session in the process of its gateway."""

    def __init__(self, gateway: Gateway, session: Session, memory: PersonaMemory | None) -> None:
        self._gateway = gateway
        self._session = session
        self._memory = memory

    def now_ms(self) -> int:
        return self._gateway.now_ms()

    def record(self, payload: Payload) -> None:
        self._gateway.record(payload)

    async def post(self, post: ChatPost) -> ChatMessage:
        message = await self._gateway.post(post)
        if self._memory is not None and (answered := self._session.history.find(post.reply_to or "")) is not None:
            self._memory.record_answer(post.author.name, answered)
        return message

    async def recall(self, request: LineRequest) -> Sequence[str]:
        return self._memory.recall(request) if self._memory is not None else ()


class LiveSession:
    """Runs a session in real time. All its events go through the gateway's queue, in the order a replay needs."""

    def __init__(
        self,
        room: RoomConfig,
        personas: Sequence[Persona],
        gateway: Gateway,
        bus: Bus,
        create_writer: Callable[[LineRules], LineWriter],
        *,
        seed: int,
        relationships: Mapping[str, Mapping[str, float]] | None = None,
        memory: PersonaMemory | None = None,
        on_problem: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_problem` is told about failures after which the session goes on."""
        start_ms = gateway.now_ms()
        self.session = Session(room, personas, seed, start_ms, relationships)
        for message in gateway.latest(100):
            self.session.line_rules.add_recent(message.text)
        self._gateway = gateway
        self._bus = bus
        self.memory = memory
        self._on_problem = on_problem
        self._runner = PersonaRunner(
            self.session,
            _GatewayLink(gateway, self.session, memory),
            create_writer(self.session.line_rules),
            on_problem=on_problem,
        )
        self._subjects = Subjects(room.name)
        self._tick = 0
        self._opening_event = opening_event(room, personas, seed, start_ms, relationships)

    async def run(self, contexts: AsyncIterator[StreamContext], *, linger_s: float = 0) -> None:
        """Run until the stream ends, and `linger_s` longer."""
        self._gateway.record(self._opening_event)
        try:
            async with asyncio.TaskGroup() as tasks:
                background = [tasks.create_task(self._read_chat()), tasks.create_task(self._run_ticks())]
                async for context in contexts:
                    self.set_context(context)
                await asyncio.sleep(linger_s)
                for task in background:
                    task.cancel()
        finally:
            await self._runner.cancel()
            await self._gateway.flush()

    @property
    def lines_in_progress(self) -> int:
        return self._runner.lines_in_progress

    def set_context(self, context: StreamContext) -> None:
        at_ms = self._gateway.now_ms()
        self.session.set_context(context, at_ms)
        self._gateway.record(CrowdHeard(at_ms=at_ms, context=context))
        self._bus.publish([BusMessage(self._subjects.context, context)])

    def edit(self, room: RoomConfig, personas: Sequence[Persona]) -> None:
        """Apply edited files from the next tick on; the log has them at this place, for a replay."""
        self.session.edit(room, personas)
        self._gateway.record(edit_event(room, personas))

    async def _read_chat(self) -> None:
        async with self._bus.subscribe(
            self._subjects.firehose, limit=100_000, when_slow=WhenSlow.DISCONNECT
        ) as messages:
            async for message in messages:
                self.session.add_message(message.body)

    async def _run_ticks(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self.session.room.tempo.tick_s
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            due = max(due + self.session.room.tempo.tick_s, loop.time())
            self._tick += 1
            state = self.session.room_state(self._tick, self._gateway.now_ms())
            self._runner.run_tick(state)
            self._bus.publish([BusMessage(self._subjects.trends, state.trends)])
            store_due_memories(self.memory, self.session, state.at_ms, self._on_problem)


def store_due_memories(
    memory: PersonaMemory | None, session: Session, now_ms: int, on_problem: Callable[[str], None]
) -> None:
    """Store what is due. A failure is reported, and the session goes on without that memory."""
    if memory is None:
        return
    try:
        if memory.uses_model:
            memory.start_storing(session.history.spam_filter, now_ms)
            return
        memory.store_due(session.history.spam_filter, now_ms)
    except Exception as error:
        what = describe(error)[0]
        _log.error("crowd memory was not stored", room=session.room.name, error=what, exc_info=error)
        on_problem(f"A memory was not stored: {what}")


def edit_event(room: RoomConfig, personas: Iterable[Persona], number: int = 0) -> CrowdEdited:
    return CrowdEdited(
        rules=room.model_dump(mode="json"),
        personas=tuple(persona.model_dump(mode="json") for persona in personas),
        number=number,
    )


def opening_event(
    room: RoomConfig,
    personas: Iterable[Persona],
    seed: int,
    start_ms: int,
    relationships: Mapping[str, Mapping[str, float]] | None = None,
) -> CrowdOpened:
    return CrowdOpened(
        room=room.name,
        seed=seed,
        start_ms=start_ms,
        rules=room.model_dump(mode="json"),
        personas=tuple(persona.model_dump(mode="json") for persona in personas),
        relationships={persona: dict(people) for persona, people in (relationships or {}).items()},
    )
