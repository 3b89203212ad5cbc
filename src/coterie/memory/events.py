"""Events of memories. They are in the stream of the room, so a rewind of the room undoes them.

`MemoryForgotten` is the exception: it is in the stream `memory:<owner>`, which no rewind of a room affects.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from coterie.eventstore import Payload
from coterie.memory.records import Disclosure, MemoryType, Relation


class MemoryAdded(Payload, kind="memory_added"):
    """A memory was stored, with its witnesses and sources."""

    id: str
    """The memory's id, the same in all forks of a chat."""
    owner: str
    """Whose memory it is: a character's id; `agent:<name>` for a persona of the crowd."""
    text: str
    """The text, from the owner's point of view."""
    type: MemoryType = "observation"
    """The type, which affects its importance."""
    scene: str | None = None
    """The id of the story scene, if any."""
    speaker: str | None = None
    """The speaker's name as used in prose."""
    told_by: str | None = None
    """Who told the owner, if the owner was not present."""
    witnesses: tuple[str, ...] = ()
    """Who was present: ids, or names in a crowd's chat."""
    about: tuple[str, ...] = ()
    """People it is about, besides the speaker."""
    sources: tuple[str, ...] = ()
    """The turns or events it came from."""
    happened: datetime | None = None
    """When it happened in the fiction."""
    significance: int = Field(default=1, ge=0, le=3)
    """0 trivial (not recalled), 1 ordinary, 2 important, 3 life-changing."""
    confidence: float = Field(default=1.0, ge=0, le=1)
    """How certain it is, from 0 to 1; for extracted facts the model's estimate."""
    reliability: float = Field(default=1.0, ge=0, le=1)
    """How reliable its source is, from 0 to 1; 0.8 for what another character said."""
    pinned: bool = False
    """Whether it is pinned from the start."""
    private: bool = False
    """Not disclosed to anyone who was not present."""
    disclosure: Disclosure = "people"
    """`people`: not to people who were not present; `room`: only in its room; `open`: anywhere."""


class MemoryEdited(Payload, kind="memory_edited"):
    """A memory was corrected. Fields that are None are unchanged."""

    id: str
    """The memory's id."""
    text: str | None = None
    """The new text."""
    type: MemoryType | None = None
    """The new type."""
    significance: int | None = Field(default=None, ge=0, le=3)
    """0 trivial, 1 ordinary, 2 important, 3 life-changing."""
    confidence: float | None = Field(default=None, ge=0, le=1)
    """How certain it is, from 0 to 1."""
    private: bool | None = None
    """Whether it is not disclosed to anyone who was not present."""
    disclosure: Disclosure | None = None
    """`people`: not to people who were not present; `room`: only in its room; `open`: anywhere."""


class MemoryPinChanged(Payload, kind="memory_pin_changed"):
    """A memory was pinned or unpinned."""

    id: str
    """The memory's id."""
    pinned: bool
    """Whether it is pinned now."""
    auto: bool = False
    """Pinned automatically; such pins are removed first if there are too many."""


class MemoryConfirmed(Payload, kind="memory_confirmed"):
    """A known memory was stated again and got more sources."""

    id: str
    """The memory's id."""
    owner: str
    """Whose memory it is: a character's id; `agent:<name>` for a persona of the crowd."""
    sources: tuple[str, ...]
    """The ids of the turns in which it was stated again."""


class MemorySuperseded(Payload, kind="memory_superseded"):
    """In this room, memory `by` replaces memory `id`."""

    id: str
    """The memory that is replaced."""
    by: str
    """The memory that replaces it."""
    owner: str
    """Whose memories they are: a character's id; `agent:<name>` for a persona of the crowd."""


class MemoryMerged(Payload, kind="memory_merged"):
    """Memory `id` was a duplicate of `into` and is no longer recalled."""

    id: str
    """The later memory, which is replaced by `into`."""
    into: str
    """The earlier memory, which is kept."""
    owner: str
    """Whose memories they are: a character's id; `agent:<name>` for a persona of the crowd."""


class MemoryLinked(Payload, kind="memory_linked"):
    """Two memories were linked."""

    source: str
    """The id of the memory that the link starts at."""
    relation: Relation
    """The relation of `source` to `target`, such as `updates` or `part_of`."""
    target: str
    """The id of the memory that the link leads to."""
    owner: str
    """Whose memories they are: a character's id; `agent:<name>` for a persona of the crowd."""


class MemoryUsed(Payload, kind="memory_used"):
    """Memories were used in a prompt, which slows their decay."""

    owner: str
    """Whose memories they are: a character's id; `agent:<name>` for a persona of the crowd."""
    ids: tuple[str, ...]
    """The ids of the memories in the prompt."""


class MemoryForgotten(Payload, kind="memory_forgotten"):
    """A memory was forgotten for good; equivalent memories are not stored again."""

    id: str
    """The memory's id."""
    owner: str
    """Whose memory it is: a character's id; `agent:<name>` for a persona of the crowd."""
    digest: str
    """The hexadecimal digest of its text, which ignores case, spacing and punctuation."""
    sources: tuple[str, ...] = ()
    """The turns it came from; duplicates from these turns are not stored again either."""
