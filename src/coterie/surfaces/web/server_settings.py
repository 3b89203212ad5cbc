"""Where the server listens."""

from __future__ import annotations

from ipaddress import ip_network
from typing import ClassVar

from pydantic import Field, SecretStr, field_validator

from coterie.base.config import PageSetting, ProtectedSetting, Section
from coterie.base.errors import ConfigError
from coterie.base.values import is_loopback


class ServerSettings(Section):
    """Where the server listens. On 127.0.0.1 only this machine can reach it."""

    SHORTEST: ClassVar = 8
    """Characters that a password must have."""

    host: ProtectedSetting[str] = "127.0.0.1"
    """The address to listen on; one that other machines can reach needs a password."""
    port: ProtectedSetting[int] = Field(default=8000, ge=0, le=65535)
    """The port; 0 picks a free one."""
    password: ProtectedSetting[SecretStr | None] = None
    """The login password; `coterie password` sets it. Without one, only this machine is admitted."""
    trusted_proxies: ProtectedSetting[tuple[str, ...]] = ()
    """Addresses or networks of reverse proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` count, such as
    `127.0.0.1`. Without them, every request comes from the address that it was sent from."""
    drain_s: PageSetting[int] = Field(default=10, ge=0)
    """How long open requests may take to finish when the server stops."""

    @field_validator("trusted_proxies")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for address in value:
            try:
                ip_network(address)
            except ValueError:
                raise ValueError(f"should be addresses or networks like 10.0.0.0/8, not {address!r}") from None
        return value

    @field_validator("password")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None or not value.get_secret_value():
            return None
        if len(value.get_secret_value()) < cls.SHORTEST:
            raise ValueError(f"should be at least {cls.SHORTEST} characters long")
        return value


def check_binding(settings: ServerSettings) -> None:
    """Refuse an address that other machines can reach, unless a password is set."""
    if settings.password is None and not is_loopback(settings.host):
        raise ConfigError(
            f"server.host is {settings.host}, which other machines can reach, and there is no password.",
            "Set one with `coterie password`, or set server.host to 127.0.0.1.",
        )
