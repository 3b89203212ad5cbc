"""Plays a recorded evening again: checks it to the byte, or changes a persona and shows what would have been different.

People's messages, contexts and rulings are as they were. Every decision is made anew; a line that was written then is
taken from the record wherever the same decision is made again, and only what is new needs a voice. No model is asked
for anything that was recorded. C17
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coterie.kernel import Payload
from coterie.modes.crowd.errors import BadRecording
from coterie.modes.crowd.events import (
    CrowdGoverned,
    CrowdHeard,
    CrowdOpened,
    CrowdRuled,
    CrowdSaid,
    CrowdTicked,
    CrowdWritten,
    Decided,
)
from coterie.modes.crowd.gateway import Admitted, Door
from coterie.modes.crowd.moderation import Moderator
from coterie.modes.crowd.personas import Persona, RoomFile
from coterie.modes.crowd.protocol import ChatMessage
from coterie.modes.crowd.session.evening import Evening
from coterie.modes.crowd.session.simulation import ATTEMPTS, Pending, firehose_hash
from coterie.modes.crowd.voice import Phrasebook


@dataclass
class Replayed:
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

    def only_then(self) -> list[ChatMessage]:
        """Said then, and not now."""
        return _without(self.recorded, self.messages)

    def only_now(self) -> list[ChatMessage]:
        return _without(self.messages, self.recorded)


class Replay:
    def __init__(
        self,
        events: Iterable[Payload],
        moderator: Moderator,
        *,
        changed: Mapping[str, Persona] | None = None,
        voice: Phrasebook | None = None,
    ) -> None:
        """`changed` are personas as they might have been, by name."""
        self._events = list(events)
        opened = next((event for event in self._events if isinstance(event, CrowdOpened)), None)
        if opened is None:
            raise BadRecording("This log does not say how the session began.", "Replay a room that `crowd run` opened.")
        changed = dict(changed or {})
        personas = [changed.get(str(told["name"])) or Persona.model_validate(told) for told in opened.personas]
        room = RoomFile.model_validate(opened.rules)
        self._evening = Evening(room, personas, opened.seed, opened.start_ms)
        first = next((event.message.number for event in self._events if isinstance(event, CrowdSaid)), 1)
        self._moderator = moderator
        # By the rules as they were written then: the file may say something else by now.
        self._door = door_of(room, personas, moderator.under(room.moderation), last=first - 1)
        self._changed = frozenset(changed)
        self._voice = voice or Phrasebook()
        self._now: dict[str, tuple[Decided, int]] = {}
        """Decisions of this replay whose recorded line is still to come."""
        self._typing: list[tuple[int, str, Pending]] = []
        self._unheard: list[tuple[int, ChatMessage]] = []
        """Said, but not yet heard by anybody who thinks: its number then, and the message."""
        self._ids: dict[str, str] = {}
        """A message's id then → its id now."""

    def run(self) -> Replayed:
        result = Replayed([event.message for event in self._events if isinstance(event, CrowdSaid)])
        for event in self._events:
            if isinstance(event, CrowdHeard):
                self._type_until(event.at_ms, result)
                self._evening.attend(event.context, event.at_ms)
            elif isinstance(event, CrowdRuled):
                self._door.rulings.apply(event)
            elif isinstance(event, CrowdGoverned):
                rules = RoomFile.model_validate(event.rules)
                self._door.govern(self._moderator.under(rules.moderation), rules.limits)
            elif isinstance(event, CrowdTicked):
                self._type_until(event.at_ms, result)
                self._think(event, result)
            elif isinstance(event, CrowdWritten) and event.outcome != "written":
                self._gave_up(event)
            elif isinstance(event, CrowdSaid):
                self._type_until(event.message.ts, result)
                self._say(event.message, result)
        return result

    def _think(self, then: CrowdTicked, result: Replayed) -> None:
        for message in [message for number, message in self._unheard if number <= then.upto]:
            self._evening.hear(message)
        self._unheard = [(number, message) for number, message in self._unheard if number > then.upto]
        scene = self._evening.scene(then.tick, then.at_ms)
        now = self._evening.ticked(scene, self._evening.think(scene))
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
                self._now[key] = (decided, then.at_ms)
                continue
            brief = self._evening.brief(decided, scene)
            for attempt in range(ATTEMPTS):
                text = self._evening.manners.mend(self._voice.write(brief, attempt), decided.persona)
                if not self._evening.manners.trouble(text, to_person=brief.to_person):
                    due = then.at_ms + self._evening.typing_ms(decided, text)
                    pending = Pending(decided, brief, then.at_ms, text)
                    heapq.heappush(self._typing, (due, decided.persona, pending))
                    break
            else:
                self._evening.give_up(decided)

    def _say(self, then: ChatMessage, result: Replayed) -> None:
        reply_to = self._ids.get(then.reply_to or "")
        if then.author.kind != "persona":
            number = self._door.number + 1
            renamed = {"id": f"{then.room}-{number}", "number": number, "reply_to": reply_to}
            message = then.model_copy(update=renamed)
            self._door.remember(message)
            self._heard(then, message, result)
            return
        key = then.trace.decision if then.trace is not None else None
        found = self._now.pop(key or "", None)
        if found is None or then.trace is None:
            return  # that decision was not made this time
        decided, tick_ms = found
        tick = int((key or "@0").rpartition("@")[2])
        written, posted = then.trace.written_ms or then.ts, then.trace.posted_ms or then.ts
        post = self._evening.post(decided, tick_ms, tick, then.text, written, posted)
        admitted = self._door.admit(post, then.ts)
        if isinstance(admitted, Admitted):
            self._heard(then, admitted.message, result)

    def _heard(self, then: ChatMessage | None, message: ChatMessage, result: Replayed) -> None:
        result.messages.append(message)
        if then is None:
            self._evening.hear(message)
            return
        self._ids[then.id] = message.id
        self._unheard.append((then.number, message))

    def _gave_up(self, event: CrowdWritten) -> None:
        found = self._now.pop(f"{event.persona}@{event.tick}", None)
        if found is not None:
            self._evening.give_up(found[0])

    def _type_until(self, at_ms: int, result: Replayed) -> None:
        while self._typing and self._typing[0][0] <= at_ms:
            due, _, pending = heapq.heappop(self._typing)
            if self._evening.manners.trouble(pending.text, to_person=pending.brief.to_person):
                self._evening.give_up(pending.decided)
                continue
            post = self._evening.post(pending.decided, pending.tick_ms, pending.brief.tick, pending.text, due, due)
            admitted = self._door.admit(post, due)
            if isinstance(admitted, Admitted):
                self._heard(None, admitted.message, result)


def door_of(room: RoomFile, personas: Iterable[Persona], moderator: Moderator, last: int = 0) -> Door:
    """The door of a room with these regulars."""
    everybody = list(personas)
    emotes = {*room.emotes, *(emote for persona in everybody for emote in persona.emotes)}
    return Door(
        room.name, moderator, room.limits, emotes=emotes, names=[persona.name for persona in everybody], last=last
    )


def _without(some: list[ChatMessage], others: list[ChatMessage]) -> list[ChatMessage]:
    known = {(message.author.name, message.text) for message in others}
    return [message for message in some if (message.author.name, message.text) not in known]
