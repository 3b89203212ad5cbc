"""A worker: one task, done with tools, a turn of its model at a time. D2

Each turn is a job that records what was said and done and asks for the next, so a restart goes on where the last turn
ended. A tool that sends or spends makes it wait for a person's yes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from coterie.base.redaction import redact
from coterie.eventstore import Job, NewEvent
from coterie.eventstore.worker import JobResult
from coterie.llm.errors import ModelError
from coterie.llm.messages import Prompt, PromptMessage
from coterie.llm.router import Caller
from coterie.llm.settings import Role
from coterie.modes.desk.agents.processes import AgentDeps, end_key, how_to_answer
from coterie.modes.desk.agents.tools import AgentTool, Toolbox, make_tool
from coterie.modes.desk.errors import WorkspaceFileError
from coterie.modes.desk.events import WorkerEnd, WorkerEnded, WorkerStepped, WorkerWaiting
from coterie.modes.desk.jobs import WAKE_PREFIX, ChannelOutcome, wake_job, worker_job
from coterie.modes.desk.queries import Process
from coterie.modes.desk.sandbox.files import WorkspaceFiles
from coterie.modes.desk.sandbox.sandbox import (
    DEFAULT_TIMEOUT_S,
    LONGEST_TIMEOUT_S,
    OUTPUT_BYTES,
    CommandResult,
    Sandbox,
)
from coterie.modes.desk.skills import Skills

MOST_TURNS = 50
HUNG_AFTER_S = 300.0

Tools = Callable[[str], Sequence[AgentTool]]
"""The tools for the workspace of a character."""


@dataclass
class _Turn:
    """What one turn came to."""

    messages: list[PromptMessage]
    status: str = ""
    result: str | None = None


class Workers:
    def __init__(self, deps: AgentDeps, tools: Tools, *, hung_after_s: float = HUNG_AFTER_S) -> None:
        self._deps = deps
        self._tools = tools
        self._hung_after_s = hung_after_s

    async def run_turn(self, job: Job) -> JobResult | None:
        worker = self._deps.queries.process(str(job.payload["room"]), str(job.payload["worker"]))
        if worker.state != "running":
            return None
        if worker.steps >= MOST_TURNS:
            return _end(worker, "failed", f"It used up its {MOST_TURNS} turns. So far: {worker.status or 'no status'}")
        try:
            async with asyncio.timeout(self._hung_after_s):
                turned = await self._deps.processes.run_cancellable(worker, self._turn(worker, job.id))
        except TimeoutError:
            return _end(worker, "failed", f"It hung: nothing was heard of it for {self._hung_after_s:.0f} s.")
        except ModelError as error:
            return _end(worker, "failed", str(error))
        if turned is None or self._deps.queries.process(worker.room, worker.id).state != "running":
            return None
        return turned

    async def _turn(self, worker: Process, job: int) -> JobResult:
        turn = _Turn([])
        character = self._deps.queries.chat(worker.room).character
        box = Toolbox([*self._tools(character), *_own_tools(turn)], self._deps.guard)
        if worker.pending_message is not None and worker.allowed is not None:
            said, confirmed = worker.pending_message, worker.allowed
        else:
            prompt = Prompt(messages=tuple(self._deps.prompts.worker(worker, character)), tools=box.schemas)
            answer = await self._deps.models.ask(Role.WORKER, prompt, caller=Caller(worker.room, character))
            text = self._deps.guard.redact(answer.text)
            said, confirmed = PromptMessage(role="assistant", text=text, calls=answer.calls), False
            # One with a secret in it goes nowhere, so nobody is asked about it, and it is not kept until they answer.
            if said.calls == self._to_keep(said).calls and any(box.needs_confirmation(call) for call in said.calls):
                return self._ask(worker, said, job)
            if not answer.calls:
                told = said.text.strip() or "It is done."
                return _wait(worker, told, said, job) if worker.interactive else _end(worker, "done", told)
        kept = self._to_keep(said)
        turn.messages.append(kept)
        for call, shown in zip(said.calls, kept.calls, strict=True):
            if box.needs_confirmation(call) and worker.allowed is False:
                told = "The person said no."
            else:
                told = self._deps.guard.redact(await box.use(call, confirmed=confirmed))
            turn.messages.append(PromptMessage(role="tool", text=told, answers=shown))
        return _next(worker, turn)

    def _ask(self, worker: Process, said: PromptMessage, job: int) -> JobResult:
        """The person is told to the letter what it wants to do: the character might put it more kindly. D20"""
        question = _question(said)
        outcome = ChannelOutcome(self._deps.queries.chat(worker.room), f"{WAKE_PREFIX}{job}")
        outcome.replies.append(f"May I, for “{worker.task}”?\n\n{question}\n\n{how_to_answer(worker.id)}")
        told = outcome.job_result()
        waiting = WorkerWaiting(worker=worker.id, question=question, said=said)
        return JobResult([NewEvent(worker.room, waiting, "worker"), *told.new_events], told.jobs)

    def _to_keep(self, said: PromptMessage) -> PromptMessage:
        """As the log may hold it: arguments with a secret in them went nowhere, and are not written down either."""
        if not any(self._deps.guard.has_secret(call.arguments) for call in said.calls):
            return said
        calls = [
            call.model_copy(update={"arguments": "{}"}) if self._deps.guard.has_secret(call.arguments) else call
            for call in said.calls
        ]
        return said.model_copy(update={"calls": tuple(calls)})


def _own_tools(turn: _Turn) -> list[AgentTool]:
    async def set_status(text: str) -> str:
        """Say in a few words what you are at."""
        turn.status = redact(text[:200])
        return "Noted."

    async def finish(result: str) -> str:
        """The task is done, and no follow-up is needed: this is the result."""
        turn.result = redact(result)
        return "Done."

    return [make_tool(set_status), make_tool(finish)]


def _question(said: PromptMessage) -> str:
    return redact("\n".join(f"{call.name}: {_readable(call.arguments)}" for call in said.calls))


def _readable(arguments: str) -> str:
    """To the letter, without the marks of a format that only programs need."""
    try:
        told = json.loads(arguments)
    except ValueError:
        return arguments
    if not isinstance(told, dict) or not told:
        return arguments
    said = {name: value if isinstance(value, str) else json.dumps(value) for name, value in told.items()}
    # On one line: what it would send cannot pretend to be a part of the question.
    return ", ".join(f"{name} “{' ⏎ '.join(value.splitlines())}”" for name, value in said.items())


def _next(worker: Process, turn: _Turn) -> JobResult:
    stepped = WorkerStepped(worker=worker.id, messages=tuple(turn.messages), status=turn.status)
    event = NewEvent(worker.room, stepped, "worker")
    if turn.result is not None:
        end = _end(worker, "done", turn.result)
        return JobResult([event, *end.new_events], end.jobs)
    return JobResult([event], [worker_job(worker.room, worker.id, worker.steps + 1)])


def _wait(worker: Process, question: str, said: PromptMessage, job: int) -> JobResult:
    waiting = WorkerWaiting(worker=worker.id, question=question, said=said)
    return JobResult([NewEvent(worker.room, waiting, "worker")], [wake_job(worker.room, worker.id, f"asks{job}")])


def _end(worker: Process, state: WorkerEnd, result: str) -> JobResult:
    ended = WorkerEnded(worker=worker.id, state=state, result=redact(result))
    event = NewEvent(worker.room, ended, "worker", key=end_key(worker))
    return JobResult([event], [wake_job(worker.room, worker.id, "end")])


# What a worker has in its hands: commands in the sandbox and the files of the workspace.


Timeout = Annotated[float, Field(ge=1, le=LONGEST_TIMEOUT_S, description="Seconds it may take.")]


def worker_tools(sandbox: Sandbox, workspace: Path) -> list[AgentTool]:
    files = WorkspaceFiles(workspace)

    async def shell(command: Annotated[str, Field(min_length=1)], timeout_s: Timeout = DEFAULT_TIMEOUT_S) -> str:
        """Run a shell command in the workspace. It has no network and sees nothing else."""
        return _told(await sandbox.run(["/bin/sh", "-c", command], workspace, timeout_s=timeout_s), timeout_s)

    async def exec(argv: Annotated[list[str], Field(min_length=1)], timeout_s: Timeout = DEFAULT_TIMEOUT_S) -> str:  # noqa: A001
        """Run a program in the workspace, with each argument as it is. It has no network and sees nothing else."""
        return _told(await sandbox.run(argv, workspace, timeout_s=timeout_s), timeout_s)

    async def file(
        action: Literal["read", "write", "edit", "list", "search"],
        path: Annotated[str, Field(description="Relative to the workspace.")] = ".",
        text: Annotated[str, Field(description="What to write, what to put in, or what to search for.")] = "",
        old: Annotated[str, Field(description="For edit: what is replaced. It must stand there exactly once.")] = "",
        offset: Annotated[int, Field(ge=0, description="For read: where to begin, in bytes.")] = 0,
    ) -> str:
        """Read, write, edit, list or search the files of the workspace."""
        return await asyncio.to_thread(_file, files, action, path, text, old, offset)

    return [
        make_tool(shell, untrusted_result=True),
        make_tool(exec, untrusted_result=True),
        make_tool(file, untrusted_result=True),
    ]


def skill_tools(skills: Skills, character: str, workspace: Path) -> list[AgentTool]:
    async def read_skill(name: str, file: str = "SKILL.md") -> str:
        """The instructions of a skill, or another of its files."""
        return await asyncio.to_thread(skills.read, character, name, file)

    async def take_skill(name: str) -> str:
        """Put a copy of a skill's files into the workspace, for commands to use."""
        return f"It is in {await asyncio.to_thread(skills.copy_to_workspace, character, name, workspace)}."

    return [make_tool(read_skill), make_tool(take_skill)]


def _told(ran: CommandResult, timeout_s: float) -> str:
    notes = []
    if ran.timed_out:
        notes.append(f"[ended after {timeout_s:.0f} s]")
    elif ran.code:
        notes.append(f"[exit code {ran.code}]")
    if ran.truncated:
        notes.append(f"[cut after {OUTPUT_BYTES} bytes]")
    return "\n".join(part for part in (ran.output, *notes) if part) or "[no output]"


def _file(files: WorkspaceFiles, action: str, path: str, text: str, old: str, offset: int) -> str:
    if action == "read":
        return files.read(path, offset=offset)
    if action == "write":
        files.write(path, text)
        return f"{path} is written."
    if action == "edit":
        files.edit(path, old, text)
        return f"{path} is changed."
    if action == "list":
        return "\n".join(f"{each.name} ({each.size})" for each in files.entries(path)) or "It is empty."
    if action == "search":
        return "\n".join(f"{each.name}:{each.line}: {each.text}" for each in files.search(text, path)) or "Not found."
    raise WorkspaceFileError(f"{action} cannot be done with a file.", "Read, write, edit, list or search.")
