"""What a memory is: who holds it, what it says, how they know it, and where it may be spoken of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

MemoryType = Literal[
    "identity",
    "goal",
    "decision",
    "todo",
    "preference",
    "fact",
    "event",
    "observation",
    "relationship",
    "running_joke",
    "persona_note",
]
Disclosure = Literal["people", "room", "open"]
Relation = Literal["updates", "caused_by", "result_of", "related_to", "part_of", "contradicts"]

TYPES: tuple[str, ...] = get_args(MemoryType)
DISCLOSURES: tuple[str, ...] = get_args(Disclosure)
RELATIONS: tuple[str, ...] = get_args(Relation)

HAND_PINNED, AUTO_PINNED = 2, 1

TYPE_IMPORTANCE: dict[str, float] = {
    "identity": 1.0,
    "goal": 0.9,
    "decision": 0.8,
    "todo": 0.8,
    "relationship": 0.8,
    "preference": 0.7,
    "persona_note": 0.7,
    "fact": 0.6,
    "running_joke": 0.6,
    "event": 0.4,
    "observation": 0.3,
}
LINK_WEIGHT: dict[str, float] = {
    "updates": 1.5,
    "caused_by": 1.3,
    "result_of": 1.3,
    "related_to": 1.0,
    "part_of": 0.8,
    "contradicts": 0.5,
}


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """One memory as it is stored in one room."""

    id: str
    owner: str
    room: str
    text: str
    type: str
    scene: str | None
    speaker: str | None
    told_by: str | None
    witnesses: tuple[str, ...]
    about: tuple[str, ...]
    sources: tuple[str, ...]
    """The turns it came from: how the owner knows."""
    happened: datetime | None
    """In the fiction."""
    made: datetime
    """On the wall clock."""
    significance: int
    confidence: float
    reliability: float
    pinned: bool
    auto_pinned: bool
    private: bool
    disclosure: str
    superseded_by: str | None = None

    @property
    def when(self) -> datetime:
        return self.happened or self.made


class StreamForks:
    """Which streams are forks of one another."""

    def __init__(self, roots: Mapping[str, str]) -> None:
        self._roots = roots

    def is_other_branch(self, stream: str, room: str | None) -> bool:
        """Whether a stream is another line of the room's own family."""
        return room is not None and stream != room and self.root(stream) == self.root(room)

    def root(self, stream: str) -> str:
        return self._roots.get(stream, stream)
