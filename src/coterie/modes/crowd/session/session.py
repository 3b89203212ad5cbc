"""An evening: everybody who is in a room, what they hear, and when they think. It knows no clock and no model.

Times come in from outside, lines come in from outside, and out come decisions and posts. Live, in a simulation and in a
replay the same evening runs, so what was recorded of one can be checked against the other. C17
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from coterie.modes.crowd.decisions import ChatHistory, Decision, PersonaDecider, RoomState, TrendTracker
from coterie.modes.crowd.decisions.decision import derive_random
from coterie.modes.crowd.decisions.room_state import compute_room_state
from coterie.modes.crowd.events import CrowdTicked, SpeakDecision
from coterie.modes.crowd.generation import LineRequest, LineRules
from coterie.modes.crowd.personas import Persona, RoomConfig
from coterie.modes.crowd.protocol import ChatAuthor, ChatMessage, ChatPost, StreamContext, Trace, Trends

_MAX_DECISIONS = 120
_PROMPT_MESSAGES = 12


class Session:
    def __init__(
        self,
        room: RoomConfig,
        personas: Sequence[Persona],
        seed: int,
        start_ms: int,
    ) -> None:
        self.start_ms = start_ms
        self.room = room
        self.seed = seed
        self.history = ChatHistory()
        self.trend_tracker = TrendTracker(room.name)
        self.line_rules = LineRules(room.tempo.longest_line)
        self.deciders = {each.name: PersonaDecider(each, room, seed) for each in personas}
        self._vocabulary = frozenset(word for persona in personas for word in persona.interests)
        """What anybody here has something to say about."""
        self._talkativeness = sum(mind.traits.talkativeness for mind in self.deciders.values())
        self.recent_decisions: dict[str, deque[Decision]] = {
            name: deque(maxlen=_MAX_DECISIONS) for name in self.deciders
        }
        """Why each of them spoke lately, and why not."""
        self.trends: Trends | None = None

    def add_message(self, message: ChatMessage) -> None:
        self.history.add(message)
        self.trend_tracker.add(message)
        self.line_rules.add_recent(message.text)
        mind = self.deciders.get(message.author.name)
        if mind is not None and message.author.kind == "persona":
            mind.last_spoke_ms = message.ts
            mind.typing = False

    def set_context(self, context: StreamContext, at_ms: int) -> None:
        self.history.set_context(context, at_ms)

    def room_state(self, tick: int, at_ms: int) -> RoomState:
        self.trends = self.trend_tracker.trends_at(at_ms)
        return compute_room_state(self.history, self.room, self.trends, tick, at_ms, self._talkativeness)

    def decide(self, state: RoomState, names: Iterable[str] | None = None) -> list[Decision]:
        """Everybody (or these) looks at the scene. Nobody's decision depends on who else is asked, or when."""
        speaking: list[Decision] = []
        for name in self.deciders if names is None else names:
            decision = self.deciders[name].decide(state)
            self.recent_decisions[name].append(decision)
            if decision.speaks:
                speaking.append(decision)
        return speaking

    def tick_event(self, state: RoomState, speaking: Sequence[Decision]) -> CrowdTicked:
        """The moment as it is recorded. From here on those who speak are writing."""
        spoke = []
        for decision in sorted(speaking, key=lambda each: each.persona):
            mind = self.deciders[decision.persona]
            mind.typing = True
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
                    seed=mind.line_seed(decision.tick),
                )
            )
        return CrowdTicked(tick=state.tick, at_ms=state.at_ms, upto=self.history.last_number, spoke=tuple(spoke))

    def _context_ms(self) -> int | None:
        return self.history.context_ms if self.history.context is not None else None

    def _spoken_ms(self) -> int | None:
        return self.history.context.window.end if self.history.context is not None else None

    def line_request(self, decision: SpeakDecision, state: RoomState) -> LineRequest:
        mind = self.deciders[decision.persona]
        context = self.history.context
        target = self.history.find(decision.reply_to or "")
        words = sorted(target.words) if target is not None else list(context.keywords if context else ())
        known = [word for word in words if word in self._vocabulary]
        liked = [word for word in known if word in mind.persona.interests]
        event = state.event if decision.because == "event" else None
        return LineRequest(
            persona=mind.persona,
            tick=state.tick,
            because=decision.because,
            seed=decision.seed,
            event=event.kind if event is not None else "",
            about=event.about if event is not None else "",
            topics=tuple(liked or known),
            recipient=decision.to,
            answered_text=target.message.text if target is not None else "",
            recipient_is_person=target is not None and target.human,
            transcript=context.transcript if context is not None else "",
            recent=tuple(
                (h.message.author.name, h.message.text) for h in list(self.history.recent)[-_PROMPT_MESSAGES:]
            ),
        )

    def typing_ms(self, decision: SpeakDecision, text: str) -> int:
        """How long somebody takes to notice and to type: a person mentioned is answered within seconds."""
        slack = 800 + 2_200 * derive_random(decision.seed, "pause")
        return round(slack + len(text) / self.room.tempo.typing_per_s * 1_000 * 0.5)

    def post(
        self, decision: SpeakDecision, tick_ms: int, tick: int, text: str, written_ms: int, at_ms: int
    ) -> ChatPost:
        """What goes to the gateway. Until they hear it themselves, or give up, they are still at it."""
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
            ),
        )

    def cancel_line(self, decision: SpeakDecision) -> None:
        """Nothing came of it: they are free to think of something else."""
        self.deciders[decision.persona].typing = False
