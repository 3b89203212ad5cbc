"""Questions about a session: latency of a line, the decision behind it, audit records, replay with a change."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from coterie.eventstore import LogReader, Store
from coterie.modes.crowd.errors import BadRecording
from coterie.modes.crowd.events import CrowdAudited, CrowdTicked, SpeakDecision, room_stream
from coterie.modes.crowd.generation import ReplayLines
from coterie.modes.crowd.moderation import Moderator
from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.protocol import AuditRecord, ChatMessage
from coterie.modes.crowd.session.replay import Replay, ReplayResult, last_session_events

_MAX_TICKS_SEARCHED = 1_200
"""Twenty minutes at one tick per second."""


@dataclass(frozen=True)
class LatencyStage:
    name: str
    seconds: float


def latency_stages(message: ChatMessage) -> list[LatencyStage]:
    """Split the time between the words or message that caused a line and its appearance into stages."""
    trace = message.trace
    if trace is None:
        return []
    # The name of a stage, and when it ended.
    ends = [
        ("", trace.spoken_ms),
        ("understood", trace.heard_ms),
        ("decided", trace.decided_ms),
        ("generated", trace.written_ms),
        ("typed", trace.posted_ms),
        ("admitted", message.ts),
    ]
    known = [(name, at) for name, at in ends if at is not None]
    return [LatencyStage(name, max(0, at - before) / 1_000) for (_, before), (name, at) in pairwise(known)]


def find_decision(store: Store, room: str, decision: str) -> SpeakDecision | None:
    """Return the decision that a trace names, if it is recent."""
    persona, _, tick = decision.rpartition("@")
    ticks = store.reader.read(room_stream(room), kinds=[CrowdTicked.kind], limit=_MAX_TICKS_SEARCHED, newest_first=True)
    return next(
        (
            decided
            for event in ticks
            if isinstance(event.payload, CrowdTicked) and event.payload.tick == int(tick or -1)
            for decided in event.payload.spoke
            if decided.persona == persona
        ),
        None,
    )


def audit_records(store: Store, room: str, limit: int = 100) -> list[AuditRecord]:
    """Return the latest audit records, newest first."""
    events = store.reader.read(room_stream(room), kinds=[CrowdAudited.kind], limit=limit, newest_first=True)
    return [event.payload.record for event in events if isinstance(event.payload, CrowdAudited)]


def replay_with_change(
    reader: LogReader, room: str, moderator: Moderator, changed: Persona, lines: ReplayLines | None = None
) -> ReplayResult:
    """Replay the room's last session with one persona changed; `lines` writes what is not in the recording."""
    events = last_session_events(reader, room)
    if not any(isinstance(event, CrowdTicked) for event in events):
        raise BadRecording(f"Nothing happened yet in {room}.", "Run a session first.")
    return Replay(events, moderator, changed={changed.name: changed}, lines=lines).run()
