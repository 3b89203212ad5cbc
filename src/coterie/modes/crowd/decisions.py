"""Whether a persona speaks at a tick, and why: p = base × event × interest × mention × trend ×
damping × relationship.

`RoomState` is computed once per tick and shared by all personas. A decision depends on the persona's own state, the
room state and a random number derived from names, so it is the same in every process and in any order.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coterie.modes.crowd.chat_signals import SpamFilter, SpamVerdict, chat_keywords
from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.protocol import ChatMessage, SpeakReason, StreamContext, StreamEvent, Trends
from coterie.modes.crowd.relationships import FRIENDLY, relationship_factor
from coterie.modes.crowd.settings import RoomConfig

_MAX_ENTRIES = 400
_SEED_RANGE = 2.0**64
_MIN_ACTIVITY = 0.02
_MIN_PROBABILITY = 1e-6
_PERSON_WINDOW_MS = 20_000
_PERSONA_WINDOW_MS = 25_000
_ADDRESSED_WINDOW_MS = 20_000
_MAX_PERSONA_MESSAGES = 6
_MIN_EVENT_BOOST = 1.4
"""An event whose boost has fallen below this no longer counts."""
FACTORS = ("base", "event", "interest", "mention", "trend", "damping", "relationship")
"""The factors of the probability of speaking."""
_GREETING = 4.0
"""Factor for the first message of a person that a persona likes."""
_TEASE = 3.0
"""Factor for a message of a person that a persona dislikes, if it is one that teases."""


@dataclass(slots=True)
class ChatEntry:
    """A message of the chat with what was derived from it."""

    message: ChatMessage
    chain: int
    """Length of the reply chain of personas that ends here; 0 for a person's message."""
    words: frozenset[str]
    spam_verdict: SpamVerdict
    answered_by: set[str] = field(default_factory=set)
    arrives: bool = False
    """Whether it is the first message of its author in this session."""

    @property
    def from_person(self) -> bool:
        return self.message.author.kind != "persona"


class ChatHistory:
    """The last messages and the current stream context, shared by all personas."""

    def __init__(self) -> None:
        self.recent: deque[ChatEntry] = deque()
        self.context: StreamContext | None = None
        self.context_ms = -(10**15)
        self.last_person_ms = -(10**15)
        self.last_number = 0
        self._by_id: dict[str, ChatEntry] = {}
        self._present: set[str] = set()
        self.spam_filter = SpamFilter()

    def add(self, message: ChatMessage) -> ChatEntry:
        replied_to = self._by_id.get(message.reply_to or "")
        chain = 1 + (replied_to.chain if replied_to is not None else 0) if message.author.kind == "persona" else 0
        entry = ChatEntry(message, chain, frozenset(chat_keywords(message.text)), self.spam_filter.check(message))
        if not entry.spam_verdict.is_spam and chain == 0:
            self.last_person_ms = message.ts
            entry.arrives = message.author.name not in self._present
            self._present.add(message.author.name)
        if replied_to is not None:
            replied_to.answered_by.add(message.author.name)
        self.recent.append(entry)
        self._by_id[message.id] = entry
        self.last_number = message.number
        if len(self.recent) > _MAX_ENTRIES:
            del self._by_id[self.recent.popleft().message.id]
        return entry

    def set_context(self, context: StreamContext, at_ms: int) -> None:
        self.context = context
        self.context_ms = at_ms

    def find(self, message_id: str) -> ChatEntry | None:
        return self._by_id.get(message_id)


@dataclass(frozen=True)
class RoomState:
    """The room at one tick, as all personas see it."""

    tick: int
    at_ms: int
    keywords: frozenset[str]
    """Keywords of the stream."""
    event: StreamEvent | None
    """The strongest recent event of the stream."""
    event_boost: float
    trends: Trends
    freshness: float
    """1 right after an event or a person's message, decaying to 0."""
    activity: float
    """1 while there is a stream or a person, decaying to 0 without either."""
    addressed: Mapping[str, tuple[ChatEntry, ...]]
    """Persona name → recent unanswered messages that mention it or reply to it."""
    person_messages: tuple[ChatEntry, ...]
    """Recent messages of people."""
    persona_messages: tuple[ChatEntry, ...]
    """Recent messages of personas that may be answered."""
    base_probability: float
    """Probability per tick for a talkativeness of 1."""


