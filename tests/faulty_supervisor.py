"""A supervisor whose tasks fail on request."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

from coterie.base.clock import ManualClock
from coterie.base.supervisor import SupervisedTask, Supervisor

SECRET = "a password that nobody may see"


class FaultySupervisor(Supervisor):
    """A supervisor whose tasks fail on request. Its clock stands still, so that no failure is forgotten meanwhile."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        super().__init__(self.clock, min_delay_s=0.01)
        self.runs: Counter[str] = Counter()
        self.places: set[tuple[str, int]] = set()
        """The file and the line of each call of `start`."""
        self._faults: dict[str, asyncio.Future[None]] = {}

    def start(self, name: str, run: Callable[[], Awaitable[None]]) -> SupervisedTask:
        caller = sys._getframe(1)
        self.places.add((caller.f_code.co_filename, caller.f_lineno))

        async def run_until_fault() -> None:
            self.runs[name] += 1
            fault = self._faults[name] = asyncio.get_running_loop().create_future()
            working = asyncio.ensure_future(run())
            try:
                await asyncio.wait({working, fault}, return_when=asyncio.FIRST_COMPLETED)
                await (fault if fault.done() else working)
            finally:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

        return super().start(name, run_until_fault)

    def kill(self, name: str) -> None:
        self._faults[name].set_exception(ZeroDivisionError(f"arbitrary failure, {SECRET}"))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)
