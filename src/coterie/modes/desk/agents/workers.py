"""Workers: each does one task with tools, one model turn per job.

A job stores what the turn did and enqueues the next, so a restart continues after the last stored turn. A tool that
sends or spends makes the worker wait for a confirmation.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from coterie.base.redaction import redact
from coterie.base.values import Int64
from coterie.eventstore import Job, JobResult, NewEvent
from coterie.llm import Caller, ModelError, Prompt, PromptMessage, Role
from coterie.modes.desk.agents.processes import AgentDeps, answer_hint, end_key
from coterie.modes.desk.agents.tools import AgentTool, Toolbox, make_tool
from coterie.modes.desk.errors import WorkspaceFileError
from coterie.modes.desk.events import WorkerEnd, WorkerEnded, WorkerStepped, WorkerWaiting
from coterie.modes.desk.jobs import WAKE_PREFIX, ChannelOutcome, wake_job, worker_job
from coterie.modes.desk.queries import DeskChat, Process
from coterie.modes.desk.sandbox.files import WorkspaceFiles
from coterie.modes.desk.sandbox.sandbox import (
    DEFAULT_TIMEOUT_S,
    MAX_TIMEOUT_S,
    OUTPUT_BYTES,
    CommandResult,
    Sandbox,
)
from coterie.modes.desk.skills import Skills

MAX_TURNS = 50
HUNG_AFTER_S = 300.0

Tools = Callable[[DeskChat], Sequence[AgentTool]]
"""Returns the tools of a conversation's workers."""


@dataclass
class _Turn:
    """The result of one model turn."""

    messages: list[PromptMessage]
    status: str = ""
    result: str | None = None


class Workers:
    """Runs turns of workers as jobs."""

    def __init__(self, deps: AgentDeps, tools: Tools, *, hung_after_s: float = HUNG_AFTER_S) -> None:
        self._deps = deps
        self._tools = tools
        self._hung_after_s = hung_after_s

    async def run_turn(self, job: Job) -> JobResult | None:
        worker = self._deps.queries.process(str(job.payload["room"]), str(job.payload["worker"]))
        if worker.state != "running":
            return None
        if worker.steps >= MAX_TURNS:
            return _end(worker, "failed", f"It used up its {MAX_TURNS} turns. So far: {worker.status or 'no status'}")
        try:
            async with asyncio.timeout(self._hung_after_s):
                result = await self._deps.processes.run_cancellable(worker, self._run_model_turn(worker, job.id))
        except TimeoutError:
            return _end(worker, "failed", f"It hung: no result within {self._hung_after_s:.0f} s.")
        except ModelError as error:
            return _end(worker, "failed", str(error))
        if result is None or self._deps.queries.process(worker.room, worker.id).state != "running":
            return None
        return result

    async def _run_model_turn(self, worker: Process, job: int) -> JobResult:
        turn = _Turn([])
        chat = self._deps.queries.chat(worker.room)
        character = chat.character
        box = Toolbox([*self._tools(chat), *_progress_tools(turn)], self._deps.guard)
        if worker.pending_message is not None and worker.allowed is not None:
            message, confirmed = worker.pending_message, worker.allowed
        else:
            prompt = Prompt(messages=tuple(self._deps.prompts.worker(worker, character)), tools=box.schemas)
            answer = await self._deps.models.ask(
                Role.WORKER, prompt, caller=Caller(worker.room, character), task=worker.task_type
            )
            text = self._deps.guard.redact(answer.text)
            message, confirmed = PromptMessage(role="assistant", text=text, calls=answer.calls), False
            # Calls with a secret are refused anyway, so they are neither asked about nor stored.
            without_secrets = self._without_secrets(message).calls == message.calls
            if without_secrets and any(box.needs_confirmation(call) for call in message.calls):
                return self._ask_person(worker, message, job)
            if not answer.calls:
                result = message.text.strip() or "It is done."
                return _wait(worker, result, message, job) if worker.interactive else _end(worker, "done", result)
        kept = self._without_secrets(message)
        turn.messages.append(kept)
        for call, kept_call in zip(message.calls, kept.calls, strict=True):
            if box.needs_confirmation(call) and worker.allowed is False:
                result = "The person refused this."
            else:
                result = self._deps.guard.redact(await box.use(call, confirmed=confirmed))
            turn.messages.append(PromptMessage(role="tool", text=result, answers=kept_call))
        return _continue(worker, turn)

    def _ask_person(self, worker: Process, message: PromptMessage, job: int) -> JobResult:
        """Ask the person directly, so that the character cannot rephrase the calls."""
        question = _describe_calls(message)
        outcome = ChannelOutcome(self._deps.queries.chat(worker.room), f"{WAKE_PREFIX}{job}")
        outcome.replies.append(f"May I, for “{worker.task}”?\n\n{question}\n\n{answer_hint(worker.id)}")
        result = outcome.job_result()
        waiting = WorkerWaiting(worker=worker.id, question=question, said=message)
        return JobResult([NewEvent(worker.room, waiting, "worker"), *result.new_events], result.jobs)

    def _without_secrets(self, message: PromptMessage) -> PromptMessage:
        """The message for the log: arguments that contain a secret are emptied."""
        if not any(self._deps.guard.has_secret(call.arguments) for call in message.calls):
            return message
        calls = [
            call.model_copy(update={"arguments": "{}"}) if self._deps.guard.has_secret(call.arguments) else call
            for call in message.calls
        ]
        return message.model_copy(update={"calls": tuple(calls)})


