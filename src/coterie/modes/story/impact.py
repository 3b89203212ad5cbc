"""What a rewind would take back, in words a person can judge: by count and as a list. S23"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from pydantic import BaseModel

from coterie.engine.events import AssistantTurn, UserTurn
from coterie.kernel import AnyEvent, Impact
from coterie.memory.events import MemoryAdded
from coterie.modes.story.events import (
    EdgesSet,
    EdgeSummaryRewritten,
    EdgeUpdate,
    GuestJoined,
    GuestLeft,
    ManualEdit,
    SceneClosed,
    SceneOpened,
)

What = Literal["turns", "scenes", "edges", "memories", "guests", "edits"]
_LONGEST = 120


class Lost(BaseModel):
    what: What
    event: int
    text: str


class RewindImpact(BaseModel):
    turns: int = 0
    scenes: int = 0
    edges: int = 0
    memories: int = 0
    guests: int = 0
    edits: int = 0
    lost: list[Lost] = []
    """Everything counted above, oldest first."""


def told(impact: Impact) -> RewindImpact:
    lost = [found for event in impact.dropped if (found := _lost(event)) is not None]
    counts = Counter(one.what for one in lost)
    return RewindImpact(
        turns=counts["turns"],
        scenes=counts["scenes"],
        edges=counts["edges"],
        memories=counts["memories"],
        guests=counts["guests"],
        edits=counts["edits"],
        lost=lost,
    )


def _lost(event: AnyEvent) -> Lost | None:
    match event.payload:
        case UserTurn() | AssistantTurn() as turn:
            return Lost(what="turns", event=event.id, text=_short(turn.text))
        case SceneOpened() | SceneClosed() as scene:
            return Lost(what="scenes", event=event.id, text=f"{scene.kind.replace('_', ' ')} {scene.scene}")
        case EdgeUpdate() | EdgeSummaryRewritten() as edge:
            return Lost(what="edges", event=event.id, text=f"{edge.of} toward {edge.toward}")
        case EdgesSet():
            return Lost(what="edges", event=event.id, text="all")
        case MemoryAdded() as memory:
            return Lost(what="memories", event=event.id, text=_short(memory.text))
        case GuestJoined() | GuestLeft() as guest:
            return Lost(what="guests", event=event.id, text=f"{guest.kind.replace('_', ' ')}: {guest.guest}")
        case ManualEdit() as edit:
            return Lost(what="edits", event=event.id, text=_short(f"{edit.what}: {edit.value}"))
        case _:
            return None


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
