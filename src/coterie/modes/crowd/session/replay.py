"""Plays a recorded evening again: checks it to the byte, or changes a persona and shows what would have been different.

People's messages, contexts and rulings are as they were. Every decision is made anew; a line that was written then is
taken from the record wherever the same decision is made again, and only what is new needs a voice. No model is asked
for anything that was recorded. C17
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from coterie.eventstore import LogReader, Payload
from coterie.modes.crowd.decisions import Decision, RoomState
from coterie.modes.crowd.errors import BadRecording
from coterie.modes.crowd.events import (
    CrowdAudited,
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
from coterie.modes.crowd.generation import CannedLines
from coterie.modes.crowd.moderation import Moderator
from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.prompts import LineRequest
from coterie.modes.crowd.protocol import ChatMessage, ChatPost, StreamContext
from coterie.modes.crowd.session.session import Session
from coterie.modes.crowd.settings import RoomConfig

# An evening on simulated time: hours in seconds, the same to the byte wherever and with however many workers it runs.
#
# What happens is kept as the events a live evening would have written, in their order, so that it can be stored and
# played again like one.


ATTEMPTS = 6


@dataclass(frozen=True)
class PendingLine:
    """A line that is being typed."""

    decision: SpeakDecision
    request: LineRequest
    tick_ms: int
    text: str


class Simulation:
    def __init__(
        self,
        room: RoomConfig,
        personas: Sequence[Persona],
        admission: Admission,
        *,
        seed: int = 1,
        start_ms: int = 1_767_225_600_000,
        lines: CannedLines | None = None,
        workers: int = 1,
    ) -> None:
        self.session = Session(room, personas, seed, start_ms)
        self.admission = admission
        self.start_ms = start_ms
        self.events: list[Payload] = [
            CrowdOpened(
                room=room.name,
                seed=seed,
                start_ms=start_ms,
                rules=room.model_dump(mode="json"),
                personas=tuple(persona.model_dump(mode="json") for persona in personas),
            )
        ]
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
        """Go on for so many minutes. Whatever comes in has its time, and comes in that order."""
        coming = heapq.merge(
            ((at, 0, number, context, None) for number, (at, context) in enumerate(contexts)),
            ((at, 1, number, None, post) for number, (at, post) in enumerate(people)),
        )
        upcoming = next(coming, None)
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
                    upcoming = next(coming, None)
                self._post_typed_until(at_ms)
                self._run_tick(at_ms, pool)

    def post(self, post: ChatPost, at_ms: int) -> ChatMessage | None:
        """Through the same door as everybody."""
        decided = self.admission.admit(post, at_ms)
        self.events.extend(CrowdAudited(record=record) for record in decided.audits)
        if not isinstance(decided, Admitted):
            return None
        if not decided.duplicate:
            self.events.append(CrowdSaid(message=decided.message))
            self.messages.append(decided.message)
            self.session.add_message(decided.message)
        return decided.message

    def _run_tick(self, at_ms: int, pool: ThreadPoolExecutor) -> None:
        scene = self.session.room_state(self._tick, at_ms)
        speaking = self._decide_all(scene, pool)
        ticked = self.session.tick_event(scene, speaking)
        self.events.append(ticked)
        for decided in ticked.spoke:
            brief = self.session.line_request(decided, scene)
            text, why = self._choose_line(brief)
            if why:
                self._drop_line(decided, scene.tick, at_ms, why)
                continue
            due = at_ms + self.session.typing_ms(decided, text)
            heapq.heappush(self._typing, (due, decided.persona, PendingLine(decided, brief, at_ms, text)))

    def _decide_all(self, scene: RoomState, pool: ThreadPoolExecutor) -> list[Decision]:
        if self._workers == 1:
            return self.session.decide(scene)
        names = list(self.session.deciders)
        shares = [names[worker :: self._workers] for worker in range(self._workers)]
        return [
            decision
            for share in pool.map(lambda share: self.session.decide(scene, share), shares)
            for decision in share
        ]

    def _choose_line(self, brief: LineRequest) -> tuple[str, str]:
        why = "there is nothing it would say"
        for attempt in range(ATTEMPTS):
            text = self.session.line_rules.clean(self._lines.write(brief, attempt), brief.persona.name)
            why = self.session.line_rules.rejection_reason(text, to_person=brief.recipient_is_person)
            if not why:
                return text, ""
        return "", why

    def _post_typed_until(self, at_ms: int) -> None:
        while self._typing and self._typing[0][0] <= at_ms:
            due, _, pending = heapq.heappop(self._typing)
            # Somebody may have said the same while it was being typed.
            text = pending.text
            why = self.session.line_rules.rejection_reason(text, to_person=pending.request.recipient_is_person)
            if why:
                text, why = self._choose_line(pending.request)
            tick = pending.request.tick
            if why:
                self._drop_line(pending.decision, tick, due, why)
                continue
            post = self.session.post(pending.decision, pending.tick_ms, tick, text, due, due)
            if self.post(post, due) is None:
                self._drop_line(pending.decision, tick, due, "the gateway refused it")

    def _drop_line(self, decided: SpeakDecision, tick: int, at_ms: int, why: str) -> None:
        self.session.cancel_line(decided)
        self.events.append(CrowdWritten(persona=decided.persona, tick=tick, at_ms=at_ms, outcome="refused", why=why))


def firehose_hash(messages: Iterable[ChatMessage]) -> str:
    """SHA-256 of everything that was said, as it went over the wire."""
    told = hashlib.sha256()
    for message in messages:
        told.update(message.to_json().encode())
        told.update(b"\n")
    return told.hexdigest()


# Finding a session in the log: from where a room was last opened to where it ends.


_PAGE = 5_000


def last_session_events(reader: LogReader, room: str) -> list[Payload]:
    opened = reader.read(room_stream(room), kinds=[CrowdOpened.kind], limit=1, newest_first=True)
    if not opened:
        raise BadRecording(
            f"Nothing was recorded in the room {room}.", f"Begin with: coterie crowd run --room {room} …"
        )
    found: list[Payload] = []
    after = opened[0].seq - 1
    while page := reader.read(room_stream(room), after=after, limit=_PAGE):
        found.extend(event.payload for event in page)
        after = page[-1].seq
    return found


@dataclass
class ReplayResult:
    recorded: list[ChatMessage]
    messages: list[ChatMessage] = field(default_factory=list)
    decisions: int = 0
    changed_decisions: int = 0
    """Moments at which somebody spoke who did not, or did not who had."""

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
        """Said then, and not now."""
        return _without(self.recorded, self.messages)

    def only_replayed(self) -> list[ChatMessage]:
        return _without(self.messages, self.recorded)


class Replay:
    def __init__(
        self,
        events: Iterable[Payload],
        moderator: Moderator,
        *,
        changed: Mapping[str, Persona] | None = None,
        lines: CannedLines | None = None,
    ) -> None:
        """`changed` are personas as they might have been, by name."""
        self._events = list(events)
        opened = next((event for event in self._events if isinstance(event, CrowdOpened)), None)
        if opened is None:
            raise BadRecording("This log does not say how the session began.", "Replay a room that `crowd run` opened.")
        changed = dict(changed or {})
        personas = [changed.get(str(told["name"])) or Persona.model_validate(told) for told in opened.personas]
        room = RoomConfig.model_validate(opened.rules)
        self._session = Session(room, personas, opened.seed, opened.start_ms)
        first = next((event.message.number for event in self._events if isinstance(event, CrowdSaid)), 1)
        self._moderator = moderator
        # By the rules as they were written then: the file may say something else by now.
        self._admission = admission_for(room, personas, moderator.with_policy(room.moderation), last=first - 1)
        self._changed = frozenset(changed)
        self._lines = lines or CannedLines()
        self._awaiting_line: dict[str, tuple[SpeakDecision, int]] = {}
        """Decisions of this replay whose recorded line is still to come."""
        self._typing: list[tuple[int, str, PendingLine]] = []
        self._unread: list[tuple[int, ChatMessage]] = []
        """Said, but not yet heard by anybody who thinks: its number then, and the message."""
        self._ids: dict[str, str] = {}
        """A message's id then → its id now."""

    def run(self) -> ReplayResult:
        result = ReplayResult([event.message for event in self._events if isinstance(event, CrowdSaid)])
        for event in self._events:
            if isinstance(event, CrowdHeard):
                self._post_typed_until(event.at_ms, result)
                self._session.set_context(event.context, event.at_ms)
            elif isinstance(event, CrowdRuled):
                self._admission.moderation_state.apply(event)
            elif isinstance(event, CrowdGoverned):
                rules = RoomConfig.model_validate(event.rules)
                self._admission.change_rules(self._moderator.with_policy(rules.moderation), rules.limits)
            elif isinstance(event, CrowdTicked):
                self._post_typed_until(event.at_ms, result)
                self._tick(event, result)
            elif isinstance(event, CrowdWritten) and event.outcome != "written":
                self._cancel_line(event)
            elif isinstance(event, CrowdSaid):
                self._post_typed_until(event.message.ts, result)
                self._replay_message(event.message, result)
        return result

    def _tick(self, then: CrowdTicked, result: ReplayResult) -> None:
        for message in [message for number, message in self._unread if number <= then.upto]:
            self._session.add_message(message)
        self._unread = [(number, message) for number, message in self._unread if number > then.upto]
        scene = self._session.room_state(then.tick, then.at_ms)
        now = self._session.tick_event(scene, self._session.decide(scene))
        result.decisions += 1
        result.changed_decisions += {each.persona for each in now.spoke} != {each.persona for each in then.spoke}
        before = {each.persona: each for each in then.spoke}
        for decided in now.spoke:
            key = f"{decided.persona}@{then.tick}"
            was = before.get(decided.persona)
            same = was is not None and (was.because, self._ids.get(was.reply_to or "")) == (
                decided.because,
                decided.reply_to,
            )
            if same and decided.persona not in self._changed:
                self._awaiting_line[key] = (decided, then.at_ms)
                continue
            brief = self._session.line_request(decided, scene)
            for attempt in range(ATTEMPTS):
                text = self._session.line_rules.clean(self._lines.write(brief, attempt), decided.persona)
                if not self._session.line_rules.rejection_reason(text, to_person=brief.recipient_is_person):
                    due = then.at_ms + self._session.typing_ms(decided, text)
                    pending = PendingLine(decided, brief, then.at_ms, text)
                    heapq.heappush(self._typing, (due, decided.persona, pending))
                    break
            else:
                self._session.cancel_line(decided)

    def _replay_message(self, then: ChatMessage, result: ReplayResult) -> None:
        reply_to = self._ids.get(then.reply_to or "")
        if then.author.kind != "persona":
            number = self._admission.last_number + 1
            renamed = {"id": f"{then.room}-{number}", "number": number, "reply_to": reply_to}
            message = then.model_copy(update=renamed)
            self._admission.remember(message)
            self._add_message(then, message, result)
            return
        key = then.trace.decision if then.trace is not None else None
        found = self._awaiting_line.pop(key or "", None)
        if found is None or then.trace is None:
            return  # that decision was not made this time
        decided, tick_ms = found
        tick = int((key or "@0").rpartition("@")[2])
        written, posted = then.trace.written_ms or then.ts, then.trace.posted_ms or then.ts
        post = self._session.post(decided, tick_ms, tick, then.text, written, posted)
        admitted = self._admission.admit(post, then.ts)
        if isinstance(admitted, Admitted):
            self._add_message(then, admitted.message, result)

    def _add_message(self, then: ChatMessage | None, message: ChatMessage, result: ReplayResult) -> None:
        result.messages.append(message)
        if then is None:
            self._session.add_message(message)
            return
        self._ids[then.id] = message.id
        self._unread.append((then.number, message))

    def _cancel_line(self, event: CrowdWritten) -> None:
        found = self._awaiting_line.pop(f"{event.persona}@{event.tick}", None)
        if found is not None:
            self._session.cancel_line(found[0])

    def _post_typed_until(self, at_ms: int, result: ReplayResult) -> None:
        while self._typing and self._typing[0][0] <= at_ms:
            due, _, pending = heapq.heappop(self._typing)
            if self._session.line_rules.rejection_reason(pending.text, to_person=pending.request.recipient_is_person):
                self._session.cancel_line(pending.decision)
                continue
            post = self._session.post(pending.decision, pending.tick_ms, pending.request.tick, pending.text, due, due)
            admitted = self._admission.admit(post, due)
            if isinstance(admitted, Admitted):
                self._add_message(None, admitted.message, result)


def admission_for(room: RoomConfig, personas: Iterable[Persona], moderator: Moderator, last: int = 0) -> Admission:
    """The door of a room with these regulars."""
    everybody = list(personas)
    emotes = {*room.emotes, *(emote for persona in everybody for emote in persona.emotes)}
    return Admission(
        room.name, moderator, room.limits, emotes=emotes, names=[persona.name for persona in everybody], last=last
    )


def _without(some: list[ChatMessage], others: list[ChatMessage]) -> list[ChatMessage]:
    known = {(message.author.name, message.text) for message in others}
    return [message for message in some if (message.author.name, message.text) not in known]
