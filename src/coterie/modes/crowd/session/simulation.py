"""An evening on simulated time: hours in seconds, the same to the byte wherever and with however many workers it runs.

What happens is kept as the events a live evening would have written, in their order, so that it can be stored and
played again like one.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from coterie.eventstore import Payload
from coterie.modes.crowd.decisions import Decision, RoomState
from coterie.modes.crowd.events import CrowdAudited, CrowdHeard, CrowdOpened, CrowdSaid, CrowdWritten, SpeakDecision
from coterie.modes.crowd.gateway import Admission, Admitted
from coterie.modes.crowd.generation import CannedLines, LineRequest
from coterie.modes.crowd.personas import Persona, RoomConfig
from coterie.modes.crowd.protocol import ChatMessage, ChatPost, StreamContext
from coterie.modes.crowd.session.session import Session

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
