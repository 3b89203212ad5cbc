"""A fair queue for the slots of a shared model.

Lower priority numbers go first. Within one priority, owners take turns, so that a room with many jobs does not block
another. A request that has waited longer than `max_wait_s` gets the priority of a person. If there are several slots,
the last free one is reserved for a person, so that a person never has to wait for background work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from coterie.base.clock import Clock
from coterie.llm.messages import Priority


@dataclass(eq=False)
class _Waiting:
    priority: Priority
    owner: str
    since: float
    number: int
    turn: asyncio.Future[None]


class FairQueue:
    """Admits requests to a fixed number of slots; see the module docstring for the order."""

    def __init__(self, slots: int, clock: Clock, max_wait_s: float = 30.0) -> None:
        self._slots = slots
        self._clock = clock
        self._max_wait_s = max_wait_s
        self._in_use = 0
        self._waiting: list[_Waiting] = []
        self._sequence = 0
        self._last_turn: dict[str, int] = {}

    @property
    def idle(self) -> bool:
        return not self._in_use and not self._waiting

    @asynccontextmanager
    async def slot(self, priority: Priority, owner: str) -> AsyncIterator[None]:
        self._sequence += 1
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(priority, owner, self._clock.monotonic(), self._sequence, turn)
        self._waiting.append(waiting)
        self._start_next()
        try:
            await turn
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif not turn.cancelled():
                self._release()  # cancelled just after it was admitted: free the slot
            raise
        try:
            yield
        finally:
            self._release()

    def _release(self) -> None:
        self._in_use -= 1
        self._start_next()

    def _start_next(self) -> None:
        while (free := self._slots - self._in_use) > 0 and self._waiting:
            first = min(self._waiting, key=self._sort_key)
            if self._slots > 1 and free == 1 and self._effective_priority(first) > Priority.PERSON:
                return
            self._waiting.remove(first)
            if first.turn.done():
                continue  # cancelled, but its task has not run yet to remove itself
            self._in_use += 1
            self._last_turn[first.owner] = self._sequence = self._sequence + 1
            if len(self._last_turn) > 10_000:
                self._last_turn.clear()
            first.turn.set_result(None)

    def _effective_priority(self, waiting: _Waiting) -> int:
        overdue = self._clock.monotonic() - waiting.since >= self._max_wait_s
        return Priority.PERSON if overdue else waiting.priority

    def _sort_key(self, waiting: _Waiting) -> tuple[int, int, int]:
        return self._effective_priority(waiting), self._last_turn.get(waiting.owner, 0), waiting.number
