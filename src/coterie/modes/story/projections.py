"""What the story mode brings to the house: its views and its work."""

from __future__ import annotations

from coterie.eventstore import Job, Projection
from coterie.modes.story.queries import ChatProjection, PromptProjection, ReadMarkProjection
from coterie.modes.story.relationships import RelationshipProjection


def projections() -> list[Projection]:
    return [ChatProjection(), RelationshipProjection(), PromptProjection(), ReadMarkProjection()]


def exclusive_chat(job: Job) -> str | None:
    """What a job makes of a turn depends on what the one before made of its own: the scene, the pins, the summary."""
    return str(job.payload["room"]) if job.kind.startswith("story_") else None
