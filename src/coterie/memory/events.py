"""What happens to memories, as events in the stream of the room where it happened.

A rewind of the room takes back what was remembered, corrected, linked and used there. Forgetting is
different: it is a person's wish about a memory wherever it lives, so it stands in a stream of its own
(`memory:<owner>`) that no rewind of a room reaches.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from coterie.kernel import Payload
from coterie.memory.record import Disclosure, MemoryType, Relation


class MemoryAdded(Payload, kind="memory_added"):
    """A character remembers something, with who was there and the turns it came from."""

    id: str
    owner: str
    text: str
    """From the owner's point of view."""
    type: MemoryType = "observation"
    scene: str | None = None
    speaker: str | None = None
    """Who said it, by the name that prose uses."""
    told_by: str | None = None
    """Who told the owner, if the owner was not there."""
    witnesses: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    """Whom it is about, beyond the speaker."""
    sources: tuple[str, ...] = ()
    """The turns or events it came from."""
    happened: datetime | None = None
    """When, in the fiction."""
    significance: int = Field(default=1, ge=0, le=3)
    confidence: float = Field(default=1.0, ge=0, le=1)
    reliability: float = Field(default=1.0, ge=0, le=1)
    pinned: bool = False
    private: bool = False
    disclosure: Disclosure = "people"


class MemoryEdited(Payload, kind="memory_edited"):
    """A memory's text, type, weight or privacy was corrected. Fields that are None stay as they are."""

    id: str
    text: str | None = None
    type: MemoryType | None = None
    significance: int | None = Field(default=None, ge=0, le=3)
    confidence: float | None = Field(default=None, ge=0, le=1)
    private: bool | None = None
    disclosure: Disclosure | None = None


class MemoryPinChanged(Payload, kind="memory_pin_changed"):
    """A memory was pinned or unpinned, by hand or because it matters."""

    id: str
    pinned: bool
    auto: bool = False
    """Pinned because it matters, not by hand: the first to go when there are too many."""


class MemoryConfirmed(Payload, kind="memory_confirmed"):
    """The same thing was learned again: no new memory, but more to know it by."""

    id: str
    owner: str
    sources: tuple[str, ...]


class MemorySuperseded(Payload, kind="memory_superseded"):
    """`id` no longer holds, as far as this room knows; `by` does."""

    id: str
    by: str
    owner: str


class MemoryMerged(Payload, kind="memory_merged"):
    """`id` said the same as `into`, which now stands for both."""

    id: str
    into: str
    owner: str


class MemoryLinked(Payload, kind="memory_linked"):
    """Two memories belong together."""

    source: str
    relation: Relation
    target: str
    owner: str


class MemoryUsed(Payload, kind="memory_used"):
    """These were put before a model: use keeps a memory fresh."""

    owner: str
    ids: tuple[str, ...]


class MemoryForgotten(Payload, kind="memory_forgotten"):
    """A tombstone: neither this memory nor one that says the same may come back."""

    id: str
    owner: str
    digest: str
    sources: tuple[str, ...] = ()
