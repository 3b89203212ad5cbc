"""What everybody in the room has heard: the last messages, how long each chain of personas is, who was answered.

One hearing is shared by all personas of a process, since all hear the same; none of them writes to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from coterie.modes.crowd.decisions.spam import SpamFilter, SpamVerdict
from coterie.modes.crowd.decisions.trends import chat_keywords
from coterie.modes.crowd.personas import RoomConfig
from coterie.modes.crowd.protocol import ChatMessage, StreamContext, StreamEvent, Trends

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
