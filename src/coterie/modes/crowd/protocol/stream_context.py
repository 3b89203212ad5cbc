"""What is going on in the stream, as personas are told: the last words, what they are about, and what happened."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from coterie.modes.crowd.protocol.chat_message import RoomName
from coterie.modes.crowd.protocol.wire import WireMessage, WireModel

MAX_CONTEXT_BYTES = 4_096
"""A context is small, whatever it was made from: raw sound and frames never leave the service that heard them."""

EVENT_KINDS = ("chat_question", "hype", "fail", "clutch", "topic_change", "scene_change", "raid")
"""Events every reader knows; others may come, and weigh little until somebody teaches their meaning."""


class StreamEvent(WireModel):
    kind: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z_]*$", max_length=40)]
    confidence: float = Field(ge=0, le=1)
    at: int
    """Milliseconds since 1970."""
    about: str = Field(default="", max_length=200)


class Vision(WireModel):
    caption: str = Field(default="", max_length=500)
    on_screen_text: tuple[str, ...] = Field(default=(), max_length=20)
    scene: str = Field(default="", max_length=80)


class TimeWindow(WireModel):
    start: int
    end: int


class StreamContext(WireMessage):
    shape = "stream_context"

    room: RoomName
    number: int = Field(ge=1)
    window: TimeWindow
    transcript: str = Field(default="", max_length=2_000)
    summary: str = Field(default="", max_length=500)
    keywords: tuple[str, ...] = Field(default=(), max_length=20)
    events: tuple[StreamEvent, ...] = Field(default=(), max_length=20)
    speakers: tuple[str, ...] = Field(default=(), max_length=10)
    vision: Vision | None = None
