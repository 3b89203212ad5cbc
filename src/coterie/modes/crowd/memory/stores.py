"""Where memories of personas are kept: Coterie's own memory, or Mem0. Both have the same scope and the same rules.

A memory belongs to a persona (`agent:NAME`, or its character) and a room. It has a type, the people it is about, the
ids of the messages that say it, and a confidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from coterie.memory import ExtractionRequest, ExtractionTurn, Memory, MemoryRecord, Operations, Viewpoint


@dataclass(frozen=True)
class StoredMemory:
    """A memory as any store returns it."""

    id: str
    text: str
    type: str
    about: tuple[str, ...]
    sources: tuple[str, ...]
    confidence: float
    score: float = 0.0


class PersonaStore(Protocol):
    def prepare(self, turn: ExtractionTurn, owner: str, room: str) -> ExtractionRequest:
        """The request for an extraction, with what the owner remembers about the subject."""
        ...

    def store(self, request: ExtractionRequest, proposed: Operations) -> int:
        """Store what passes the rules of extraction. Returns the number of new memories."""
        ...

    def recall(self, view: Viewpoint, question: str, k: int) -> list[StoredMemory]:
        """What the viewpoint's owner remembers about a question and may say in its room, best first."""
        ...

    def all(self, owner: str, room: str) -> list[StoredMemory]: ...

    def forget(self, memory_id: str) -> None: ...


class BuiltInStore:
    """Coterie's own memory, which stories and desks share."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def prepare(self, turn: ExtractionTurn, owner: str, room: str) -> ExtractionRequest:
        return self._memory.prepare_extraction([turn], owner=owner, room=room, witnesses=(owner, turn.speaker))

    def store(self, request: ExtractionRequest, proposed: Operations) -> int:
        return sum(plan.verdict == "added" for plan in self._memory.store_extraction(request, proposed).planned)

    def recall(self, view: Viewpoint, question: str, k: int) -> list[StoredMemory]:
        return [
            _stored(each.memory, each.text_with_speaker, each.score)
            for each in self._memory.recall_as(view, question, k=k)
        ]

    def all(self, owner: str, room: str) -> list[StoredMemory]:
        return [_stored(each, each.text, 0.0) for each in self._memory.browse(owner=owner, room=room)]

    def forget(self, memory_id: str) -> None:
        self._memory.forget(memory_id)


def _stored(record: MemoryRecord, text: str, score: float) -> StoredMemory:
    return StoredMemory(record.id, text, record.type, record.about, record.sources, record.confidence, score)
