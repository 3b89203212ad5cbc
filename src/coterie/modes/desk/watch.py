"""Looks after what nobody works on any more: a branch or a worker whose job was given up ends, visibly. D2, D15

Without it they would stand in the status block as running for ever, and a schedule would never be due again. It acts
when a job dies and at the start, and costs nothing in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coterie.kernel import NewEvent, Store, WhenSlow
from coterie.modes.desk.errand import BRANCH_JOB, WORKER_JOB, wake_job
from coterie.modes.desk.events import BranchEnded, WorkerEnded
from coterie.modes.desk.officebook import DeskQueries, Process
from coterie.modes.desk.processes import end_key

_TOLD = "It was started as often as it may be, and never came to an end."


class StalledProcesses:
    def __init__(self, store: Store, book: DeskQueries, mend_schedules: Callable[[], Awaitable[int]]) -> None:
        self._store = store
        self._book = book
        self._mend_schedules = mend_schedules

    async def run(self, stop: asyncio.Event) -> None:
        async with self._store.bus.subscribe(
            "event.instance.job_died", limit=1, when_slow=WhenSlow.DROP_OLDEST
        ) as news:
            await self.end_stalled()
            stopping = asyncio.create_task(stop.wait())
            while not stop.is_set():
                died = asyncio.ensure_future(anext(news))
                await asyncio.wait({died, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if died.done():
                    await self.end_stalled()
                died.cancel()

    async def end_stalled(self) -> int:
        """End what nobody works on; how many those were."""
        lost = [
            process
            for process in self._book.active_processes()
            if process.state == "running" and not self._at_work(process)
        ]
        for process in lost:
            draft = NewEvent(process.room, _given_up(process), key=end_key(process))
            await self._store.append([draft], jobs=[wake_job(process.room, process.id, "end")])
        return len(lost) + await self._mend_schedules()

    def _at_work(self, process: Process) -> bool:
        kind = BRANCH_JOB if process.kind == "branch" else WORKER_JOB
        return bool(self._store.reader.jobs.pending(kind, {"room": process.room, process.kind: process.id}))


def _given_up(process: Process) -> BranchEnded | WorkerEnded:
    if process.kind == "branch":
        return BranchEnded(branch=process.id, state="failed", conclusion=_TOLD)
    return WorkerEnded(worker=process.id, state="failed", result=_TOLD)
