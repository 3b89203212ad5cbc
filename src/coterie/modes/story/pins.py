"""Pins: what changes a life stays in mind, and what a person pins does too. S14, S21

At most eight memories of a character are pinned. The weakest automatic pin makes room for another; a pin that a person
set is never taken away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coterie.characters.service import OWNER
from coterie.eventstore import NewEvent, Store
from coterie.memory.errors import BadMemory
from coterie.memory.events import MemoryPinChanged
from coterie.memory.memory import MAX_PINS
from coterie.memory.records import MemoryRecord, StreamForks, all_records


class Pins:
    def __init__(self, store: Store) -> None:
        self._store = store

    def pin(self, room: str, owner: str, ids: Sequence[str], turn: str | None) -> list[NewEvent]:
        """The drafts that pin these memories of one owner in a room."""
        pinned = self.pinned(room, owner)
        drafts: list[NewEvent] = []
        fresh = [memory_id for memory_id in ids if memory_id not in pinned][:MAX_PINS]
        weak = _weakest_first(room, pinned.values())
        free = MAX_PINS - len(pinned)
        for memory_id in fresh:
            if free > 0:
                free -= 1
            elif weak:
                weakest = weak.pop(0)
                out = MemoryPinChanged(id=weakest.id, pinned=False)
                drafts.append(NewEvent(weakest.room, out, "story", turn=turn))
            else:
                break
            pin = MemoryPinChanged(id=memory_id, pinned=True, auto=True)
            drafts.append(NewEvent(room, pin, "story", turn=turn))
        return drafts

    def set_by_hand(self, memory: MemoryRecord, pinned: bool) -> list[NewEvent]:
        """The drafts with which a person pins a memory, or no longer wants it pinned."""
        if pinned == memory.pinned and not memory.auto_pinned:
            return []
        drafts = [NewEvent(memory.room, MemoryPinChanged(id=memory.id, pinned=pinned), OWNER)]
        others = self.pinned(memory.room, memory.owner)
        others.pop(memory.id, None)
        if not pinned or len(others) < MAX_PINS:
            return drafts
        weak = _weakest_first(memory.room, others.values())
        if not weak:
            raise BadMemory(f"{MAX_PINS} memories are pinned by hand already.", "Unpin one of them first.")
        return [NewEvent(weak[0].room, MemoryPinChanged(id=weak[0].id, pinned=False), OWNER), *drafts]

    def pinned(self, room: str, owner: str) -> dict[str, MemoryRecord]:
        """Another line of the same chat has pins of its own; where a memory is in this room too, that one is meant."""
        lines = StreamForks(self._store.reader.roots())
        pinned = all_records(self._store, "owner = ? AND pin > 0", (owner,))
        found: dict[str, MemoryRecord] = {}
        for record in sorted(pinned, key=lambda record: record.room != room):
            if not lines.is_other_branch(record.room, room):
                found.setdefault(record.id, record)
        return found


def _weakest_first(room: str, pinned: Iterable[MemoryRecord]) -> list[MemoryRecord]:
    """The automatic pins, those of this room first: a rewind or regenerate here can bring them back."""
    return sorted(
        (record for record in pinned if record.auto_pinned),
        key=lambda record: (record.room != room, record.significance, record.made, record.id),
    )
