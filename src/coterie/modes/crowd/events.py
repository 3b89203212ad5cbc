"""Events of a crowd room, in the stream `room:<name>`. A session can be replayed from them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from coterie.eventstore import Payload
from coterie.modes.crowd.protocol import AuditRecord, ChatMessage, SpeakReason, StreamContext

Ruling = Literal["timeout", "ban", "pardon", "slow", "followers", "follow", "kill", "revive", "delete"]
LineOutcome = Literal["written", "late", "failed", "refused"]


def room_stream(room: str) -> str:
    return f"room:{room}"


class CrowdOpened(Payload, kind="crowd_opened"):
    """A session began, with the rules and personas as they were then."""

    room: str
    """The room's name, as in its file."""
    seed: int
    """The seed of all random numbers of the session."""
    start_ms: int
    """When it began, in milliseconds since 1970."""
    rules: dict[str, Any]
    """The room's file."""
    personas: tuple[dict[str, Any], ...]
    """The files of the room's personas."""
    relationships: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Persona → person → relationship at the beginning, from -1 to 1."""


class CrowdClosed(Payload, kind="crowd_closed"):
    """A session ended, and what its personas were to remember is stored."""

    at_ms: int
    """When, in milliseconds since 1970."""
    reason: str = ""
    """Why it ended early; empty if the stream ended or it was stopped."""


class CrowdSaid(Payload, kind="crowd_said"):
    """A message was admitted."""

    message: ChatMessage
    """As shown to readers, with its number."""


class CrowdAudited(Payload, kind="crowd_audited"):
    """A message was refused, redacted or flagged, or a moderator acted."""

    record: AuditRecord
    """What was done to whom, by which rule, and why."""


class CrowdRuled(Payload, kind="crowd_ruled"):
    """A moderator acted on a person or on the room."""

    what: Ruling
    """`slow`, `followers`, `kill` and `revive` apply to the room, `delete` to a message, the others to `who`."""
    at_ms: int
    """When, in milliseconds since 1970."""
    who: str = ""
    """The person's name in the chat; empty for the room."""
    seconds: float | None = None
    """The length of a timeout, or the interval of slow mode."""
    on: bool = True
    """For `followers` and `follow`: False ends it."""
    by: str = "moderator"
    """The moderator's name in the chat."""
    reason: str = ""
    """The reason in the audit record; may be empty."""
    message: str = ""
    """The id of the message that is deleted: readers no longer see its text."""


class CrowdGoverned(Payload, kind="crowd_governed"):
    """The owner changed the room's rules; limits and moderation apply from here on."""

    rules: dict[str, Any]
    """The room's file after the change."""
    changed: tuple[str, ...] = ()
    """Which of `slow_mode_s` and `followers_only` the change sets; the others stay as moderators ruled."""


class CrowdEdited(Payload, kind="crowd_edited"):
    """The file of the room or of a persona was edited during a session; tempo, tuning and personas apply from here."""

    rules: dict[str, Any]
    """The room's file after the edit."""
    personas: tuple[dict[str, Any], ...]
    """The files of the room's personas after the edit, with their present traits."""
    number: int = 0
    """In a session that is divided among processes: the number of the edit, from 1, which ticks refer to."""


class CrowdHeard(Payload, kind="crowd_heard"):
    """A context of the stream arrived."""

    at_ms: int
    """When it arrived, in milliseconds since 1970."""
    context: StreamContext
    """Transcript, keywords and events of the stream."""


class SpeakDecision(BaseModel):
    """A decision to speak, with every factor of its probability."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    persona: str
    because: SpeakReason
    p: float
    roll: float
    parts: dict[str, float]
    reply_to: str | None = None
    to: str = ""
    spoken_ms: int | None = None
    """End of the streamer's words that caused it; None if a message did."""
    heard_ms: int | None = None
    """When the words or the message that caused it arrived."""
    seed: int
    """The seed for the line."""


class CrowdTicked(Payload, kind="crowd_ticked"):
    """The personas decided whether to speak."""

    tick: int
    """The number of the tick in the session, from 1."""
    at_ms: int
    """When, in milliseconds since 1970."""
    upto: int
    """The number of the last message they took into account."""
    spoke: tuple[SpeakDecision, ...] = ()
    """Decisions to speak, ordered by name."""
    personas: tuple[str, ...] | None = None
    """The personas that decided, if the session is divided among processes; None if all did."""
    joined: tuple[str, ...] = ()
    """Those of them that another process ran before."""
    context: int | None = None
    """The number of the stream context that they took into account, if the session is divided among processes."""
    edit: int = 0
    """The number of the latest edit that applied, if the session is divided among processes; 0 before the first."""


class CrowdWritten(Payload, kind="crowd_written"):
    """The outcome of a decision to speak: a line, or why there is none."""

    persona: str
    """The persona's name."""
    tick: int
    """The tick of the decision, as in `crowd_ticked`."""
    at_ms: int
    """When, in milliseconds since 1970."""
    outcome: LineOutcome
    """`written` and posted; too `late`; `failed` in the model; `refused` by the line rules or the gateway."""
    text: str = ""
    """The line, also if it was refused."""
    why: str = ""
    """Why it was not posted; empty if it was."""
    model: str = ""
    """`provider/model`, or `phrasebook` for a canned line; empty without a line."""
    seconds: float = Field(default=0, ge=0)
    """Time to write it, without typing."""
    fallback: str = ""
    """Why the model's line was not used, if a canned line was posted instead."""


class CrowdDrifted(Payload, kind="crowd_drifted"):
    """A session changed a persona's traits or interests."""

    persona: str
    """The persona's name."""
    number: int
    """The snapshot's number, from 1 for each persona."""
    after: int
    """The snapshot it is based on; 0 is as authored."""
    state: dict[str, Any]
    """The new `traits` (each from 0 to 1) and `interests`."""
    changes: tuple[dict[str, Any], ...]
    """Each with `what`, `before`, `after`, `why`, and message ids as `evidence`."""


class CrowdDriftReverted(Payload, kind="crowd_drift_reverted"):
    """A persona was reverted to an earlier snapshot."""

    persona: str
    """The persona's name."""
    to: int
    """The snapshot's number; 0 is as authored."""


class CrowdDriftFrozen(Payload, kind="crowd_drift_frozen"):
    """Drift of a persona was frozen or allowed again."""

    persona: str
    """The persona's name."""
    frozen: bool
    """False allows drift again."""


class CrowdRelated(Payload, kind="crowd_related"):
    """A session changed how a persona stands to a person."""

    persona: str
    """The persona's name."""
    person: str
    """The person's name in the chat."""
    before: float
    """The relationship at the beginning of the session, from -1 to 1."""
    value: float
    """The relationship from now on; the next session begins with it."""
    why: str = ""
    """The reason, for the page."""
    evidence: tuple[str, ...] = ()
    """Ids of messages that changed it most."""
