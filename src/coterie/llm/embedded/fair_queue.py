"""Who may use the shared model next.

The lower priority number goes first; within one priority owners take turns, so a room with a hundred jobs does not
keep another waiting; whoever has waited longer than `patience_s` is treated like a person. Where there are several
places, the last free one is kept for a person: background work never makes somebody wait for all of it to end.
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
                self._release()  # cancelled in the same moment as the turn came: hand the place on
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
                continue  # cancelled a moment ago, and not yet awake to leave the line itself
            self._in_use += 1
            self._last_turn[first.owner] = self._sequence = self._sequence + 1
            if len(self._last_turn) > 10_000:
                self._last_turn.clear()
            first.turn.set_result(None)

    def _effective_priority(self, waiting: _Waiting) -> int:
        patient = self._clock.monotonic() - waiting.since < self._max_wait_s
        return waiting.priority if patient else Priority.PERSON

    def _sort_key(self, waiting: _Waiting) -> tuple[int, int, int]:
        return self._effective_priority(waiting), self._last_turn.get(waiting.owner, 0), waiting.number
