"""Settings of the Matrix surface."""

from __future__ import annotations

from pydantic import Field, SecretStr

from coterie.base.config import Section


class MatrixSettings(Section):
    """Matrix: an account for your characters. Without a homeserver it is off."""

    homeserver: str = ""
    """The address of the homeserver, such as `https://matrix.example.org`; without it Matrix is off."""
    user: str = ""
    """The account, such as `@coterie:example.org`."""
    password: SecretStr | None = None
    """Only for the first login; best as `env:NAME` or `secret:NAME`."""
    owner: str = ""
    """Your own Matrix account; it needs no linking code."""
    encrypted: bool = True
    """Whether the rooms that Coterie creates are end-to-end encrypted; your own rooms stay as they are."""
    sync_s: float = Field(default=30.0, ge=0)
    """The long-polling timeout of a sync request."""
