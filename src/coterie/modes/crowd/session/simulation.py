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

from coterie.kernel import Payload
from coterie.modes.crowd.events import CrowdAudited, CrowdHeard, CrowdOpened, CrowdSaid, CrowdWritten, Decided
from coterie.modes.crowd.gateway import Admitted, Door
from coterie.modes.crowd.mind import Decision, Scene
from coterie.modes.crowd.personas import Persona, RoomFile
from coterie.modes.crowd.protocol import ChatMessage, ChatPost, StreamContext
from coterie.modes.crowd.session.evening import Evening
from coterie.modes.crowd.voice import Brief, Phrasebook

ATTEMPTS = 6


@dataclass(frozen=True)
class Pending:
    """A line that is being typed."""

    decided: Decided
    brief: Brief
    tick_ms: int
    text: str


class Simulation:
    def __init__(
        self,
        room: RoomFile,
        personas: Sequence[Persona],
        door: Door,
        *,
        seed: int = 1,
        start_ms: int = 1_767_225_600_000,
        voice: Phrasebook | None = None,
        workers: int = 1,
    ) -> None:
        self.evening = Evening(room, personas, seed, start_ms)
        self.door = door
        self.start_ms = start_ms
        self.journal: list[Payload] = [
            CrowdOpened(
                room=room.name,
                seed=seed,
                start_ms=start_ms,
                rules=room.model_dump(mode="json"),
                personas=tuple(persona.model_dump(mode="json") for persona in personas),
            )
        ]
        self.messages: list[ChatMessage] = []
        self._voice = voice or Phrasebook()
        self._workers = workers
        self._typing: list[tuple[int, str, Pending]] = []
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
        step_ms = round(self.evening.room.tempo.tick_s * 1_000)
        last = self._tick + round(minutes * 60_000 / step_ms)
        with ThreadPoolExecutor(self._workers) as pool:
            while self._tick < last:
                self._tick += 1
                at_ms = self.start_ms + self._tick * step_ms
                while upcoming is not None and upcoming[0] <= at_ms:
                    at, _, _, context, post = upcoming
                    self._type_until(at)
                    if context is not None:
                        self.evening.attend(context, at)
                        self.journal.append(CrowdHeard(at_ms=at, context=context))
                    elif post is not None:
                        self.say(post, at)
                    upcoming = next(coming, None)
                self._type_until(at_ms)
                self._think(at_ms, pool)

    def say(self, post: ChatPost, at_ms: int) -> ChatMessage | None:
        """Through the same door as everybody."""
        decided = self.door.admit(post, at_ms)
        self.journal.extend(CrowdAudited(record=record) for record in decided.audits)
        if not isinstance(decided, Admitted):
            return None
        if not decided.again:
            self.journal.append(CrowdSaid(message=decided.message))
            self.messages.append(decided.message)
            self.evening.hear(decided.message)
        return decided.message

    def _think(self, at_ms: int, pool: ThreadPoolExecutor) -> None:
        scene = self.evening.scene(self._tick, at_ms)
        speaking = self._everybody(scene, pool)
        ticked = self.evening.ticked(scene, speaking)
        self.journal.append(ticked)
        for decided in ticked.spoke:
            brief = self.evening.brief(decided, scene)
            text, why = self._line(brief)
            if why:
                self._drop(decided, scene.tick, at_ms, why)
                continue
            due = at_ms + self.evening.typing_ms(decided, text)
            heapq.heappush(self._typing, (due, decided.persona, Pending(decided, brief, at_ms, text)))

    def _everybody(self, scene: Scene, pool: ThreadPoolExecutor) -> list[Decision]:
        if self._workers == 1:
            return self.evening.think(scene)
        names = list(self.evening.minds)
        shares = [names[worker :: self._workers] for worker in range(self._workers)]
        return [
            decision for share in pool.map(lambda share: self.evening.think(scene, share), shares) for decision in share
        ]

    def _line(self, brief: Brief) -> tuple[str, str]:
        why = "there is nothing it would say"
        for attempt in range(ATTEMPTS):
            text = self.evening.manners.mend(self._voice.write(brief, attempt), brief.persona.name)
            why = self.evening.manners.trouble(text, to_person=brief.to_person)
            if not why:
                return text, ""
        return "", why

    def _type_until(self, at_ms: int) -> None:
        while self._typing and self._typing[0][0] <= at_ms:
            due, _, pending = heapq.heappop(self._typing)
            # Somebody may have said the same while it was being typed.
            text = pending.text
            why = self.evening.manners.trouble(text, to_person=pending.brief.to_person)
            if why:
                text, why = self._line(pending.brief)
            tick = pending.brief.tick
            if why:
                self._drop(pending.decided, tick, due, why)
                continue
            post = self.evening.post(pending.decided, pending.tick_ms, tick, text, due, due)
            if self.say(post, due) is None:
                self._drop(pending.decided, tick, due, "the gateway refused it")

    def _drop(self, decided: Decided, tick: int, at_ms: int, why: str) -> None:
        self.evening.give_up(decided)
        self.journal.append(CrowdWritten(persona=decided.persona, tick=tick, at_ms=at_ms, outcome="refused", why=why))


def firehose_hash(messages: Iterable[ChatMessage]) -> str:
    """SHA-256 of everything that was said, as it went over the wire."""
    told = hashlib.sha256()
    for message in messages:
        told.update(message.wire().encode())
        told.update(b"\n")
    return told.hexdigest()
