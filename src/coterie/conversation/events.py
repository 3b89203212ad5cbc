"""Turns, whatever the mode: a person says something, a character answers, word by word.

Every event of a reply, and everything derived from it later, carries the reply's id as its `turn`, so that a regenerate
takes all of it back together.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from coterie.eventstore import Payload


class Segment(BaseModel):
    """A stretch of what a person wrote."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["dialogue", "action", "ooc"]
    text: str


class UserTurn(Payload, kind="user_turn"):
    """You said something: as written, and in segments."""

    turn: str
    """The turn's id; everything that belongs to it carries it as its event's `turn`."""
    author: str
    """Who said it: a person's id; `you` is the owner."""
    text: str
    """As it was written."""
    segments: tuple[Segment, ...]
    """The same as speech, action and notes to the player."""
    to: tuple[str, ...] = ()
    """Who hears it; empty means everybody present. A whisper names them."""
    present: tuple[str, ...] = ()
    """Who was there; empty where nobody noted it."""
    sent: datetime | None = None
    """When it was said elsewhere, if it was not said here."""


class UserTurnEdit(Payload, kind="user_turn_edit"):
    """A person changed what they had said, before asking for another reply."""

    turn: str
    """The id of the turn that is changed."""
    text: str
    """What it says now."""
    segments: tuple[Segment, ...]
    """What it says now, in segments; a reader may have changed only these."""


class AssistantTurnStarted(Payload, kind="assistant_turn_started"):
    """A character begins to answer."""

    reply: str
    """The reply's id; everything it leads to carries it as its event's `turn`."""
    speaker: str
    """Who answers: a character's id."""
    answers: str | None = None
    """The turn it answers; None for an opening, or where nobody had asked."""
    to: tuple[str, ...] = ()
    """Who hears it; empty means everybody present."""
    present: tuple[str, ...] = ()
    """Who was there; empty where nobody noted it."""
    sent: datetime | None = None
    """When it was said elsewhere, if it was not said here."""


class AssistantTokens(Payload, kind="assistant_tokens"):
    """More of a reply that is still being given: what a crash now would not lose."""

    reply: str
    """The reply's id."""
    text: str
    """What came since the last of these."""


class AssistantTurn(Payload, kind="assistant_turn"):
    """A reply as it ended, whole or not."""

    reply: str
    """The reply's id."""
    text: str
    """All of it, as far as it came; may be empty."""
    truncated: bool = False
    """It is not whole: `why` says how it ended."""
    why: str = ""
    """Why it broke off: `stopped`, `restart`, `length`, or what went wrong, in a sentence."""
    status: int | None = None
    """What the provider answered with, if it refused: 401, 429, 500 …"""
    model: str = ""
    """`provider/model` that wrote it to its end, or `remote` for an agent; else empty."""
