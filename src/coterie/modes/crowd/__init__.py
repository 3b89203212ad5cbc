"""Crowd: a room full of personas around a live stream, each deciding for itself. There is no director.

This is what surfaces may use of it; the rest is its own business.
"""

from coterie.modes.crowd.drift import FOR_LIFE, TRAITS, Snapshot
from coterie.modes.crowd.errors import AlreadyLive, CrowdError, NoSuchCrowd, Refused
from coterie.modes.crowd.events import CrowdRuled, Ruling
from coterie.modes.crowd.figures import Figures
from coterie.modes.crowd.gateway import MOST_WAITING, Encoding
from coterie.modes.crowd.hall import Hall, OpenRoom, Speaking
from coterie.modes.crowd.personas import Persona, RoomFile
from coterie.modes.crowd.personas.character import character_id, character_of
from coterie.modes.crowd.protocol import AuditRecord, Author, ChatMessage, ChatPost, StreamContext, Trends
from coterie.modes.crowd.reports import Stage, audits, stages, what_if, why
from coterie.modes.crowd.session.replay import Replayed
from coterie.modes.crowd.session.streams import SAMPLE

__all__ = [
    "FOR_LIFE",
    "MOST_WAITING",
    "SAMPLE",
    "TRAITS",
    "AlreadyLive",
    "AuditRecord",
    "Author",
    "ChatMessage",
    "ChatPost",
    "CrowdError",
    "CrowdRuled",
    "Encoding",
    "Figures",
    "Hall",
    "NoSuchCrowd",
    "OpenRoom",
    "Persona",
    "Refused",
    "Replayed",
    "RoomFile",
    "Ruling",
    "Snapshot",
    "Speaking",
    "Stage",
    "StreamContext",
    "Trends",
    "audits",
    "character_id",
    "character_of",
    "stages",
    "what_if",
    "why",
]
