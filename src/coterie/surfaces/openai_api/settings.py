"""Settings of the OpenAI-compatible API, apart from its routes so that reading them does not import FastAPI."""

from __future__ import annotations

from pydantic import SecretStr

from coterie.base.config import Section


class ApiSettings(Section):
    """The OpenAI-compatible API under `/v1`."""

    key: SecretStr | None = None
    """The API key that clients send. Without one, only programs on this machine can call."""