def compute_room_state(
    history: ChatHistory, room: RoomConfig, trends: Trends, tick: int, at_ms: int, talkativeness: float
) -> RoomState:
    """`talkativeness` is the sum over all personas, by which the room's tempo is divided."""
    tuning = room.tuning
    context = history.context
    event, boost, since_event = None, 1.0, 10**9
    if context is not None:
        for stream_event in context.events:
            age = max(0, at_ms - stream_event.at)
            strength = 1 + (tuning.events.get(stream_event.kind, 1.0) - 1) * stream_event.confidence * _decay(
                age, tuning.event_fades_s
            )
            since_event = min(since_event, age)
            if strength > max(boost, _MIN_EVENT_BOOST):
                event, boost = stream_event, strength
    newest = max(history.context_ms, history.last_person_ms)
    # A running stream sends a context every few seconds, so only a longer silence counts.
    idle = max(0, at_ms - newest - 15_000)
    addressed: dict[str, list[ChatEntry]] = {}
    person_messages: list[ChatEntry] = []
    persona_messages: list[ChatEntry] = []
    for entry in reversed(history.recent):
        age = at_ms - entry.message.ts
        if entry.spam_verdict.is_spam:
            continue
        if age > max(_PERSON_WINDOW_MS, _PERSONA_WINDOW_MS, _ADDRESSED_WINDOW_MS):
            break
        if age <= _ADDRESSED_WINDOW_MS:
            replied_to = history.find(entry.message.reply_to or "")
            names = {*entry.message.mentions, *([replied_to.message.author.name] if replied_to is not None else [])}
            for name in names - entry.answered_by - {entry.message.author.name}:
                addressed.setdefault(name, []).append(entry)
        if entry.from_person and age <= _PERSON_WINDOW_MS:
            person_messages.append(entry)
        elif (
            entry.chain < tuning.longest_chain
            and age <= _PERSONA_WINDOW_MS
            and len(persona_messages) < _MAX_PERSONA_MESSAGES
        ):
            persona_messages.append(entry)
    return RoomState(
        tick=tick,
        at_ms=at_ms,
        keywords=frozenset(context.keywords)
        | frozenset(chat_keywords(context.latest if context.latest is not None else context.summary))
        if context is not None
        else frozenset(),
        event=event,
        event_boost=boost,
        trends=trends,
        freshness=max(_decay(since_event, 15), _decay(at_ms - history.last_person_ms, 15)),
        activity=0.5 ** (idle / 1_000 / tuning.quiet_after_s),
        addressed={name: tuple(entries) for name, entries in addressed.items()},
        person_messages=tuple(person_messages),
        persona_messages=tuple(persona_messages),
        base_probability=room.tempo.lines_per_minute / 60 * room.tempo.tick_s / max(talkativeness, 1e-9),
    )


def _decay(age_ms: float, fades_s: float) -> float:
    return float(0.5 ** (age_ms / 1_000 / fades_s)) if age_ms < 120_000 else 0.0


def derive_seed(*parts: object) -> int:
    """Hash the parts to an integer below 2**64, the same in every process."""
    text = "\x1f".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def derive_random(*parts: object) -> float:
    """Hash the parts to a number in [0, 1)."""
    return derive_seed(*parts) / _SEED_RANGE


class Decision(NamedTuple):
    """The outcome for one persona at one tick, with every factor of its probability."""

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
    relationship: float = 1.0

    @property
    def factors(self) -> dict[str, float]:
        return {name: round(getattr(self, name), 6) for name in FACTORS}


