"""What the story mode brings to the house: its views and its work."""

from __future__ import annotations

from coterie.kernel import Job, View
from coterie.modes.story.chats import Chats
from coterie.modes.story.edges import Edges
from coterie.modes.story.prompts import Prompts
from coterie.modes.story.reading import Reading


def views() -> list[View]:
    return [Chats(), Edges(), Prompts(), Reading()]


def one_chat_at_a_time(job: Job) -> str | None:
    """What a job makes of a turn depends on what the one before made of its own: the scene, the pins, the summary."""
    return str(job.payload["room"]) if job.kind.startswith("story_") else None
