"""What a worker has in its hands: commands in the sandbox and the files of the workspace."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from coterie.modes.desk.errors import WorkspaceFileError
from coterie.modes.desk.files import WorkspaceFiles
from coterie.modes.desk.sandbox import DEFAULT_TIMEOUT_S, LONGEST_TIMEOUT_S, OUTPUT_BYTES, CommandResult, Sandbox
from coterie.modes.desk.skills import Skills
from coterie.modes.desk.tools import AgentTool, make_tool

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
