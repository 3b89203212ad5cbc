"""Settings of the desk."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from coterie.base.config import PageSetting, ProtectedSetting, Section


class McpServerSettings(Section):
    command: ProtectedSetting[tuple[str, ...]] = ()
    """The program and its arguments, for a server on this machine."""
    url: ProtectedSetting[str] = ""
    """The address, for a remote server."""
    env: ProtectedSetting[dict[str, SecretStr]] = Field(default={})
    """Environment variables of the program; best as `env:NAME` or `secret:NAME`."""
    headers: ProtectedSetting[dict[str, SecretStr]] = Field(default={})
    """HTTP headers of each request to the address."""
    without_asking: ProtectedSetting[tuple[str, ...]] = ()
    """Tools that run without your confirmation: those that only read."""
    timeout_s: ProtectedSetting[float] = Field(default=60.0, gt=0, le=300)
    """Longest duration of a call."""

    @model_validator(mode="after")
    def _command_or_url(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("needs either a command or a url")
        return self


class DeskSettings(Section):
    """Desk: the sandbox for commands, questions between characters, and MCP servers."""

    sandbox: ProtectedSetting[Literal["on", "off"]] = "on"
    """`off` runs commands unconfined with your permissions: only for machines that are a sandbox themselves."""
    command_memory_mb: ProtectedSetting[int] = Field(default=1024, ge=64)
    """Memory that a command may use, with all of its processes."""
    command_processes: ProtectedSetting[int] = Field(default=64, ge=4)
    """Limit of concurrent processes and threads of a command."""
    command_file_mb: ProtectedSetting[int] = Field(default=100, ge=1)
    """Largest file that a command may write."""
    commands_at_once: ProtectedSetting[int] = Field(default=4, ge=1, le=64)
    """Commands that run at the same time; others wait for their turn."""
    commands_memory_mb: ProtectedSetting[int] = Field(default=2048, ge=64)
    """Memory that all running commands may use together."""
    workspace_mb: ProtectedSetting[int] = Field(default=1024, ge=1)
    """Disk space that the files of a workspace may use together."""
    workspace_files: ProtectedSetting[int] = Field(default=20_000, ge=10)
    """Number of files and folders that a workspace may contain."""
    asks_a_day: PageSetting[int] = Field(default=20, ge=0)
    """Questions that a character may ask other characters in a day."""
    tool_servers: ProtectedSetting[dict[str, McpServerSettings]] = Field(default={})
    """MCP servers whose tools workers may use, by name."""
