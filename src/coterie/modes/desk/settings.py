"""How the desk works: what commands may use, and how long things may take."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from coterie.base.config import Section


class McpServerSettings(Section):
    command: tuple[str, ...] = ()
    """The program and its arguments, for a server on this machine."""
    url: str = ""
    """The address, for one elsewhere."""
    env: dict[str, SecretStr] = Field(default={})
    """What the program finds in its environment; best as `env:NAME` or `secret:NAME`."""
    headers: dict[str, SecretStr] = Field(default={})
    """What is sent with each request to the address."""
    without_asking: tuple[str, ...] = ()
    """Tools that need no yes from you: those that only look."""
    timeout_s: float = Field(default=60.0, gt=0, le=300)
    """How long a call may take."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("given either a command or a url")
        return self


class DeskSettings(Section):
    """Work at the desk: the sandbox for commands."""

    sandbox: Literal["on", "off"] = "on"
    """`off` lets commands run unconfined, with everything you may do yourself. Only for machines that are a sandbox."""
    command_memory_mb: int = Field(default=1024, ge=64)
    """How much memory a process of a command may ask for."""
    command_processes: int = Field(default=64, ge=4)
    """How many processes and threads a command may have at once."""
    command_file_mb: int = Field(default=100, ge=1)
    """How large a file of a command may grow."""
    asks_a_day: int = Field(default=20, ge=0)
    """How often a character may ask others in a day."""
    tool_servers: dict[str, McpServerSettings] = Field(default={})
    """Servers of tools (MCP) for workers, by name."""