class PersonaDecider:
    """Decides for one persona; keeps whether it is typing and when it last spoke."""

    def __init__(
        self, persona: Persona, room: RoomConfig, seed: int, relationships: Mapping[str, float] | None = None
    ) -> None:
        self.persona = persona
        self.relationships = dict(relationships or {})
        """Person → how the persona stands to them, from -1 to 1."""
        self.traits = persona.traits
        self._room = room
        self._seed = seed
        self._interests = frozenset(persona.interests)
        self._dislikes = frozenset(persona.dislikes)
        self.typing = False
        self.left = False
        """Whether the persona was removed from the room during the session."""
        self.last_spoke_ms = -(10**15)

    def decide(self, state: RoomState) -> Decision:
        name, tuning = self.persona.name, self._room.tuning
        if self.left:
            return Decision(name, state.tick, False, "base", 0.0, 1.0, why_not="it has left the room")
        if self.typing:
            return Decision(name, state.tick, False, "base", 0.0, 1.0, why_not="it is writing already")
        if self.persona.is_asleep(state.at_ms):
            return Decision(name, state.tick, False, "base", 0.0, 1.0, why_not="it is asleep")
        addressed_by = state.addressed.get(name)
        if addressed_by is not None:
            for entry in addressed_by:
                if entry.from_person:
                    return self._answer_person(state, entry)
        if state.at_ms - self.last_spoke_ms < self._room.tempo.rest_s * 1_000:
            return Decision(name, state.tick, False, "base", 0.0, 1.0, why_not="it spoke a moment ago")
        base = state.base_probability * self.traits.talkativeness * state.activity
        if state.activity < _MIN_ACTIVITY:
            return Decision(name, state.tick, False, "base", 0.0, 1.0, base, why_not="nobody is there")
        interest = self._interest_factor(state.keywords)
        trend = 1 + tuning.trend * self.traits.meme_level * min(1.0, state.trends.velocity) * state.freshness
        because: SpeakReason = "event" if state.event is not None else "trend" if trend > 1.5 else "base"
        target, mention, damping = self._target(state, addressed_by)
        event = state.event_boost if target is None or target.from_person else 1.0
        relationship = 1.0
        if target is not None:
            because, relationship = self._stance(target)
            trend = 1.0 if not target.from_person else trend
            interest *= self._interest_factor(target.words)
        p = min(1.0, base * event * interest * mention * trend * damping * relationship)
        factors = (base, event, interest, mention, trend, damping)
        if p < _MIN_PROBABILITY:
            return Decision(name, state.tick, False, because, p, 1.0, *factors, relationship=relationship)
        roll = derive_random(self._seed, name, state.tick, "speak")
        return Decision(
            name, state.tick, roll < p, because, p, roll, *factors, target=target, relationship=relationship
        )

    def line_seed(self, tick: int) -> int:
        return derive_seed(self._seed, self.persona.name, tick, "line")

    def _answer_person(self, state: RoomState, entry: ChatEntry) -> Decision:
        """A person's mention is answered with high probability, which decays while it stays unanswered."""
        tuning = self._room.tuning
        age_s = (state.at_ms - entry.message.ts) / 1_000
        damping = 1.0 if age_s <= tuning.mention_fades_s else 0.5 ** (age_s / tuning.mention_fades_s - 1)
        p = tuning.mention * damping
        roll = derive_random(self._seed, self.persona.name, state.tick, "speak")
        return Decision(
            self.persona.name,
            state.tick,
            roll < p,
            "mention",
            p,
            roll,
            1.0,
            1.0,
            1.0,
            tuning.mention,
            1.0,
            damping,
            entry,
        )

    def _stance(self, target: ChatEntry) -> tuple[SpeakReason, float]:
        """Why it would answer this message, and the factor of its relationship to the author."""
        relationship = self.relationships.get(target.message.author.name, 0.0) if target.from_person else 0.0
        if not relationship:
            return "reply", 1.0
        factor = relationship_factor(relationship, max(self.traits.contrarian, self.traits.meme_level))
        if relationship >= FRIENDLY and target.arrives:
            return "greeting", factor * _GREETING
        if relationship <= -FRIENDLY and factor > 1:
            return "tease", factor * _TEASE
        return "reply", factor

    def _interest_factor(self, words: frozenset[str]) -> float:
        if not words:
            return 1.0
        liked, disliked = len(self._interests & words), len(self._dislikes & words)
        # A contrarian persona also reacts to what it dislikes.
        return (1 + self._room.tuning.interest * min(liked, 3)) * (
            0.4 + 1.6 * self.traits.contrarian if disliked else 1.0
        )

    def _target(
        self, state: RoomState, addressed_by: tuple[ChatEntry, ...] | None
    ) -> tuple[ChatEntry | None, float, float]:
        """Choose a message to answer. Returns it with the mention and damping factors."""
        tuning, name = self._room.tuning, self.persona.name
        if addressed_by:
            entry = addressed_by[0]
            if entry.chain < tuning.longest_chain:
                return entry, tuning.called, self._damping(state, entry)
        if state.person_messages:
            entry = state.person_messages[
                derive_seed(self._seed, name, state.tick, "person") % len(state.person_messages)
            ]
            if name not in entry.answered_by and not (entry.message.mentions or entry.message.author.name == name):
                eager = 0.4 + 0.6 * max(self.traits.warmth, self.traits.helpfulness)
                return entry, tuning.human * eager, tuning.answers ** len(entry.answered_by)
        if state.persona_messages and state.event is None:
            seed = derive_seed(self._seed, name, state.tick, "talk")
            entry = state.persona_messages[seed % len(state.persona_messages)]
            if (
                entry.message.author.name != name
                and name not in entry.answered_by
                and (seed >> 20) % 1_000 < 1_000 * tuning.reply
            ):
                return entry, tuning.banter, self._damping(state, entry)
        return None, 1.0, 1.0

    def _damping(self, state: RoomState, entry: ChatEntry) -> float:
        """Less likely with a longer chain of personas and with a larger share of personas in the chat."""
        tuning = self._room.tuning
        persona_share = 1 - tuning.bots * state.trends.bot_fraction
        return float(tuning.depth**entry.chain * persona_share * tuning.answers ** len(entry.answered_by))
