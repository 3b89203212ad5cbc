"""Control of branches and workers: follow-ups, confirmations and cancellation."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

from pydantic import Field

from coterie.base.ids import new_id
from coterie.eventstore import NewEvent, NewJob, Store
from coterie.llm import Models
from coterie.memory import Memory, NewMemory
from coterie.messaging import Attachment
from coterie.modes.desk.agents.tools import AgentTool
from coterie.modes.desk.errors import NoSuchProcess, NotConfirmed
from coterie.modes.desk.events import BranchEnded, WorkerEnd, WorkerEnded, WorkerResumed
from coterie.modes.desk.jobs import worker_job
from coterie.modes.desk.prompts import DeskPromptBuilder
from coterie.modes.desk.queries import Audience, DeskChat, DeskQueries, Process, ScheduleQueries
from coterie.modes.desk.skills import Skills
from coterie.modes.desk.text_safety import LeakGuard

T = TypeVar("T")


class Processes:
    """Commands on branches and workers."""

    def __init__(self, store: Store, queries: DeskQueries, memory: Memory, audience: Audience) -> None:
        self._store = store
        self._audience = audience
        self._queries = queries
        self._memory = memory
        self._running: dict[tuple[str, str], asyncio.Task[object]] = {}

    async def send_follow_up(self, room: str, worker: str, text: str, *, actor: str = "system") -> None:
        """Give a waiting worker a follow-up."""
        resumed, job = self.plan_follow_up(room, worker, text, key_suffix=new_id(), actor=actor)
        await self._store.append([resumed], jobs=[job])

    def plan_follow_up(
        self, room: str, worker: str, text: str, *, key_suffix: str, actor: str
    ) -> tuple[NewEvent, NewJob]:
        """The event and the job of a follow-up, to be stored with other events."""
        waiting = self._waiting_worker(room, worker)
        if waiting.pending_message is not None and waiting.pending_message.calls:
            raise NotConfirmed(f"{worker} waits for a person's yes or no.", "Ask the person to allow or refuse it.")
        resumed = WorkerResumed(worker=worker, text=text)
        return NewEvent(room, resumed, actor), worker_job(room, worker, f"resumed:{key_suffix}")

    async def confirm(self, room: str, worker: str, *, allowed: bool, actor: str) -> None:
        """Allow or refuse the tool calls that a worker waits for."""
        waiting = self._waiting_worker(room, worker)
        if waiting.pending_message is None or not waiting.pending_message.calls:
            raise NoSuchProcess(f"{worker} does not wait for a confirmation.", "Give it a follow-up instead.")
        resumed = NewEvent(room, WorkerResumed(worker=worker, text="", allowed=allowed), actor)
        await self._store.append([resumed], jobs=[worker_job(room, worker, f"resumed:{new_id()}")])

    async def cancel(self, room: str, name: str, *, actor: str = "system") -> bool:
        """End a process in any state; False if it had ended already."""
        process = self._queries.process(room, name)
        if not process.active:
            return False
        ended = end_event(process, "cancelled", "It was cancelled.")
        await self._store.append([NewEvent(room, ended, actor, key=end_key(process))])
        if task := self._running.get((room, name)):
            task.cancel()
        return True

    def interrupt_all(self) -> None:
        """Cancel running tasks at shutdown; their jobs are retried after the next start."""
        for task in list(self._running.values()):
            task.cancel()

    async def run_cancellable(self, process: Process, work: Awaitable[T]) -> T | None:
        """Run part of a process; None if the process is cancelled meanwhile."""
        task = asyncio.ensure_future(work)
        key = (process.room, process.id)
        self._running[key] = task
        try:
            return await task
        except asyncio.CancelledError:
            if task.cancelled() and not self._queries.process(*key).active:
                return None
            task.cancel()
            raise
        finally:
            self._running.pop(key, None)

    def memory_events(self, chat: DeskChat, memory: NewMemory) -> list[NewEvent]:
        """Events that store a memory with the current audience as its witnesses."""
        memory = replace(memory, witnesses=self._audience.witnesses(chat))
        return [event for plan in self._memory.writer.plan([memory], by_meaning=True) for event in plan.new_events]

    def _waiting_worker(self, room: str, worker: str) -> Process:
        process = self._queries.process(room, worker)
        if process.state != "waiting":
            raise NoSuchProcess(f"{worker} is not waiting: it is {process.state}.", "Check its status.")
        return process


def end_event(process: Process, state: WorkerEnd, text: str) -> BranchEnded | WorkerEnded:
    """The event that ends a branch or a worker from outside."""
    if process.kind == "branch":
        return BranchEnded(branch=process.id, state=state, conclusion=text)
    return WorkerEnded(worker=process.id, state=state, result=text)


def end_key(process: Process) -> str:
    """The key that all ends of a process share, so that only the first is stored."""
    return f"desk_end:{process.room}:{process.id}"


_ANSWER = re.compile(r"\s*(yes|no)(?:\s+(w\w+))?\s*[.!]?\s*", re.IGNORECASE)


def answer_hint(worker: str) -> str:
    return f"Answer “yes” or “no”. (If several wait for you: “yes {worker}”.)"


class Confirmations:
    """Recognises a person's yes or no to a worker in the conversation, on any surface.

    Only messages of the person of the conversation count, never text of a character, a file or anyone else.
    """

    def __init__(self, queries: DeskQueries, processes: Processes) -> None:
        self._queries = queries
        self._processes = processes

    async def handle_answer(self, chat: DeskChat, text: str, person: str) -> str:
        """The reply to a yes or no; empty for any other text. The worker's id is optional if only one asks."""
        answer = _ANSWER.fullmatch(text)
        if answer is None or person != chat.person:
            return ""
        asking = {
            process.id: process.task
            for process in self._queries.status_processes(chat.room)
            if process.needs_confirmation
        }
        if answer[2] is None and len(asking) > 1:
            return "\n".join(
                ["Which one?", *(f"“{answer[1].lower()} {name}”: {task}" for name, task in asking.items())]
            )
        worker = (answer[2] or next(iter(asking), "")).lower()
        if worker not in asking:
            return ""
        allowed = answer[1].lower() == "yes"
        await self._processes.confirm(chat.room, worker, allowed=allowed, actor=person)
        return f"“{asking[worker]}” continues, {'as you allowed' if allowed else 'without it'}."


TaskType = Annotated[str, Field(max_length=40, description="The type of the task, if one of the listed types fits.")]


@dataclass(frozen=True)
class AgentDeps:
    """Dependencies that every agent of the desk shares."""

    queries: DeskQueries
    prompts: DeskPromptBuilder
    processes: Processes
    models: Models
    guard: LeakGuard
    schedules: ScheduleQueries
    skills: Skills
    file_to_send: Callable[[str, str, int], tuple[Attachment, bytes]]
    """A file of a conversation's workspace by its path there, and its first bytes."""

    def known_task_type(self, name: str) -> str:
        """The type if a model is set for it; otherwise empty, so that the role's own model is used."""
        return name if name in self.models.settings.tasks else ""

    def with_task_types(self, tool: AgentTool) -> AgentTool:
        """The tool with the types of tasks that have a model of their own in its description."""
        types = ", ".join(sorted(self.models.settings.tasks))
        return replace(tool, description=f"{tool.description} Types: {types}.") if types else tool
