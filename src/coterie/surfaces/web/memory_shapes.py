"""Memories as the API tells them: what is kept, for whom, and why it came to mind. M7"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, StringConstraints

from coterie.base.masking import redact
from coterie.memory.record import Disclosure, MemoryRecord, MemoryType
from coterie.surfaces.web.shapes import RequestModel, ResponseModel

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)]


class MemoryResponse(ResponseModel):
    id: str
    owner: str
    room: str
    """The stream it stands in: `room:` and a chat's id, or `memory:` and a character's."""
    text: str
    type: str
    speaker: str | None
    told_by: str | None
    witnesses: list[str]
    about: list[str]
    sources: list[str]
    """The turns it came from."""
    happened: datetime | None
    """In the fiction."""
    made: datetime
    significance: int
    confidence: float
    reliability: float
    pinned: bool
    auto_pinned: bool
    private: bool
    disclosure: str
    superseded_by: str | None
    score: float | None = None
    """With `q`: how well it fits."""
    parts: dict[str, float] = Field(default_factory=dict)
    """What the score is made of; the parts sum to it."""

    @classmethod
    def of(
        cls, record: MemoryRecord, score: float | None = None, parts: dict[str, float] | None = None
    ) -> MemoryResponse:
        return cls(
            id=record.id,
            owner=record.owner,
            room=record.room,
            text=redact(record.text),
            type=record.type,
            speaker=record.speaker,
            told_by=record.told_by,
            witnesses=list(record.witnesses),
            about=list(record.about),
            sources=list(record.sources),
            happened=record.happened,
            made=record.made,
            significance=record.significance,
            confidence=record.confidence,
            reliability=record.reliability,
            pinned=record.pinned,
            auto_pinned=record.auto_pinned,
            private=record.private,
            disclosure=record.disclosure,
            superseded_by=record.superseded_by,
            score=score,
            parts=parts or {},
        )


class MemoryLinkResponse(ResponseModel):
    source: str
    relation: str
    target: str


class MemoryEditRequest(RequestModel):
    """What is left out stays as it is."""

    text: Text | None = None
    type: MemoryType | None = None
    significance: int | None = Field(default=None, ge=0, le=3)
    confidence: float | None = Field(default=None, ge=0, le=1)
    private: bool | None = None
    disclosure: Disclosure | None = None


class MemoryImportResponse(ResponseModel):
    added: int
    """How many were new."""
