"""An evening: everybody who is in a room, what they hear, and when they think. It knows no clock and no model.

Times come in from outside, lines come in from outside, and out come decisions and posts. Live, in a simulation and in a
replay the same evening runs, so what was recorded of one can be checked against the other. C17
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from coterie.modes.crowd.events import CrowdTicked, Decided
from coterie.modes.crowd.mind import Decision, Hearing, Mind, Scene, Trending
from coterie.modes.crowd.mind.chance import roll
from coterie.modes.crowd.mind.scene import look
from coterie.modes.crowd.personas import Persona, RoomFile
from coterie.modes.crowd.protocol import Author, ChatMessage, ChatPost, StreamContext, Trace, Trends
from coterie.modes.crowd.voice import Brief, Manners

_REMEMBERED = 120
_CHAT_SHOWN = 12


class Evening:
    def __init__(
        self,
        room: RoomFile,
        personas: Sequence[Persona],
        seed: int,
        start_ms: int,
    ) -> None:
        self.start_ms = start_ms
        self.room = room
        self.seed = seed
        self.hearing = Hearing()
        self.trending = Trending(room.name)
        self.manners = Manners(room.tempo.longest_line)
        self.minds = {each.name: Mind(each, room, seed) for each in personas}
        self._vocabulary = frozenset(word for persona in personas for word in persona.interests)
        """What anybody here has something to say about."""
        self._talkativeness = sum(mind.traits.talkativeness for mind in self.minds.values())
        self.thoughts: dict[str, deque[Decision]] = {name: deque(maxlen=_REMEMBERED) for name in self.minds}
        """Why each of them spoke lately, and why not."""
        self.trends: Trends | None = None

    def hear(self, message: ChatMessage) -> None:
        self.hearing.hear(message)
        self.trending.hear(message)
        self.manners.hear(message.text)
        mind = self.minds.get(message.author.name)
        if mind is not None and message.author.kind == "persona":
            mind.spoke_at = message.ts
            mind.typing = False

    def attend(self, context: StreamContext, at_ms: int) -> None:
        self.hearing.attend(context, at_ms)

    def scene(self, tick: int, at_ms: int) -> Scene:
        self.trends = self.trending.now(at_ms)
        return look(self.hearing, self.room, self.trends, tick, at_ms, self._talkativeness)

    def think(self, scene: Scene, names: Iterable[str] | None = None) -> list[Decision]:
        """Everybody (or these) looks at the scene. Nobody's decision depends on who else is asked, or when."""
        speaking: list[Decision] = []
        for name in self.minds if names is None else names:
            decision = self.minds[name].decide(scene)
            self.thoughts[name].append(decision)
            if decision.speaks:
                speaking.append(decision)
        return speaking

    def ticked(self, scene: Scene, speaking: Sequence[Decision]) -> CrowdTicked:
        """The moment as it is recorded. From here on those who speak are writing."""
        spoke = []
        for decision in sorted(speaking, key=lambda each: each.persona):
            mind = self.minds[decision.persona]
            mind.typing = True
            target = decision.target.message if decision.target is not None else None
            spoke.append(
                Decided(
                    persona=decision.persona,
                    because=decision.because,
                    p=round(decision.p, 9),
                    roll=round(decision.roll, 9),
                    parts=decision.parts,
                    reply_to=target.id if target is not None else None,
                    to=target.author.name if target is not None else "",
                    spoken_ms=self._spoken_ms() if target is None else None,
                    heard_ms=target.ts if target is not None else self._context_ms(),
                    seed=mind.line_seed(decision.tick),
                )
            )
        return CrowdTicked(tick=scene.tick, at_ms=scene.at_ms, upto=self.hearing.number, spoke=tuple(spoke))

    def _context_ms(self) -> int | None:
        return self.hearing.context_at if self.hearing.context is not None else None

    def _spoken_ms(self) -> int | None:
        return self.hearing.context.window.end if self.hearing.context is not None else None

    def brief(self, decided: Decided, scene: Scene) -> Brief:
        mind = self.minds[decided.persona]
        context = self.hearing.context
        target = self.hearing.find(decided.reply_to or "")
        words = sorted(target.words) if target is not None else list(context.keywords if context else ())
        known = [word for word in words if word in self._vocabulary]
        liked = [word for word in known if word in mind.persona.interests]
        event = scene.event if decided.because == "event" else None
        return Brief(
            persona=mind.persona,
            tick=scene.tick,
            because=decided.because,
            seed=decided.seed,
            event=event.kind if event is not None else "",
            about=event.about if event is not None else "",
            topics=tuple(liked or known),
            to=decided.to,
            said=target.message.text if target is not None else "",
            to_person=target is not None and target.human,
            transcript=context.transcript if context is not None else "",
            recent=tuple((h.message.author.name, h.message.text) for h in list(self.hearing.recent)[-_CHAT_SHOWN:]),
        )

    def typing_ms(self, decided: Decided, text: str) -> int:
        """How long somebody takes to notice and to type: a person mentioned is answered within seconds."""
        slack = 800 + 2_200 * roll(decided.seed, "pause")
        return round(slack + len(text) / self.room.tempo.typing_per_s * 1_000 * 0.5)

    def post(self, decided: Decided, tick_ms: int, tick: int, text: str, written_ms: int, at_ms: int) -> ChatPost:
        """What goes to the gateway. Until they hear it themselves, or give up, they are still at it."""
        persona = self.minds[decided.persona].persona
        return ChatPost(
            id=f"{persona.name}-{self.start_ms:x}-{tick}",
            room=self.room.name,
            author=Author(name=persona.name, kind="persona", badges=persona.badges, colour=persona.colour),
            text=text,
            reply_to=decided.reply_to,
            trace=Trace(
                because=decided.because,
                spoken_ms=decided.spoken_ms,
                heard_ms=decided.heard_ms,
                decided_ms=tick_ms,
                written_ms=written_ms,
                posted_ms=at_ms,
                decision=f"{persona.name}@{tick}",
            ),
        )

    def give_up(self, decided: Decided) -> None:
        """Nothing came of it: they are free to think of something else."""
        self.minds[decided.persona].typing = False
