"""What everybody in the room has heard: the last messages, how long each chain of personas is, who was answered.

One hearing is shared by all personas of a process, since all hear the same; none of them writes to it.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coterie.modes.crowd.chat_signals import SpamFilter, SpamVerdict, chat_keywords
from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.protocol import ChatMessage, StreamContext, StreamEvent, Trends
from coterie.modes.crowd.protocol.messages import SpeakReason
from coterie.modes.crowd.settings import RoomConfig

_MAX_ENTRIES = 400


@dataclass(slots=True)
class ChatEntry:
    message: ChatMessage
    chain: int
    """How many personas in a row lead to it, itself included; 0 for a person's message."""
    words: frozenset[str]
    spam_verdict: SpamVerdict
    answered_by: set[str] = field(default_factory=set)

    @property
    def human(self) -> bool:
        return self.message.author.kind != "persona"


class ChatHistory:
    def __init__(self) -> None:
        self.recent: deque[ChatEntry] = deque()
        self.context: StreamContext | None = None
        self.context_ms = -(10**15)
        self.last_person_ms = -(10**15)
        self.last_number = 0
        self._by_id: dict[str, ChatEntry] = {}
        self.spam_filter = SpamFilter()

    def add(self, message: ChatMessage) -> ChatEntry:
        before = self._by_id.get(message.reply_to or "")
        led_here = before.chain if before is not None else 0
        chain = 1 + led_here if message.author.kind == "persona" else 0
        heard = ChatEntry(message, chain, frozenset(chat_keywords(message.text)), self.spam_filter.check(message))
        if not heard.spam_verdict.is_spam and chain == 0:
            self.last_person_ms = message.ts
        if before is not None:
            before.answered_by.add(message.author.name)
        self.recent.append(heard)
        self._by_id[message.id] = heard
        self.last_number = message.number
        if len(self.recent) > _MAX_ENTRIES:
            del self._by_id[self.recent.popleft().message.id]
        return heard

    def set_context(self, context: StreamContext, at_ms: int) -> None:
        self.context = context
        self.context_ms = at_ms

    def find(self, message_id: str) -> ChatEntry | None:
        return self._by_id.get(message_id)


# A moment as all personas see it, worked out once for everybody: that is what keeps a thousand of them cheap. C20


_PERSON_WINDOW_MS = 20_000
_PERSONA_WINDOW_MS = 25_000
_ADDRESSED_WINDOW_MS = 20_000
_MAX_PERSONA_MESSAGES = 6
_MIN_EVENT_BOOST = 1.4
"""An event that moves people less than this is over."""


@dataclass(frozen=True)
class RoomState:
    tick: int
    at_ms: int
    keywords: frozenset[str]
    """What the stream is about."""
    event: StreamEvent | None
    """What happened last, if it still matters."""
    event_boost: float
    trends: Trends
    freshness: float
    """1 right after something happened or somebody real spoke, fading."""
    activity: float
    """1 while there is a stream or a person, and falling to nothing without either. C8"""
    addressed: Mapping[str, tuple[ChatEntry, ...]]
    """Name → recent messages that mention them or answer them, and that they have not answered."""
    person_messages: tuple[ChatEntry, ...]
    """Recent messages of people."""
    persona_messages: tuple[ChatEntry, ...]
    """Recent messages of personas that may still be answered."""
    base_probability: float
    """The chance per tick of somebody of talkativeness 1."""


def compute_room_state(
    history: ChatHistory, room: RoomConfig, trends: Trends, tick: int, at_ms: int, talkativeness: float
) -> RoomState:
    """`talkativeness` is the sum of everybody's: the room's tempo is shared out by it."""
    tuning = room.tuning
    context = history.context
    event, boost, since_event = None, 1.0, 10**9
    if context is not None:
        for moment in context.events:
            age = max(0, at_ms - moment.at)
            strength = 1 + (tuning.events.get(moment.kind, 1.0) - 1) * moment.confidence * _decay(
                age, tuning.event_fades_s
            )
            since_event = min(since_event, age)
            if strength > max(boost, _MIN_EVENT_BOOST):
                event, boost = moment, strength
    newest = max(history.context_ms, history.last_person_ms)
    # A stream that goes on sends a context every few seconds: only a longer silence counts.
    idle = max(0, at_ms - newest - 15_000)
    calls: dict[str, list[ChatEntry]] = {}
    people: list[ChatEntry] = []
    talk: list[ChatEntry] = []
    for heard in reversed(history.recent):
        age = at_ms - heard.message.ts
        if heard.spam_verdict.is_spam:
            continue  # nobody answers it
        if age > max(_PERSON_WINDOW_MS, _PERSONA_WINDOW_MS, _ADDRESSED_WINDOW_MS):
            break
        if age <= _ADDRESSED_WINDOW_MS:
            answers = history.find(heard.message.reply_to or "")
            named = {*heard.message.mentions, *([answers.message.author.name] if answers is not None else [])}
            for name in named - heard.answered_by - {heard.message.author.name}:
                calls.setdefault(name, []).append(heard)
        if heard.human and age <= _PERSON_WINDOW_MS:
            people.append(heard)
        elif heard.chain < tuning.longest_chain and age <= _PERSONA_WINDOW_MS and len(talk) < _MAX_PERSONA_MESSAGES:
            talk.append(heard)
    return RoomState(
        tick=tick,
        at_ms=at_ms,
        keywords=frozenset(context.keywords) | frozenset(chat_keywords(context.summary))
        if context is not None
        else frozenset(),
        event=event,
        event_boost=boost,
        trends=trends,
        freshness=max(_decay(since_event, 15), _decay(at_ms - history.last_person_ms, 15)),
        activity=0.5 ** (idle / 1_000 / tuning.quiet_after_s),
        addressed={name: tuple(found) for name, found in calls.items()},
        person_messages=tuple(people),
        persona_messages=tuple(talk),
        base_probability=room.tempo.lines_per_minute / 60 * room.tempo.tick_s / max(talkativeness, 1e-9),
    )


def _decay(age_ms: float, fades_s: float) -> float:
    return float(0.5 ** (age_ms / 1_000 / fades_s)) if age_ms < 120_000 else 0.0


# One persona, one moment: speak or not, and why. Every number stays with the decision. C6, C8
#
#     p = base × event × interest × mention × trend × damping
#
# A persona looks at the scene alone. What it does depends on its own file and state, what everybody hears, and a roll
# made of names: the same in every process, whoever else decides before or after it.


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
