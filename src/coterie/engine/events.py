"""Turns, whatever the mode: a person says something, a character answers, word by word.

Every event of a reply, and everything derived from it later, carries the reply's id as its `turn`, so that a regenerate
takes all of it back together.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from coterie.kernel import Payload


class Segment(BaseModel):
    """A stretch of what a person wrote."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["dialogue", "action", "ooc"]
    text: str


class UserTurn(Payload, kind="user_turn"):
    """You said something: as written, and in segments."""

    turn: str
    author: str
    text: str
    """As it was written."""
    segments: tuple[Segment, ...]
    to: tuple[str, ...] = ()
    """Who hears it; empty means everybody present. A whisper names them."""
    present: tuple[str, ...] = ()
    """Who was there; empty where nobody noted it."""
    sent: datetime | None = None
    """When it was said elsewhere, if it was not said here."""


class UserTurnEdit(Payload, kind="user_turn_edit"):
    """A person changed what they had said, before asking for another reply."""

    turn: str
    text: str
    segments: tuple[Segment, ...]


class AssistantTurnStarted(Payload, kind="assistant_turn_started"):
    """A character begins to answer."""

    reply: str
    speaker: str
    answers: str | None = None
    """The turn it answers; None for an opening."""
    to: tuple[str, ...] = ()
    """Who hears it; empty means everybody present."""
    present: tuple[str, ...] = ()
    """Who was there; empty where nobody noted it."""
    sent: datetime | None = None
    """When it was said elsewhere, if it was not said here."""


class AssistantTokens(Payload, kind="assistant_tokens"):
    """More of a reply that is still being given: what a crash now would not lose."""

    reply: str
    text: str


class AssistantTurn(Payload, kind="assistant_turn"):
    """A reply as it ended, whole or not."""

    reply: str
    text: str
    truncated: bool = False
    why: str = ""
    """Why it broke off: `stopped`, `restart`, or what the provider's failure was."""
    status: int | None = None
    """What the provider answered with, if it refused: 401, 429, 500 …"""
    model: str = ""
