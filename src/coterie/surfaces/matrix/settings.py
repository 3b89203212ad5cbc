"""Which account speaks on Matrix, and how its rooms are made."""

from __future__ import annotations

from pydantic import Field, SecretStr

from coterie.base.config import Section


class MatrixSettings(Section):
    """Matrix: an account of its own for your characters. Without a homeserver it is off."""

    homeserver: str = ""
    """Its address, such as `https://matrix.example.org`; without it Matrix is off."""
    user: str = ""
    """The account, such as `@coterie:example.org`."""
    password: SecretStr | None = None
    """Only for the first login; best as `env:NAME` or `secret:NAME`."""
    owner: str = ""
    """Your own account there: it is you without any code."""
    encrypted: bool = True
    """Whether the rooms it makes are end-to-end encrypted; rooms of yours are as you made them."""
    sync_s: float = Field(default=30.0, ge=0)
    """How long the homeserver may wait for news before it answers."""
