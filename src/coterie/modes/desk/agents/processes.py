"""Branches and workers from outside: giving them follow-ups and answers, ending them. D2"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import TypeVar

from coterie.base.ids import new_id
from coterie.eventstore import NewEvent, NewJob, Store
from coterie.llm.router import Models
from coterie.memory import Memory
from coterie.memory.writer import NewMemory
from coterie.modes.desk.errors import NoSuchProcess, NotConfirmed
from coterie.modes.desk.events import BranchEnded, WorkerEnded, WorkerResumed
from coterie.modes.desk.jobs import worker_job
from coterie.modes.desk.prompts import PromptBuilder
from coterie.modes.desk.queries import Audience, DeskChat, DeskQueries, Process, ScheduleQueries
from coterie.modes.desk.skills import Skills
from coterie.modes.desk.text_safety import LeakGuard

T = TypeVar("T")


class Processes:
    def __init__(self, store: Store, queries: DeskQueries, memory: Memory, audience: Audience) -> None:
        self._store = store
        self._audience = audience
        self._queries = queries
        self._memory = memory
        self._at_it: dict[tuple[str, str], asyncio.Task[object]] = {}

    async def send_follow_up(self, room: str, worker: str, text: str, *, actor: str = "system") -> None:
        """A follow-up for a worker that waits."""
        event, job = self.plan_follow_up(room, worker, text, mark=new_id(), actor=actor)
        await self._store.append([event], jobs=[job])

    def plan_follow_up(self, room: str, worker: str, text: str, *, mark: str, actor: str) -> tuple[NewEvent, NewJob]:
        """What is to be recorded for it, with whatever else belongs to it."""
        waiting = self._waiting(room, worker)
        if waiting.pending_message is not None and waiting.pending_message.calls:
            raise NotConfirmed(f"{worker} waits for a person's yes or no.", "Ask the person to allow or refuse it.")
        resumed = WorkerResumed(worker=worker, text=text)
        return NewEvent(room, resumed, actor), worker_job(room, worker, f"resumed:{mark}")

    async def confirm(self, room: str, worker: str, *, allowed: bool, actor: str) -> None:
        """A person's yes or no to a tool that sends or spends. D20"""
        waiting = self._waiting(room, worker)
        if waiting.pending_message is None or not waiting.pending_message.calls:
            raise NoSuchProcess(f"{worker} did not ask for a yes.", "Give it a follow-up instead.")
        event = NewEvent(room, WorkerResumed(worker=worker, text="", allowed=allowed), actor)
        await self._store.append([event], jobs=[worker_job(room, worker, f"resumed:{new_id()}")])

    async def cancel(self, room: str, name: str, *, actor: str = "system") -> bool:
        """End it in whatever state it is; False if it had ended already."""
        process = self._queries.process(room, name)
        if not process.active:
            return False
        ended = cancelled(process)
        await self._store.append([NewEvent(room, ended, actor, key=end_key(process))])
        if task := self._at_it.get((room, name)):
            task.cancel()
        return True

    def interrupt_all(self) -> None:
        """Coterie stops: what is under way is broken off, and taken up again by whoever comes next."""
        for task in list(self._at_it.values()):
            task.cancel()

    async def run_cancellable(self, process: Process, work: Awaitable[T]) -> T | None:
        """Do some of its work, unless it is cancelled meanwhile; then None."""
        task = asyncio.ensure_future(work)
        place = (process.room, process.id)
        self._at_it[place] = task
        try:
            return await task
        except asyncio.CancelledError:
            if task.cancelled() and not self._queries.process(*place).active:
                return None
            task.cancel()
            raise
        finally:
            self._at_it.pop(place, None)

    def memory_events(self, chat: DeskChat, wanted: NewMemory) -> list[NewEvent]:
        """Whoever is there now witnessed it: before others it is not told elsewhere either. M2"""
        wanted = replace(wanted, witnesses=self._audience.witnesses(chat))
        return [event for plan in self._memory.writer.plan([wanted], by_meaning=True) for event in plan.new_events]

    def _waiting(self, room: str, worker: str) -> Process:
        process = self._queries.process(room, worker)
        if process.state != "waiting":
            raise NoSuchProcess(f"{worker} does not wait for anything: it is {process.state}.", "Look at its status.")
        return process


def cancelled(process: Process) -> BranchEnded | WorkerEnded:
    told = "It was cancelled."
    if process.kind == "branch":
        return BranchEnded(branch=process.id, state="cancelled", conclusion=told)
    return WorkerEnded(worker=process.id, state="cancelled", result=told)


def end_key(process: Process) -> str:
    """Of all ends of one process, only the first is recorded."""
    return f"desk_end:{process.room}:{process.id}"


# A person's yes or no to what a worker wants to do, said in the conversation on whatever surface they are. D20
#
# Only the words themselves count, from the person whose conversation it is: nothing a character, a file or anybody else
# writes is looked at here.


_DECISION = re.compile(r"\s*(yes|no)(?:\s+(w\w+))?\s*[.!]?\s*", re.IGNORECASE)


def how_to_answer(worker: str) -> str:
    return f"Answer “yes” or “no”. (If more waits for you: “yes {worker}”.)"


class Confirmations:
    def __init__(self, queries: DeskQueries, processes: Processes) -> None:
        self._queries = queries
        self._processes = processes

    async def handle_answer(self, chat: DeskChat, text: str, person: str) -> str:
        """What became of it; empty where it is no decision. Without a name it is one only if one worker asks."""
        said = _DECISION.fullmatch(text)
        if said is None or person != chat.person:
            return ""
        asking = {
            process.id: process.task
            for process in self._queries.status_processes(chat.room)
            if process.needs_confirmation
        }
        if said[2] is None and len(asking) > 1:
            return "\n".join(["Which one?", *(f"“{said[1].lower()} {name}”: {task}" for name, task in asking.items())])
        worker = (said[2] or next(iter(asking), "")).lower()
        if worker not in asking:
            return ""
        allowed = said[1].lower() == "yes"
        await self._processes.confirm(chat.room, worker, allowed=allowed, actor=person)
        return f"“{asking[worker]}” goes on, {'as you allowed' if allowed else 'without it'}."


# What every process at the desk has at hand: where to read, what to tell its model, whom to ask, what to keep in.


@dataclass(frozen=True)
class AgentDeps:
    queries: DeskQueries
    prompts: PromptBuilder
    processes: Processes
    models: Models
    guard: LeakGuard
    schedules: ScheduleQueries
    skills: Skills
