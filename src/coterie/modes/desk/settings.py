"""Settings of the desk."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from coterie.base.config import Section


class McpServerSettings(Section):
    command: tuple[str, ...] = ()
    """The program and its arguments, for a server on this machine."""
    url: str = ""
    """The address, for a remote server."""
    env: dict[str, SecretStr] = Field(default={})
    """Environment variables of the program; best as `env:NAME` or `secret:NAME`."""
    headers: dict[str, SecretStr] = Field(default={})
    """HTTP headers of each request to the address."""
    without_asking: tuple[str, ...] = ()
    """Tools that run without your confirmation: those that only read."""
    timeout_s: float = Field(default=60.0, gt=0, le=300)
    """Longest duration of a call."""

    @model_validator(mode="after")
    def _command_or_url(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("needs either a command or a url")
        return self


class DeskSettings(Section):
    """Desk: the sandbox for commands, questions between characters, and MCP servers."""

    sandbox: Literal["on", "off"] = "on"
    """`off` runs commands unconfined with your permissions: only for machines that are a sandbox themselves."""
    command_memory_mb: int = Field(default=1024, ge=64)
    """Memory limit of a command's process."""
    command_processes: int = Field(default=64, ge=4)
    """Limit of concurrent processes and threads of a command."""
    command_file_mb: int = Field(default=100, ge=1)
    """Largest file that a command may write."""
    asks_a_day: int = Field(default=20, ge=0)
    """Questions that a character may ask other characters in a day."""
    tool_servers: dict[str, McpServerSettings] = Field(default={})
    """MCP servers whose tools workers may use, by name."""
