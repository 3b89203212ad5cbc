"""What a person does in the drawer: corrects a field, pins a memory, has one forgotten. S21

All but forgetting stands in the chat's own stream and is rewound with it. What a person wants forgotten stays so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from coterie.modes.story.editing import EditPlanner, FieldEdit
from coterie.modes.story.past import Rewind
from coterie.modes.story.pins import Pins
from coterie.modes.story.room import Decision


class Edits(Rewind):
    async def edit(self, room: str, edits: Sequence[FieldEdit]) -> bool:
        """All of these corrections, or none of them. False if everything was so already."""

        async def decide() -> Decision:
            return EditPlanner(self._store).plan(self.chats.chat(room), edits), ()

        return bool(await self.decide_and_append(room, decide))

    async def pin(self, room: str, memory_id: str, pinned: bool) -> bool:
        """S14: at most eight, and the weakest automatic pin makes room. False if it was so already.

        A memory that came along with a character stands in no chat, so any stream will do.
        """

        async def decide() -> Decision:
            memory = EditPlanner(self._store).memory(room, memory_id)
            return Pins(self._store).set_by_hand(memory, pinned), ()

        return bool(await self.decide_and_append(room, decide))

    async def forget(self, room: str, memory_id: str) -> None:
        """A tombstone: neither this memory nor one that says the same comes back, in any line of the chat."""
        memory = EditPlanner(self._store).memory(room, memory_id)
        await asyncio.to_thread(self._memory.forget, memory.id)
