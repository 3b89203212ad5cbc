"""A room, as its file says it: who is there, how fast it goes, what is allowed, and the numbers behind decisions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from coterie.base.config import Section
from coterie.modes.crowd.gateway.limits import RoomLimits
from coterie.modes.crowd.moderation.policy import ModerationPolicy


class Tempo(Section):
    tick_s: float = Field(default=1.0, gt=0)
    """How often everybody asks themselves whether to speak."""
    lines_per_minute: float = Field(default=14, gt=0)
    """Of the whole room while the stream runs and nothing special happens, however many personas there are."""
    rest_s: float = Field(default=12, ge=0)
    """The least time between two lines of one persona, mentions by people aside."""
    typing_per_s: float = Field(default=18, gt=0)
    """Characters."""
    line_deadline_s: float = Field(default=12, gt=0)
    """What is not written by then is dropped, not posted late."""
    stand_in: bool = True
    """Whether a persona's phrasebook speaks for it, in time, when a model is slow or forgets its manners. A person who
    waits for an answer gets one in any case."""
    longest_line: int = Field(default=180, ge=20, le=500)


class Tuning(Section):
    """The numbers of C6 and C8."""

    events: dict[str, float] = Field(
        default_factory=lambda: {
            "hype": 7.0,
            "fail": 6.0,
            "clutch": 7.0,
            "chat_question": 5.0,
            "topic_change": 2.0,
            "scene_change": 1.5,
            "raid": 6.0,
        }
    )
    """How many times likelier to speak right after such an event."""
    event_fades_s: float = Field(default=6, gt=0)
    interest: float = Field(default=1.2, ge=0)
    """For each interest that is being talked about."""
    mention: float = Field(default=0.85, ge=0, le=1)
    """The chance, each tick, that somebody whom a person mentions begins to answer."""
    mention_fades_s: float = Field(default=10, gt=0)
    human: float = Field(default=5.0, ge=0)
    """How much likelier a person's message is to be answered than a persona's."""
    answers: float = Field(default=0.25, ge=0, le=1)
    """Each answer that a message already has makes another so much less likely."""
    reply: float = Field(default=0.6, ge=0, le=1)
    """How often, while nothing happens, one looks for another persona's line to answer …"""
    banter: float = Field(default=10.0, ge=0)
    """… and how many times likelier one then speaks, before damping."""
    called: float = Field(default=6.0, ge=0)
    """How many times likelier one answers a persona that mentions one, before damping."""
    trend: float = Field(default=1.5, ge=0)
    """How strongly a quick chat pulls those who like to join, while something has just happened."""
    depth: float = Field(default=0.4, ge=0, lt=1)
    """Each persona in a row makes an answer so much less likely."""
    longest_chain: int = Field(default=4, ge=1)
    """No persona answers a chain of so many."""
    bots: float = Field(default=0.6, ge=0, le=1)
    """How much a chat that is all personas dampens answers to personas."""
    quiet_after_s: float = Field(default=90, gt=0)
    """With no stream and no people, the wish to talk halves in so many seconds."""


class RoomConfig(Section):
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64)]
    title: str
    about: str = ""
    roster: tuple[str, ...] = ()
    """Personas by name; all there are, if it is empty."""
    emotes: tuple[str, ...] = ()
    tempo: Tempo = Tempo()
    tuning: Tuning = Tuning()
    limits: RoomLimits = RoomLimits()
    moderation: ModerationPolicy = ModerationPolicy()
