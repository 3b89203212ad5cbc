"""A moment as all personas see it, worked out once for everybody: that is what keeps a thousand of them cheap. C20"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coterie.modes.crowd.mind.hearing import Heard, Hearing
from coterie.modes.crowd.mind.words import telling
from coterie.modes.crowd.personas import RoomFile
from coterie.modes.crowd.protocol import Moment, Trends

_PEOPLE_MS = 20_000
_TALK_MS = 25_000
_CALLS_MS = 20_000
_MOST_TALK = 6
_MATTERS = 1.4
"""An event that moves people less than this is over."""


@dataclass(frozen=True)
class Scene:
    tick: int
    at_ms: int
    words: frozenset[str]
    """What the stream is about."""
    event: Moment | None
    """What happened last, if it still matters."""
    event_boost: float
    trends: Trends
    freshness: float
    """1 right after something happened or somebody real spoke, fading."""
    alive: float
    """1 while there is a stream or a person, and falling to nothing without either. C8"""
    calls: Mapping[str, tuple[Heard, ...]]
    """Name → recent messages that mention them or answer them, and that they have not answered."""
    people: tuple[Heard, ...]
    """Recent messages of people."""
    talk: tuple[Heard, ...]
    """Recent messages of personas that may still be answered."""
    base: float
    """The chance per tick of somebody of talkativeness 1."""


def look(hearing: Hearing, room: RoomFile, trends: Trends, tick: int, at_ms: int, talkativeness: float) -> Scene:
    """`talkativeness` is the sum of everybody's: the room's tempo is shared out by it."""
    tuning = room.tuning
    context = hearing.context
    event, boost, since_event = None, 1.0, 10**9
    if context is not None:
        for moment in context.events:
            age = max(0, at_ms - moment.at)
            strength = 1 + (tuning.events.get(moment.kind, 1.0) - 1) * moment.confidence * _faded(
                age, tuning.event_fades_s
            )
            since_event = min(since_event, age)
            if strength > max(boost, _MATTERS):
                event, boost = moment, strength
    newest = max(hearing.context_at, hearing.person_at)
    # A stream that goes on sends a context every few seconds: only a longer silence counts.
    idle = max(0, at_ms - newest - 15_000)
    calls: dict[str, list[Heard]] = {}
    people: list[Heard] = []
    talk: list[Heard] = []
    for heard in reversed(hearing.recent):
        age = at_ms - heard.message.ts
        if heard.standing.spam:
            continue  # nobody answers it
        if age > max(_PEOPLE_MS, _TALK_MS, _CALLS_MS):
            break
        if age <= _CALLS_MS:
            answers = hearing.find(heard.message.reply_to or "")
            named = {*heard.message.mentions, *([answers.message.author.name] if answers is not None else [])}
            for name in named - heard.answered_by - {heard.message.author.name}:
                calls.setdefault(name, []).append(heard)
        if heard.human and age <= _PEOPLE_MS:
            people.append(heard)
        elif heard.chain < tuning.longest_chain and age <= _TALK_MS and len(talk) < _MOST_TALK:
            talk.append(heard)
    return Scene(
        tick=tick,
        at_ms=at_ms,
        words=frozenset(context.keywords) | frozenset(telling(context.summary)) if context is not None else frozenset(),
        event=event,
        event_boost=boost,
        trends=trends,
        freshness=max(_faded(since_event, 15), _faded(at_ms - hearing.person_at, 15)),
        alive=0.5 ** (idle / 1_000 / tuning.quiet_after_s),
        calls={name: tuple(found) for name, found in calls.items()},
        people=tuple(people),
        talk=tuple(talk),
        base=room.tempo.lines_per_minute / 60 * room.tempo.tick_s / max(talkativeness, 1e-9),
    )


def _faded(age_ms: float, fades_s: float) -> float:
    return float(0.5 ** (age_ms / 1_000 / fades_s)) if age_ms < 120_000 else 0.0
