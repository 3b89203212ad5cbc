"""Events of turns, in every mode: a person writes something, a character replies.

Every event of a reply, and everything derived from it later, carries the reply's id as its `turn`, so that regenerating
takes all of it back together.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from coterie.eventstore import Payload

SeqRanges = tuple[tuple[int, int], ...]
"""First and last seq of ranges of events in the same stream."""


class Segment(BaseModel):
    """A part of what a person wrote."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["dialogue", "action", "ooc"]
    text: str


class UserTurn(Payload, kind="user_turn"):
    """A person wrote something: as written, and in segments."""

    turn: str
    """The turn's id; all events that belong to it carry it as their `turn`."""
    author: str
    """The person's id; `you` is the owner."""
    text: str
    """As it was written."""
    segments: tuple[Segment, ...]
    """The same as dialogue, action and out-of-character notes."""
    to: tuple[str, ...] = ()
    """The recipients of a whisper; empty means everybody present."""
    present: tuple[str, ...] = ()
    """Who was present; empty if it was not recorded."""
    sent: datetime | None = None
    """When it was originally sent, if it was imported."""
    pictures: tuple[str, ...] = ()
    """The ids of the pictures in it."""


class PictureDescribed(Payload, kind="picture_described"):
    """A model described a picture of a message in words, for models that cannot see, and for memories."""

    message: str
    """The id of the turn with the picture."""
    picture: str
    """The picture's id."""
    description: str
    """A sentence or a few."""
    model: str
    """`provider/model` that described it."""


class UserTurnEdit(Payload, kind="user_turn_edit"):
    """A person edited a turn of theirs: before asking for another reply, or later."""

    turn: str
    """The id of the edited turn."""
    text: str
    """The new text."""
    segments: tuple[Segment, ...]
    """The new segments; the turn parser may have changed only these."""
    derived: SeqRanges = ()
    """What was derived from the former text and does not count any more; recorded for edits after the reply."""


class ReplyEdited(Payload, kind="reply_edited"):
    """A person edited a reply that has later turns after it. The former text stays in the log."""

    reply: str
    """The reply's id."""
    text: str
    """The new text."""
    derived: SeqRanges = ()
    """What was derived from the former text and does not count any more."""


class TurnHidden(Payload, kind="turn_hidden"):
    """A person hid a turn from prompts and memories; it is still shown. Showing it again supersedes this event."""

    turn: str
    """The turn's id."""
    derived: SeqRanges = ()
    """What was derived from it and does not count any more."""


class TurnDeleted(Payload, kind="turn_deleted"):
    """A person deleted a turn. Restoring it supersedes this event."""

    turn: str
    """The turn's id."""
    derived: SeqRanges = ()
    """What was derived from it and does not count any more."""


class AssistantTurnStarted(Payload, kind="assistant_turn_started"):
    """A character starts a reply."""

    reply: str
    """The reply's id; all events that it leads to carry it as their `turn`."""
    speaker: str
    """The character's id."""
    answers: str | None = None
    """The turn it answers; None for an opening or an unprompted message."""
    follows: str | None = None
    """The reply before it, if several characters reply to one message."""
    to: tuple[str, ...] = ()
    """The recipients of a whisper; empty means everybody present."""
    present: tuple[str, ...] = ()
    """Who was present; empty if it was not recorded."""
    sent: datetime | None = None
    """When it was originally sent, if it was imported."""


class AssistantTokens(Payload, kind="assistant_tokens"):
    """The next part of a running reply, which a crash from now on would not lose."""

    reply: str
    """The reply's id."""
    text: str
    """The text since the previous event of this kind."""


class AssistantTurn(Payload, kind="assistant_turn"):
    """A reply as it ended, complete or not."""

    reply: str
    """The reply's id."""
    text: str
    """All of its text; may be empty."""
    truncated: bool = False
    """Whether it is incomplete; `why` has the reason."""
    why: str = ""
    """Why it broke off: `stopped`, `restart`, `length`, or the error in a sentence."""
    status: int | None = None
    """The provider's HTTP status if it refused: 401, 429, 500 …"""
    retry_after_s: float | None = None
    """How many seconds later the provider may be asked again, if it said so."""
    model: str = ""
    """The `provider/model` that wrote it, or `remote` for an agent; empty if neither finished it."""
