"""Crowd mode: rooms of personas that chat about a live stream. Each persona decides on its own when to speak."""

from coterie.modes.crowd.drift import MAX_TOTAL_DRIFT, TRAITS, DriftSnapshot
from coterie.modes.crowd.errors import AlreadyLive, CrowdError, MessageRefused, NoSuchCrowd
from coterie.modes.crowd.events import CrowdRuled, Ruling
from coterie.modes.crowd.gateway import MAX_OUTSTANDING_BYTES, Encoding
from coterie.modes.crowd.metrics import CrowdMetrics
from coterie.modes.crowd.personas import Persona, character_from_persona, character_id
from coterie.modes.crowd.protocol import AuditRecord, ChatAuthor, ChatMessage, ChatPost, StreamContext, Trends
from coterie.modes.crowd.queries import LatencyStage, audit_records, find_decision, latency_stages, replay_with_change
from coterie.modes.crowd.service import CrowdRoom, CrowdService, LineSource
from coterie.modes.crowd.session.replay import ReplayResult
from coterie.modes.crowd.session.stream_sources import SAMPLE
from coterie.modes.crowd.settings import RoomConfig

__all__ = [
    "MAX_OUTSTANDING_BYTES",
    "MAX_TOTAL_DRIFT",
    "SAMPLE",
    "TRAITS",
    "AlreadyLive",
    "AuditRecord",
    "ChatAuthor",
    "ChatMessage",
    "ChatPost",
    "CrowdError",
    "CrowdMetrics",
    "CrowdRoom",
    "CrowdRuled",
    "CrowdService",
    "DriftSnapshot",
    "Encoding",
    "LatencyStage",
    "LineSource",
    "MessageRefused",
    "NoSuchCrowd",
    "Persona",
    "ReplayResult",
    "RoomConfig",
    "Ruling",
    "StreamContext",
    "Trends",
    "audit_records",
    "character_from_persona",
    "character_id",
    "find_decision",
    "latency_stages",
    "replay_with_change",
]