def _progress_tools(turn: _Turn) -> list[AgentTool]:
    async def set_status(text: str) -> str:
        """Report in a few words what you are doing."""
        turn.status = redact(text[:200])
        return "Noted."

    async def finish(result: str) -> str:
        """The task is done, and no follow-up is needed: this is the result."""
        turn.result = redact(result)
        return "Done."

    return [make_tool(set_status), make_tool(finish)]


def _describe_calls(message: PromptMessage) -> str:
    return redact("\n".join(f"{call.name}: {_format_arguments(call.arguments)}" for call in message.calls))


def _format_arguments(arguments: str) -> str:
    """Tool arguments as text without JSON syntax, complete and on one line."""
    try:
        values = json.loads(arguments)
    except ValueError:
        return arguments
    if not isinstance(values, dict) or not values:
        return arguments
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    # On one line, so that a value cannot imitate another part of the question.
    return ", ".join(f"{name} “{' ⏎ '.join(value.splitlines())}”" for name, value in texts.items())


def _continue(worker: Process, turn: _Turn) -> JobResult:
    stepped = WorkerStepped(worker=worker.id, messages=tuple(turn.messages), status=turn.status)
    new_event = NewEvent(worker.room, stepped, "worker")
    if turn.result is not None:
        end = _end(worker, "done", turn.result)
        return JobResult([new_event, *end.new_events], end.jobs)
    return JobResult([new_event], [worker_job(worker.room, worker.id, worker.steps + 1)])


def _wait(worker: Process, question: str, message: PromptMessage, job: int) -> JobResult:
    waiting = WorkerWaiting(worker=worker.id, question=question, said=message)
    return JobResult([NewEvent(worker.room, waiting, "worker")], [wake_job(worker.room, worker.id, f"asks{job}")])


def _end(worker: Process, state: WorkerEnd, result: str) -> JobResult:
    ended = WorkerEnded(worker=worker.id, state=state, result=redact(result))
    new_event = NewEvent(worker.room, ended, "worker", key=end_key(worker))
    return JobResult([new_event], [wake_job(worker.room, worker.id, "end")])


Timeout = Annotated[float, Field(ge=1, le=MAX_TIMEOUT_S, description="Seconds it may take.")]


def worker_tools(sandbox: Sandbox, files: WorkspaceFiles) -> list[AgentTool]:
    workspace = files.workspace

    async def run(argv: Sequence[str], timeout_s: float) -> str:
        result = await sandbox.run(argv, workspace.folder, shared=workspace.shared, timeout_s=timeout_s)
        return _output_text(result, timeout_s)

    async def shell(command: Annotated[str, Field(min_length=1)], timeout_s: Timeout = DEFAULT_TIMEOUT_S) -> str:
        """Run a shell command in the workspace. It has no network and no other files, but can read /shared."""
        return await run(["/bin/sh", "-c", command], timeout_s)

    async def exec(argv: Annotated[list[str], Field(min_length=1)], timeout_s: Timeout = DEFAULT_TIMEOUT_S) -> str:  # noqa: A001
        """Run a program in the workspace, with each argument as it is. It has no network and no other files, but can
        read /shared."""
        return await run(argv, timeout_s)

    async def file(
        action: Literal["read", "write", "edit", "list", "search"],
        path: Annotated[str, Field(description="Relative to the workspace, or below /shared, to read.")] = ".",
        text: Annotated[str, Field(description="The text to write, to insert or to search for.")] = "",
        old: Annotated[str, Field(description="For edit: the text to replace. It must occur exactly once.")] = "",
        offset: Annotated[Int64, Field(ge=0, description="For read: where to begin, in bytes.")] = 0,
    ) -> str:
        """Read, write, edit, list or search the files of the workspace."""
        return await asyncio.to_thread(_run_file_action, files, action, path, text, old, offset)

    return [
        make_tool(shell, untrusted_result=True),
        make_tool(exec, untrusted_result=True),
        make_tool(file, untrusted_result=True),
    ]


def skill_tools(skills: Skills, character: str, files: WorkspaceFiles) -> list[AgentTool]:
    async def read_skill(name: str, file: str = "SKILL.md") -> str:
        """The instructions of a skill, or another of its files."""
        return await asyncio.to_thread(skills.read, character, name, file)

    async def take_skill(name: str) -> str:
        """Copy the files of a skill into the workspace, for commands to change. They can be run from /shared/skills."""
        return f"Copied to {await asyncio.to_thread(skills.copy_to_workspace, character, name, files)}."

    return [make_tool(read_skill), make_tool(take_skill)]


def _output_text(result: CommandResult, timeout_s: float) -> str:
    notes = []
    if result.stopped:
        notes.append(f"[stopped: {result.stopped}]")
    elif result.timed_out:
        notes.append(f"[killed after {timeout_s:.0f} s]")
    elif result.code:
        notes.append(f"[exit code {result.code}]")
    if result.truncated:
        notes.append(f"[truncated after {OUTPUT_BYTES} bytes]")
    return "\n".join(part for part in (result.output, *notes) if part) or "[no output]"


def _run_file_action(files: WorkspaceFiles, action: str, path: str, text: str, old: str, offset: int) -> str:
    if action == "read":
        return files.read(path, offset=offset)
    if action == "write":
        files.write(path, text)
        return f"{path} is written."
    if action == "edit":
        files.edit(path, old, text)
        return f"{path} is changed."
    if action == "list":
        return "\n".join(f"{entry.name} ({entry.size})" for entry in files.entries(path)) or "It is empty."
    if action == "search":
        matches = files.search(text, path)
        return "\n".join(f"{match.name}:{match.line}: {match.text}" for match in matches) or "Not found."
    raise WorkspaceFileError(f"Unknown action {action}.", "Use read, write, edit, list or search.")
