"""Where the server listens."""

from __future__ import annotations

import ipaddress

from pydantic import Field

from coterie.base.config import Section
from coterie.base.errors import ConfigError


class ServerSettings(Section):
    """Where the server listens. On 127.0.0.1 only this machine can reach it."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = Field(default=8000, ge=0, le=65535)
    """The port; 0 picks a free one."""
    drain_s: int = Field(default=10, ge=0)
    """How long open requests may take to finish when the server stops."""


def check_binding(settings: ServerSettings) -> None:
    """P17: beyond this machine only with a password; there are no accounts yet, so not at all."""
    if settings.host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ConfigError(
            f"server.host is {settings.host}, which other machines can reach, and there are no accounts to protect it.",
            "Set it to 127.0.0.1, and reach it from elsewhere through a tunnel that asks who you are.",
        )
