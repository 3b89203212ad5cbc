"""Pins that a story sets by itself: what changes a life stays in mind, and the weakest of them makes room. S14

At most eight memories of a character are pinned. A pin that a person set is never taken away.
"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.kernel import Draft, Store
from coterie.memory.events import MemoryPinChanged
from coterie.memory.gates import Lines
from coterie.memory.library import MOST_PINS
from coterie.memory.reading import all_records
from coterie.memory.record import MemoryRecord


class Pins:
    def __init__(self, store: Store) -> None:
        self._store = store

    def pin(self, room: str, owner: str, ids: Sequence[str], turn: str | None) -> list[Draft]:
        """The drafts that pin these memories of one owner in a room."""
        pinned = self._pinned(room, owner)
        drafts: list[Draft] = []
        fresh = [memory_id for memory_id in ids if memory_id not in pinned][:MOST_PINS]
        # The automatic pins of this room go first: a regenerate here can bring those back.
        weak = sorted(
            (record for record in pinned.values() if record.auto_pinned),
            key=lambda record: (record.room != room, record.significance, record.made, record.id),
        )
        free = MOST_PINS - len(pinned)
        for memory_id in fresh:
            if free > 0:
                free -= 1
            elif weak:
                weakest = weak.pop(0)
                out = MemoryPinChanged(id=weakest.id, pinned=False)
                drafts.append(Draft(weakest.room, out, "story", turn=turn))
            else:
                break
            pin = MemoryPinChanged(id=memory_id, pinned=True, auto=True)
            drafts.append(Draft(room, pin, "story", turn=turn))
        return drafts

    def _pinned(self, room: str, owner: str) -> dict[str, MemoryRecord]:
        """Another line of the same chat has pins of its own; where a memory is in this room too, that one is meant."""
        lines = Lines(dict(self._store.query("SELECT stream, root FROM line")))
        pinned = all_records(self._store, "owner = ? AND pin > 0", (owner,))
        found: dict[str, MemoryRecord] = {}
        for record in sorted(pinned, key=lambda record: record.room != room):
            if not lines.hidden(record.room, room):
                found.setdefault(record.id, record)
        return found
