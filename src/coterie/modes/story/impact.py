"""What a rewind would take back, in words a person can judge: by count and as a list. S23"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from pydantic import BaseModel

from coterie.engine.events import AssistantTurn, UserTurn
from coterie.kernel import AnyEvent, RewindImpact
from coterie.memory.events import MemoryAdded
from coterie.modes.story.events import (
    GuestJoined,
    GuestLeft,
    ManualEdit,
    RelationshipsSet,
    RelationshipSummaryRewritten,
    RelationshipUpdated,
    SceneClosed,
    SceneOpened,
)

LostKind = Literal["turns", "scenes", "edges", "memories", "guests", "edits"]
_LOST_TEXT_LENGTH = 120


class LostItem(BaseModel):
    what: LostKind
    event: int
    text: str


class ChatRewindImpact(BaseModel):
    turns: int = 0
    scenes: int = 0
    edges: int = 0
    memories: int = 0
    guests: int = 0
    edits: int = 0
    lost: list[LostItem] = []
    """Everything counted above, oldest first."""


def describe_impact(impact: RewindImpact) -> ChatRewindImpact:
    lost = [found for event in impact.dropped if (found := _lost_item(event)) is not None]
    counts = Counter(one.what for one in lost)
    return ChatRewindImpact(
        turns=counts["turns"],
        scenes=counts["scenes"],
        edges=counts["edges"],
        memories=counts["memories"],
        guests=counts["guests"],
        edits=counts["edits"],
        lost=lost,
    )


def _lost_item(event: AnyEvent) -> LostItem | None:
    match event.payload:
        case UserTurn() | AssistantTurn() as turn:
            return LostItem(what="turns", event=event.id, text=_shortened(turn.text))
        case SceneOpened() | SceneClosed() as scene:
            return LostItem(what="scenes", event=event.id, text=f"{scene.kind.replace('_', ' ')} {scene.scene}")
        case RelationshipUpdated() | RelationshipSummaryRewritten() as edge:
            return LostItem(what="edges", event=event.id, text=f"{edge.of} toward {edge.toward}")
        case RelationshipsSet():
            return LostItem(what="edges", event=event.id, text="all")
        case MemoryAdded() as memory:
            return LostItem(what="memories", event=event.id, text=_shortened(memory.text))
        case GuestJoined() | GuestLeft() as guest:
            return LostItem(what="guests", event=event.id, text=f"{guest.kind.replace('_', ' ')}: {guest.guest}")
        case ManualEdit() as edit:
            return LostItem(what="edits", event=event.id, text=_shortened(f"{edit.what}: {edit.value}"))
        case _:
            return None


def _shortened(text: str) -> str:
    return text if len(text) <= _LOST_TEXT_LENGTH else f"{text[: _LOST_TEXT_LENGTH - 1]}…"
