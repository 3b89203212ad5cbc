"""What can be asked about an evening: where a line's seconds went, why it was said, what was ruled, and what if."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from coterie.eventstore import LogReader, Store
from coterie.modes.crowd.errors import BadRecording
from coterie.modes.crowd.events import CrowdAudited, CrowdTicked, SpeakDecision, room_stream
from coterie.modes.crowd.moderation import Moderator
from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.protocol import AuditRecord, ChatMessage
from coterie.modes.crowd.session.replay import Replay, ReplayResult, last_session_events

_MAX_TICKS_SEARCHED = 1_200
"""Moments: at one a second, twenty minutes."""


@dataclass(frozen=True)
class LatencyStage:
    name: str
    seconds: float


def latency_stages(message: ChatMessage) -> list[LatencyStage]:
    """Where the seconds went, from the word or the message that led to a line until everybody saw it. C10"""
    trace = message.trace
    if trace is None:
        return []
    # Each moment with what was going on until then.
    moments = [
        ("", trace.spoken_ms),
        ("understood", trace.heard_ms),
        ("thought it over", trace.decided_ms),
        ("put into words", trace.written_ms),
        ("typed", trace.posted_ms),
        ("let in", message.ts),
    ]
    known = [(until, at) for until, at in moments if at is not None]
    return [LatencyStage(until, max(0, at - before) / 1_000) for (_, before), (until, at) in pairwise(known)]


def find_decision(store: Store, room: str, decision: str) -> SpeakDecision | None:
    """The numbers of a decision that a trace names, if it was made lately."""
    persona, _, tick = decision.rpartition("@")
    ticked = store.reader.read(
        room_stream(room), kinds=[CrowdTicked.kind], limit=_MAX_TICKS_SEARCHED, newest_first=True
    )
    return next(
        (
            decided
            for event in ticked
            if isinstance(event.payload, CrowdTicked) and event.payload.tick == int(tick or -1)
            for decided in event.payload.spoke
            if decided.persona == persona
        ),
        None,
    )


def audit_records(store: Store, room: str, limit: int = 100) -> list[AuditRecord]:
    """What was refused, redacted, noted or ruled, newest first."""
    found = store.reader.read(room_stream(room), kinds=[CrowdAudited.kind], limit=limit, newest_first=True)
    return [event.payload.record for event in found if isinstance(event.payload, CrowdAudited)]


def replay_with_change(reader: LogReader, room: str, moderator: Moderator, changed: Persona) -> ReplayResult:
    """The room's last session again, with one of them as they might have been. C17"""
    events = last_session_events(reader, room)
    if not any(isinstance(event, CrowdTicked) for event in events):
        raise BadRecording(f"Nothing happened yet in {room}.", "Let an evening run for a while first.")
    return Replay(events, moderator, changed={changed.name: changed}).run()
