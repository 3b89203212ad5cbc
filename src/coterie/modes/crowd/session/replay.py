"""Simulated and replayed sessions, which run on simulated time and give the same messages every time."""

from __future__ import annotations

import hashlib
import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from coterie.eventstore import LogReader, Payload
from coterie.modes.crowd.decisions import Decision, RoomState
from coterie.modes.crowd.errors import BadRecording
from coterie.modes.crowd.events import (
    CrowdAudited,
    CrowdEdited,
    CrowdGoverned,
    CrowdHeard,
    CrowdOpened,
    CrowdRuled,
    CrowdSaid,
    CrowdTicked,
    CrowdWritten,
    SpeakDecision,
    room_stream,
)
from coterie.modes.crowd.gateway import Admission, Admitted
from coterie.modes.crowd.generation import NO_LINE, CannedLines, ReplayLines
from coterie.modes.crowd.moderation import Moderator
from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.prompts import LineRequest
from coterie.modes.crowd.protocol import ChatMessage, ChatPost, StreamContext
from coterie.modes.crowd.session.session import Session, TickShare, opening_event
from coterie.modes.crowd.settings import RoomConfig

_ATTEMPTS = 6
_PAGE_SIZE = 5_000


@dataclass(frozen=True)
class PendingLine:
    """A line that is being typed."""

    decision: SpeakDecision
    request: LineRequest
    tick_ms: int
    text: str


