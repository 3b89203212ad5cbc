"""Crowd: a room full of personas around a live stream, each deciding for itself. There is no director.

This is what surfaces may use of it; the rest is its own business.
"""

from coterie.modes.crowd.drift import MAX_TOTAL_DRIFT, TRAITS, DriftSnapshot
from coterie.modes.crowd.errors import AlreadyLive, CrowdError, MessageRefused, NoSuchCrowd
from coterie.modes.crowd.events import CrowdRuled, Ruling
from coterie.modes.crowd.figures import CrowdMetrics
from coterie.modes.crowd.gateway import MAX_OUTSTANDING_BYTES, Encoding
from coterie.modes.crowd.hall import CrowdRoom, CrowdService, LineSource
from coterie.modes.crowd.personas import Persona, RoomConfig
from coterie.modes.crowd.personas.character import character_from_persona, character_id
from coterie.modes.crowd.protocol import AuditRecord, ChatAuthor, ChatMessage, ChatPost, StreamContext, Trends
from coterie.modes.crowd.reports import LatencyStage, audit_records, find_decision, latency_stages, replay_with_change
from coterie.modes.crowd.session.replay import ReplayResult
from coterie.modes.crowd.session.streams import SAMPLE

__all__ = [
    "MAX_TOTAL_DRIFT",
    "MAX_OUTSTANDING_BYTES",
    "SAMPLE",
    "TRAITS",
    "AlreadyLive",
    "AuditRecord",
    "ChatAuthor",
    "ChatMessage",
    "ChatPost",
    "CrowdError",
    "CrowdRuled",
    "Encoding",
    "CrowdMetrics",
    "CrowdService",
    "NoSuchCrowd",
    "CrowdRoom",
    "Persona",
    "MessageRefused",
    "ReplayResult",
    "RoomConfig",
    "Ruling",
    "DriftSnapshot",
    "LineSource",
    "LatencyStage",
    "StreamContext",
    "Trends",
    "audit_records",
    "character_id",
    "character_from_persona",
    "latency_stages",
    "replay_with_change",
    "find_decision",
]
