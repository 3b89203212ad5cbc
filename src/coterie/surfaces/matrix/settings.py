"""Settings of the Matrix surface."""

from __future__ import annotations

from pydantic import Field, SecretStr

from coterie.base.config import PageSetting, ProtectedSetting, Section


class MatrixSettings(Section):
    """Matrix: an account for your characters. Without a homeserver it is off."""

    homeserver: ProtectedSetting[str] = ""
    """The address of the homeserver, such as `https://matrix.example.org`; without it Matrix is off."""
    user: ProtectedSetting[str] = ""
    """The account, such as `@coterie:example.org`."""
    password: ProtectedSetting[SecretStr | None] = None
    """For the first login, and when its device must be replaced; best as `env:NAME` or `secret:NAME`."""
    access_token: ProtectedSetting[SecretStr | None] = None
    """Instead of a password: an access token of a session of its own, best as `secret:NAME`."""
    owner: ProtectedSetting[str] = ""
    """Your own Matrix account; it needs no linking code."""
    encrypted: ProtectedSetting[bool] = True
    """Whether the rooms that Coterie creates are end-to-end encrypted; your own rooms stay as they are."""
    sync_s: PageSetting[float] = Field(default=30.0, ge=0)
    """The long-polling timeout of a sync request."""
