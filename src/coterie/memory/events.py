"""What happens to memories, as events in the stream of the room where it happened.

A rewind of the room takes back what was remembered, corrected, linked and used there. Forgetting is
different: it is a person's wish about a memory wherever it lives, so it stands in a stream of its own
(`memory:<owner>`) that no rewind of a room reaches.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from coterie.eventstore import Payload
from coterie.memory.records import Disclosure, MemoryType, Relation


class MemoryAdded(Payload, kind="memory_added"):
    """A character remembers something, with who was there and the turns it came from."""

    id: str
    """The memory's id, the same on every line of a forked room."""
    owner: str
    """Whose memory it is: a character's id; `agent:<name>` for a persona of the crowd."""
    text: str
    """From the owner's point of view."""
    type: MemoryType = "observation"
    """What kind of thing it is; kinds weigh differently when it is recalled."""
    scene: str | None = None
    """The id of the story's scene it belongs to; None elsewhere."""
    speaker: str | None = None
    """Who said it, by the name that prose uses."""
    told_by: str | None = None
    """Who told the owner, if the owner was not there."""
    witnesses: tuple[str, ...] = ()
    """Who was there: ids, or names in a crowd's chat. An owner who was not there has it from `told_by`."""
    about: tuple[str, ...] = ()
    """Whom it is about, beyond the speaker."""
    sources: tuple[str, ...] = ()
    """The turns or events it came from."""
    happened: datetime | None = None
    """When, in the fiction."""
    significance: int = Field(default=1, ge=0, le=3)
    """0 trivial and out of recall, 1 ordinary, 2 important, 3 life-changing."""
    confidence: float = Field(default=1.0, ge=0, le=1)
    """How sure it is, from 0 to 1; what a model thinks where it found the fact."""
    reliability: float = Field(default=1.0, ge=0, le=1)
    """How far to believe where it comes from, 0 to 1; 0.8 for what another character told."""
    pinned: bool = False
    """Always at hand from the start, as if pinned by hand."""
    private: bool = False
    """Not to be told before anybody who was not there."""
    disclosure: Disclosure = "people"
    """`people`: not before people who were not there; `room`: only in its room; `open`: anywhere."""


class MemoryEdited(Payload, kind="memory_edited"):
    """A memory's text, type, weight or privacy was corrected. Fields that are None stay as they are."""

    id: str
    """The memory's id."""
    text: str | None = None
    """What it says now."""
    type: MemoryType | None = None
    """What kind of thing it is now."""
    significance: int | None = Field(default=None, ge=0, le=3)
    """0 trivial, 1 ordinary, 2 important, 3 life-changing."""
    confidence: float | None = Field(default=None, ge=0, le=1)
    """How sure it is now, from 0 to 1."""
    private: bool | None = None
    """Whether it is kept from those who were not there."""
    disclosure: Disclosure | None = None
    """`people`: not before people who were not there; `room`: only in its room; `open`: anywhere."""


class MemoryPinChanged(Payload, kind="memory_pin_changed"):
    """A memory was pinned or unpinned, by hand or because it matters."""

    id: str
    """The memory's id."""
    pinned: bool
    """True: always at hand; False: no longer."""
    auto: bool = False
    """Pinned because it matters, not by hand: the first to go when there are too many."""


class MemoryConfirmed(Payload, kind="memory_confirmed"):
    """The same thing was learned again: no new memory, but more to know it by."""

    id: str
    """The memory's id."""
    owner: str
    """Whose memory it is: a character's id; `agent:<name>` for a persona of the crowd."""
    sources: tuple[str, ...]
    """The turns in which it was said again, by id."""


class MemorySuperseded(Payload, kind="memory_superseded"):
    """`id` no longer holds, as far as this room knows; `by` does."""

    id: str
    """The memory that is replaced."""
    by: str
    """The memory that replaces it."""
    owner: str
    """Whose memories they are: a character's id; `agent:<name>` for a persona of the crowd."""


class MemoryMerged(Payload, kind="memory_merged"):
    """`id` said the same as `into`, which now stands for both."""

    id: str
    """The later memory: `into` is recalled in its place."""
    into: str
    """The earlier memory, which stays."""
    owner: str
    """Whose memories they are: a character's id; `agent:<name>` for a persona of the crowd."""


class MemoryLinked(Payload, kind="memory_linked"):
    """Two memories belong together."""

    source: str
    """The memory that the link leads from, by id."""
    relation: Relation
    """What `source` is to `target`: it `updates` it, is `part_of` it …"""
    target: str
    """The memory that the link leads to, by id."""
    owner: str
    """Whose memories they are: a character's id; `agent:<name>` for a persona of the crowd."""


class MemoryUsed(Payload, kind="memory_used"):
    """These were put before a model: use keeps a memory fresh."""

    owner: str
    """Whose memories they are: a character's id; `agent:<name>` for a persona of the crowd."""
    ids: tuple[str, ...]
    """The ids of those that were in the prompt."""


class MemoryForgotten(Payload, kind="memory_forgotten"):
    """A tombstone: neither this memory nor one that says the same may come back."""

    id: str
    """The memory's id."""
    owner: str
    """Whose memory it is: a character's id; `agent:<name>` for a persona of the crowd."""
    digest: str
    """Of its words, in hex; case, spacing and punctuation do not count."""
    sources: tuple[str, ...] = ()
    """The turns it came from: what they say in like words stays forgotten too."""