class Simulation:
    """A session on simulated time with canned lines. `events` are those a live session would store."""

    def __init__(
        self,
        room: RoomConfig,
        personas: Sequence[Persona],
        admission: Admission,
        *,
        seed: int = 1,
        start_ms: int = 1_767_225_600_000,
        lines: ReplayLines | None = None,
        workers: int = 1,
        relationships: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        self.session = Session(room, personas, seed, start_ms, relationships)
        self.admission = admission
        self.start_ms = start_ms
        self.events: list[Payload] = [opening_event(room, personas, seed, start_ms, relationships)]
        self.messages: list[ChatMessage] = []
        self._lines = lines or CannedLines()
        self._workers = workers
        self._typing: list[tuple[int, str, PendingLine]] = []
        self._tick = 0

    def run(
        self,
        minutes: float,
        contexts: Iterable[tuple[int, StreamContext]] = (),
        people: Iterable[tuple[int, ChatPost]] = (),
    ) -> None:
        """Advance by some minutes, with contexts and posts at their times."""
        inputs = heapq.merge(
            ((at, 0, number, context, None) for number, (at, context) in enumerate(contexts)),
            ((at, 1, number, None, post) for number, (at, post) in enumerate(people)),
        )
        upcoming = next(inputs, None)
        step_ms = round(self.session.room.tempo.tick_s * 1_000)
        last = self._tick + round(minutes * 60_000 / step_ms)
        with ThreadPoolExecutor(self._workers) as pool:
            while self._tick < last:
                self._tick += 1
                at_ms = self.start_ms + self._tick * step_ms
                while upcoming is not None and upcoming[0] <= at_ms:
                    at, _, _, context, post = upcoming
                    self._post_typed_until(at)
                    if context is not None:
                        self.session.set_context(context, at)
                        self.events.append(CrowdHeard(at_ms=at, context=context))
                    elif post is not None:
                        self.post(post, at)
                    upcoming = next(inputs, None)
                self._post_typed_until(at_ms)
                self._run_tick(at_ms, pool)

    def post(self, post: ChatPost, at_ms: int) -> ChatMessage | None:
        decision = self.admission.admit(post, at_ms)
        self.events.extend(CrowdAudited(record=record) for record in decision.audits)
        if not isinstance(decision, Admitted):
            return None
        if not decision.duplicate:
            self.events.append(CrowdSaid(message=decision.message))
            self.messages.append(decision.message)
            self.session.add_message(decision.message)
        return decision.message

    def _run_tick(self, at_ms: int, pool: ThreadPoolExecutor) -> None:
        state = self.session.room_state(self._tick, at_ms)
        tick = self.session.tick_event(state, self._decide_all(state, pool))
        self.events.append(tick)
        for decision in tick.spoke:
            request = self.session.line_request(decision, state)
            text, reason = self._choose_line(request)
            if reason:
                self._drop_line(decision, state.tick, at_ms, reason)
                continue
            due = at_ms + self.session.typing_ms(decision, text)
            heapq.heappush(self._typing, (due, decision.persona, PendingLine(decision, request, at_ms, text)))

    def _decide_all(self, state: RoomState, pool: ThreadPoolExecutor) -> list[Decision]:
        if self._workers == 1:
            return self.session.decide(state)
        names = list(self.session.deciders)
        shares = [names[worker :: self._workers] for worker in range(self._workers)]
        return [
            decision
            for share in pool.map(lambda share: self.session.decide(state, share), shares)
            for decision in share
        ]

    def _choose_line(self, request: LineRequest) -> tuple[str, str]:
        """Return a line, or why there is none."""
        reason = NO_LINE
        for attempt in range(_ATTEMPTS):
            text = self.session.line_rules.clean(self._lines.write(request, attempt), request.persona.name)
            reason = self.session.line_rules.refusal_reason(text, to_person=request.recipient_is_person)
            if not reason:
                return text, ""
        return "", reason

    def _post_typed_until(self, at_ms: int) -> None:
        while self._typing and self._typing[0][0] <= at_ms:
            due, _, pending = heapq.heappop(self._typing)
            # Another author may have written the same in the meantime.
            text = pending.text
            reason = self.session.line_rules.refusal_reason(text, to_person=pending.request.recipient_is_person)
            if reason:
                text, reason = self._choose_line(pending.request)
            tick = pending.request.tick
            if reason:
                self._drop_line(pending.decision, tick, due, reason)
                continue
            post = self.session.post(pending.decision, pending.tick_ms, tick, text, due, due)
            if self.post(post, due) is None:
                self._drop_line(pending.decision, tick, due, "the gateway refused it")

    def _drop_line(self, decision: SpeakDecision, tick: int, at_ms: int, reason: str) -> None:
        self.session.cancel_line(decision)
        self.events.append(
            CrowdWritten(persona=decision.persona, tick=tick, at_ms=at_ms, outcome="refused", why=reason)
        )


def firehose_hash(messages: Iterable[ChatMessage]) -> str:
    """SHA-256 of the messages in their wire format."""
    digest = hashlib.sha256()
    for message in messages:
        digest.update(message.to_json().encode())
        digest.update(b"\n")
    return digest.hexdigest()


def last_session_events(reader: LogReader, room: str) -> list[Payload]:
    """Return the events of a room since its last session began."""
    opened = reader.read(room_stream(room), kinds=[CrowdOpened.kind], limit=1, newest_first=True)
    if not opened:
        raise BadRecording(
            f"Nothing was recorded in the room {room}.", f"Start with: coterie crowd run --room {room} …"
        )
    events: list[Payload] = []
    after = opened[0].seq - 1
    while page := reader.read(room_stream(room), after=after, limit=_PAGE_SIZE):
        events.extend(event.payload for event in page)
        after = page[-1].seq
    return events


@dataclass
class ReplayResult:
    recorded: list[ChatMessage]
    messages: list[ChatMessage] = field(default_factory=list)
    decisions: int = 0
    changed_decisions: int = 0
    """Ticks at which other personas spoke than in the recording."""

    @property
    def identical(self) -> bool:
        return self.recorded_hash == self.hash and not self.changed_decisions

    @property
    def hash(self) -> str:
        return firehose_hash(self.messages)

    @property
    def recorded_hash(self) -> str:
        return firehose_hash(self.recorded)

    def only_recorded(self) -> list[ChatMessage]:
        """Messages of the recording that the replay does not have."""
        return _without(self.recorded, self.messages)

    def only_replayed(self) -> list[ChatMessage]:
        """Messages of the replay that the recording does not have."""
        return _without(self.messages, self.recorded)


class Replay:
    """Replays a recorded session, exactly or with changed personas.

    Messages of people, contexts and rulings are taken from the log; every decision is made again. A recorded line is
    reused where the same decision is made; other lines are canned, or written by `lines`.
    """

    def __init__(
        self,
        events: Iterable[Payload],
        moderator: Moderator,
        *,
        changed: Mapping[str, Persona] | None = None,
        lines: ReplayLines | None = None,
    ) -> None:
        """`changed` maps names to changed personas; `lines` writes what is not in the recording."""
        self._events = list(events)
        self._divided = any(isinstance(event, CrowdTicked) and event.personas is not None for event in self._events)
        """Whether the session was divided among processes."""
        if self._divided:
            self._events = _order_by_ticks(self._events)
        opened = next((event for event in self._events if isinstance(event, CrowdOpened)), None)
        if opened is None:
            raise BadRecording(
                "The log does not record how the session began.", "Replay a room that `crowd run` opened."
            )
        changed = dict(changed or {})
        personas = [changed.get(str(file["name"])) or Persona.model_validate(file) for file in opened.personas]
        room = RoomConfig.model_validate(opened.rules)
        self._session = Session(room, personas, opened.seed, opened.start_ms, opened.relationships)
        first = next((event.message.number for event in self._events if isinstance(event, CrowdSaid)), 1)
        self._moderator = moderator
        # With the recorded rules: the file may have changed since.
        self._admission = admission_for(room, personas, moderator.with_policy(room.moderation), last=first - 1)
        self._changed = changed
        self._lines = lines or CannedLines()
        self._awaiting_line: dict[str, tuple[SpeakDecision, int]] = {}
        """Decisions of the replay whose recorded line comes later."""
        self._typing: list[tuple[int, str, PendingLine]] = []
        self._unread: list[tuple[int, ChatMessage]] = []
        """Messages no tick has taken into account yet, with their recorded number."""
        self._ids: dict[str, str] = {}
        """Recorded message id → replayed message id."""
        self._contexts = {
            event.context.number: event for event in self._events if self._divided and isinstance(event, CrowdHeard)
        }
        self._edits = {event.number: event for event in self._events if isinstance(event, CrowdEdited)}
        self._applied_edit = 0
        """The number of the edit that applies, in a divided session."""

    def run(self) -> ReplayResult:
        result = ReplayResult([event.message for event in self._events if isinstance(event, CrowdSaid)])
        for event in self._events:
            if isinstance(event, CrowdHeard):
                if not self._divided:  # else each tick says which context counts
                    self._post_typed_until(event.at_ms, result)
                    self._session.set_context(event.context, event.at_ms)
            elif isinstance(event, CrowdRuled):
                self._admission.moderation_state.apply(event)
            elif isinstance(event, CrowdGoverned):
                rules = RoomConfig.model_validate(event.rules)
                self._admission.change_rules(self._moderator.with_policy(rules.moderation), rules.limits, event.changed)
            elif isinstance(event, CrowdEdited):
                self._edit(event)
            elif isinstance(event, CrowdTicked):
                self._post_typed_until(event.at_ms, result)
                self._tick(event, result)
            elif isinstance(event, CrowdWritten) and event.outcome != "written":
                self._cancel_line(event)
            elif isinstance(event, CrowdSaid):
                self._post_typed_until(event.message.ts, result)
                self._replay_message(event.message, result)
        return result

    def _edit(self, event: CrowdEdited) -> None:
        personas = self._edited_personas(event)
        self._admission.add_names(persona.name for persona in personas)
        if not event.number:  # else each tick says which edit applies
            self._session.edit(RoomConfig.model_validate(event.rules), personas)

    def _edit_at_tick(self, number: int) -> None:
        if number != self._applied_edit and (edit := self._edits.get(number)) is not None:
            self._applied_edit = number
            self._session.edit(RoomConfig.model_validate(edit.rules), self._edited_personas(edit))

    def _edited_personas(self, event: CrowdEdited) -> list[Persona]:
        edited = [Persona.model_validate(file) for file in event.personas]
        return [self._changed.get(persona.name, persona) for persona in edited]

    def _tick(self, recorded: CrowdTicked, result: ReplayResult) -> None:
        self._edit_at_tick(recorded.edit)
        for message in [message for number, message in self._unread if number <= recorded.upto]:
            self._session.add_message(message)
        self._unread = [(number, message) for number, message in self._unread if number > recorded.upto]
        share = None
        if recorded.personas is not None:  # one of several processes
            share = TickShare(recorded.personas, recorded.joined, recorded.context, recorded.edit)
            self._session.join(recorded.joined)
            if (heard := self._contexts.get(recorded.context or 0)) is not None:
                self._session.set_context(heard.context, heard.at_ms)
        state = self._session.room_state(recorded.tick, recorded.at_ms)
        replayed = self._session.tick_event(
            state, self._session.decide(state, share.names if share is not None else None), share
        )
        before = {each.persona: each for each in recorded.spoke}
        result.decisions += 1
        result.changed_decisions += {each.persona for each in replayed.spoke} != set(before)
        for decision in replayed.spoke:
            earlier = before.get(decision.persona)
            same = earlier is not None and (earlier.because, self._ids.get(earlier.reply_to or "")) == (
                decision.because,
                decision.reply_to,
            )
            if same and decision.persona not in self._changed:
                self._awaiting_line[f"{decision.persona}@{recorded.tick}"] = (decision, recorded.at_ms)
                continue
            request = self._session.line_request(decision, state)
            for attempt in range(_ATTEMPTS):
                text = self._session.line_rules.clean(self._lines.write(request, attempt), decision.persona)
                if not self._session.line_rules.refusal_reason(text, to_person=request.recipient_is_person):
                    due = recorded.at_ms + self._session.typing_ms(decision, text)
                    pending = PendingLine(decision, request, recorded.at_ms, text)
                    heapq.heappush(self._typing, (due, decision.persona, pending))
                    break
            else:
                self._session.cancel_line(decision)

    def _replay_message(self, recorded: ChatMessage, result: ReplayResult) -> None:
        reply_to = self._ids.get(recorded.reply_to or "")
        if recorded.author.kind != "persona":
            number = self._admission.last_number + 1
            renumbered = {"id": f"{recorded.room}-{number}", "number": number, "reply_to": reply_to}
            message = recorded.model_copy(update=renumbered)
            self._admission.remember(message)
            self._add_message(recorded, message, result)
            return
        key = recorded.trace.decision if recorded.trace is not None else None
        awaiting = self._awaiting_line.pop(key or "", None)
        if awaiting is None or recorded.trace is None:
            return  # the replay did not make that decision
        decision, tick_ms = awaiting
        tick = int((key or "@0").rpartition("@")[2])
        trace = recorded.trace
        written, posted = trace.written_ms or recorded.ts, trace.posted_ms or recorded.ts
        post = self._session.post(
            decision, tick_ms, tick, recorded.text, written, posted, model=trace.model, fallback=trace.fallback
        )
        if recorded.nonce is not None:  # workers choose their own ids
            post = post.model_copy(update={"id": recorded.nonce})
        admitted = self._admission.admit(post, recorded.ts)
        if isinstance(admitted, Admitted):
            self._add_message(recorded, admitted.message, result)

    def _add_message(self, recorded: ChatMessage | None, message: ChatMessage, result: ReplayResult) -> None:
        result.messages.append(message)
        if recorded is None:
            self._session.add_message(message)
            return
        self._ids[recorded.id] = message.id
        self._unread.append((recorded.number, message))

    def _cancel_line(self, event: CrowdWritten) -> None:
        awaiting = self._awaiting_line.pop(f"{event.persona}@{event.tick}", None)
        if awaiting is not None:
            self._session.cancel_line(awaiting[0])

    def _post_typed_until(self, at_ms: int, result: ReplayResult) -> None:
        while self._typing and self._typing[0][0] <= at_ms:
            due, _, pending = heapq.heappop(self._typing)
            if self._session.line_rules.refusal_reason(pending.text, to_person=pending.request.recipient_is_person):
                self._session.cancel_line(pending.decision)
                continue
            post = self._session.post(pending.decision, pending.tick_ms, pending.request.tick, pending.text, due, due)
            admitted = self._admission.admit(post, due)
            if isinstance(admitted, Admitted):
                self._add_message(None, admitted.message, result)


def _order_by_ticks(events: list[Payload]) -> list[Payload]:
    """The events of a divided session in the order in which they had an effect.

    Each process records its part of a tick on its own, so a slow one does so later than others. Messages come before
    the first tick that takes them into account, and the outcome of a line after the last tick of its persona that was
    recorded before it.
    """
    ticks: list[CrowdTicked] = []
    outcomes: dict[int, list[CrowdWritten]] = {}
    latest: dict[str, CrowdTicked] = {}
    waiting: deque[tuple[float, list[Payload]]] = deque()
    others: list[Payload] = []
    for event in events:
        if isinstance(event, CrowdTicked):
            ticks.append(event)
            for name in event.personas or ():
                if name not in latest or latest[name].tick <= event.tick:
                    latest[name] = event
        elif isinstance(event, CrowdWritten) and event.persona in latest:
            outcomes.setdefault(id(latest[event.persona]), []).append(event)
        else:
            others.append(event)
            if isinstance(event, CrowdSaid):
                waiting.append((event.message.number, others))
                others = []
    ordered: list[Payload] = []
    for tick in sorted(ticks, key=lambda each: each.tick):
        while waiting and waiting[0][0] <= tick.upto:
            ordered += waiting.popleft()[1]
        ordered += [tick, *outcomes.get(id(tick), ())]
    return [*ordered, *(event for _, left in waiting for event in left), *others]


def admission_for(room: RoomConfig, personas: Iterable[Persona], moderator: Moderator, last: int = 0) -> Admission:
    """Create the admission of a room with these personas."""
    personas = list(personas)
    emotes = {*room.emotes, *(emote for persona in personas for emote in persona.emotes)}
    return Admission(
        room.name, moderator, room.limits, emotes=emotes, names=[persona.name for persona in personas], last=last
    )


def _without(messages: list[ChatMessage], others: list[ChatMessage]) -> list[ChatMessage]:
    other_lines = {(message.author.name, message.text) for message in others}
    return [message for message in messages if (message.author.name, message.text) not in other_lines]
