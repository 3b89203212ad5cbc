"""What happens in a crowd's room, as events of the stream `room:<name>`. Enough of it to play an evening again."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from coterie.eventstore import Payload
from coterie.modes.crowd.protocol import AuditRecord, ChatMessage, StreamContext
from coterie.modes.crowd.protocol.messages import SpeakReason

Ruling = Literal["timeout", "ban", "pardon", "slow", "followers", "follow", "kill", "revive"]
LineOutcome = Literal["written", "late", "failed", "refused"]


def room_stream(room: str) -> str:
    return f"room:{room}"


class CrowdOpened(Payload, kind="crowd_opened"):
    """A session began: who is there and by which rules, as they were written then. C17"""

    room: str
    """The room's name, as in its file."""
    seed: int
    """All chance of the session comes from it."""
    start_ms: int
    """When it began, in milliseconds since 1970."""
    rules: dict[str, Any]
    """The room's file."""
    personas: tuple[dict[str, Any], ...]
    """The roster's files."""


class CrowdSaid(Payload, kind="crowd_said"):
    """A message everybody saw. C3"""

    message: ChatMessage
    """As everybody saw it, with its number."""


class CrowdAudited(Payload, kind="crowd_audited"):
    """Something was refused, redacted, noted or ruled. C4, C16"""

    record: AuditRecord
    """What was done to whom, by which rule, and why."""


class CrowdRuled(Payload, kind="crowd_ruled"):
    """A moderator decided something about somebody, or about the room. C3"""

    what: Ruling
    """`slow`, `followers`, `kill` and `revive` are about the room, the others about `who`."""
    at_ms: int
    """When, in milliseconds since 1970."""
    who: str = ""
    """Their name in the chat; empty where it is about the room."""
    seconds: float | None = None
    """How long a timeout lasts, or how slow slow mode is."""
    on: bool = True
    """For `followers` and `follow`: False ends it."""
    by: str = "moderator"
    """Who decided it, by their name in the chat."""
    reason: str = ""
    """As it stands in the audit; may be empty."""


class CrowdGoverned(Payload, kind="crowd_governed"):
    """The owner changed the room's rules: limits and moderation are by these from here on. C17"""

    rules: dict[str, Any]
    """The room's file as it is now."""


class CrowdHeard(Payload, kind="crowd_heard"):
    """What went on in the stream. C9"""

    at_ms: int
    """When it came in, in milliseconds since 1970."""
    context: StreamContext
    """The stream's last words, what they are about, and what happened."""


class SpeakDecision(BaseModel):
    """A decision to speak, with every number that led to it. C6"""

    model_config = ConfigDict(frozen=True, extra="forbid")

    persona: str
    because: SpeakReason
    p: float
    roll: float
    parts: dict[str, float]
    reply_to: str | None = None
    to: str = ""
    spoken_ms: int | None = None
    """When the stream's words that led to it ended; None if a message did."""
    heard_ms: int | None = None
    """When the words or the message that led to it came in."""
    seed: int
    """Of the line that is to be written."""


class CrowdTicked(Payload, kind="crowd_ticked"):
    """Everybody thought for a moment: up to which message they had read, and who wants to speak. C6"""

    tick: int
    """Which moment of the session, counted from 1."""
    at_ms: int
    """When, in milliseconds since 1970."""
    upto: int
    """The number of the last message they had read."""
    spoke: tuple[SpeakDecision, ...] = ()
    """Everybody who wants to speak, in the order of their names."""


class CrowdWritten(Payload, kind="crowd_written"):
    """What a persona's voice made of its decision, or why nothing came of it. C7"""

    persona: str
    """The persona's name."""
    tick: int
    """The moment in which it decided to speak, as in `crowd_ticked`."""
    at_ms: int
    """When, in milliseconds since 1970."""
    outcome: LineOutcome
    """`written` and said; too `late`; `failed` by the model; `refused` by manners or the gateway."""
    text: str = ""
    """The line; a refused one may stand here too."""
    why: str = ""
    """Why it was not said; empty where it was."""
    model: str = ""
    """`provider/model`, or `phrasebook`; empty where no line was made."""
    seconds: float = Field(default=0, ge=0)
    """How long it took to be written, typing aside."""


class CrowdDrifted(Payload, kind="crowd_drifted"):
    """Looking back at a session changed somebody a little: who they are now, and why. C14"""

    persona: str
    """The persona's name."""
    number: int
    """The snapshot's own, counted from 1 for each persona."""
    after: int
    """The snapshot it goes on from; 0 is who they were written as."""
    state: dict[str, Any]
    """`traits` (each from 0 to 1) and `interests` from now on."""
    changes: tuple[dict[str, Any], ...]
    """Each with `what`, `before`, `after`, `why`, and as `evidence` the ids of messages."""


class CrowdDriftReverted(Payload, kind="crowd_drift_reverted"):
    """A person took somebody back to an earlier snapshot."""

    persona: str
    """The persona's name."""
    to: int
    """The snapshot's number; 0 is who they were written as."""


class CrowdDriftFrozen(Payload, kind="crowd_drift_frozen"):
    """A person forbade somebody to change, or allowed it again."""

    persona: str
    """The persona's name."""
    frozen: bool
    """False: sessions may change them again."""
