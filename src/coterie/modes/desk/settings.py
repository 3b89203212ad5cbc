"""How the desk works: what commands may use, and how long things may take."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from coterie.base.config import Section


class DeskSettings(Section):
    """Work at the desk: the sandbox for commands."""

    sandbox: Literal["on", "off"] = "on"
    """"off" lets commands run unconfined, with everything you may do yourself. Only for machines that are a sandbox."""
    command_memory_mb: int = Field(default=1024, ge=64)
    """How much memory a process of a command may ask for."""
    command_processes: int = Field(default=64, ge=4)
    """How many processes and threads a command may have at once."""
    command_file_mb: int = Field(default=100, ge=1)
    """How large a file of a command may grow."""
    asks_a_day: int = Field(default=20, ge=0)
    """How often a character may ask others in a day."""
