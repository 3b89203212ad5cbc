"""Settings of the OpenAI-compatible API."""

from __future__ import annotations

from pydantic import SecretStr

from coterie.base.config import Section


class ApiSettings(Section):
    """The OpenAI-compatible API under `/v1`."""

    key: SecretStr | None = None
    """What clients send as their API key. Without one, only programs on this machine can call."""
