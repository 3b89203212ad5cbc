"""One persona, one moment: speak or not, and why. Every number stays with the decision. C6, C8

    p = base × event × interest × mention × trend × damping

A persona looks at the scene alone. What it does depends on its own file and state, what everybody hears, and a roll
made of names: the same in every process, whoever else decides before or after it.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from coterie.modes.crowd.decisions.room_state import ChatEntry, RoomState
from coterie.modes.crowd.personas import Persona, RoomConfig
from coterie.modes.crowd.protocol.messages import SpeakReason

# Chance that is the same in every process: numbers made of names, not drawn from a generator that others share.


_SEED_RANGE = 2.0**64


def derive_seed(*parts: object) -> int:
    """A whole number below 2**64 that these names, and only they, lead to."""
    told = "\x1f".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big")


def derive_random(*parts: object) -> float:
    """A number in [0, 1)."""
    return derive_seed(*parts) / _SEED_RANGE


_MIN_ACTIVITY = 0.02
_NEGLIGIBLE = 1e-6


class Decision(NamedTuple):
    persona: str
    tick: int
    speaks: bool
    because: SpeakReason
    p: float
    roll: float
    base: float = 0.0
    event: float = 1.0
    interest: float = 1.0
    mention: float = 1.0
    trend: float = 1.0
    damping: float = 1.0
    target: ChatEntry | None = None
    why_not: str = ""

    @property
    def factors(self) -> dict[str, float]:
        return {name: round(getattr(self, name), 6) for name in _FACTORS}


_FACTORS = ("base", "event", "interest", "mention", "trend", "damping")


class PersonaDecider:
    """A persona's own state: whether it is typing, and when it spoke last."""

    def __init__(self, persona: Persona, room: RoomConfig, seed: int) -> None:
        self.persona = persona
        self.traits = persona.traits
        self._room = room
        self._seed = seed
        self._interests = frozenset(persona.interests)
        self._dislikes = frozenset(persona.dislikes)
        self.typing = False
        self.last_spoke_ms = -(10**15)

    def decide(self, state: RoomState) -> Decision:
        name, tuning = self.persona.name, self._room.tuning
        if self.typing:
            return Decision(name, state.tick, False, "base", 0.0, 1.0, why_not="it is writing already")
        if self.persona.is_asleep(state.at_ms):
            return Decision(name, state.tick, False, "base", 0.0, 1.0, why_not="it is asleep")
        called = state.addressed.get(name)
        if called is not None:
            for heard in called:
                if heard.human:
                    return self._answer_person(state, heard)
        if state.at_ms - self.last_spoke_ms < self._room.tempo.rest_s * 1_000:
            return Decision(name, state.tick, False, "base", 0.0, 1.0, why_not="it spoke a moment ago")
        base = state.base_probability * self.traits.talkativeness * state.activity
        if state.activity < _MIN_ACTIVITY:
            return Decision(name, state.tick, False, "base", 0.0, 1.0, base, why_not="nobody is there")
        interest = self._interest_factor(state.keywords)
        trend = 1 + tuning.trend * self.traits.meme_level * min(1.0, state.trends.velocity) * state.freshness
        because: SpeakReason = "event" if state.event is not None else "trend" if trend > 1.5 else "base"
        target, mention, damping = self._target(state, called)
        event = state.event_boost if target is None or target.human else 1.0
        if target is not None:
            because = "reply"
            trend = 1.0 if not target.human else trend
            interest *= self._interest_factor(target.words)
        p = min(1.0, base * event * interest * mention * trend * damping)
        if p < _NEGLIGIBLE:
            return Decision(name, state.tick, False, because, p, 1.0, base, event, interest, mention, trend, damping)
        fell = derive_random(self._seed, name, state.tick, "speak")
        return Decision(
            name, state.tick, fell < p, because, p, fell, base, event, interest, mention, trend, damping, target
        )

    def line_seed(self, tick: int) -> int:
        return derive_seed(self._seed, self.persona.name, tick, "line")

    def _answer_person(self, scene: RoomState, heard: ChatEntry) -> Decision:
        """Whom a person mentions answers soon, almost surely; the wish fades if it somehow never came to it."""
        tuning = self._room.tuning
        age_s = (scene.at_ms - heard.message.ts) / 1_000
        damping = 1.0 if age_s <= tuning.mention_fades_s else 0.5 ** (age_s / tuning.mention_fades_s - 1)
        p = tuning.mention * damping
        fell = derive_random(self._seed, self.persona.name, scene.tick, "speak")
        return Decision(
            self.persona.name,
            scene.tick,
            fell < p,
            "mention",
            p,
            fell,
            1.0,
            1.0,
            1.0,
            tuning.mention,
            1.0,
            damping,
            heard,
        )

    def _interest_factor(self, words: frozenset[str]) -> float:
        if not words:
            return 1.0
        liked, disliked = len(self._interests & words), len(self._dislikes & words)
        # Somebody who likes to disagree is drawn by what they dislike, too.
        return (1 + self._room.tuning.interest * min(liked, 3)) * (
            0.4 + 1.6 * self.traits.contrarian if disliked else 1.0
        )

    def _target(self, scene: RoomState, called: tuple[ChatEntry, ...] | None) -> tuple[ChatEntry | None, float, float]:
        """Whom to answer, if anybody: how much likelier being called makes it, and what damps it."""
        tuning, name = self._room.tuning, self.persona.name
        if called:
            heard = called[0]
            if heard.chain < tuning.longest_chain:
                return heard, tuning.called, self._damping(scene, heard)
        if scene.person_messages:
            heard = scene.person_messages[
                derive_seed(self._seed, name, scene.tick, "person") % len(scene.person_messages)
            ]
            if name not in heard.answered_by and not (heard.message.mentions or heard.message.author.name == name):
                eager = 0.4 + 0.6 * max(self.traits.warmth, self.traits.helpfulness)
                return heard, tuning.human * eager, tuning.answers ** len(heard.answered_by)
        if scene.persona_messages and scene.event is None:
            which = derive_seed(self._seed, name, scene.tick, "talk")
            heard = scene.persona_messages[which % len(scene.persona_messages)]
            if (
                heard.message.author.name != name
                and name not in heard.answered_by
                and (which >> 20) % 1_000 < 1_000 * tuning.reply
            ):
                return heard, tuning.banter, self._damping(scene, heard)
        return None, 1.0, 1.0

    def _damping(self, scene: RoomState, heard: ChatEntry) -> float:
        """C8: the longer a chain of personas, and the more of the chat they are, the less one answers another."""
        tuning = self._room.tuning
        crowded = 1 - tuning.bots * scene.trends.bot_fraction
        return float(tuning.depth**heard.chain * crowded * tuning.answers ** len(heard.answered_by))
