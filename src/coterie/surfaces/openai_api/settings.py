"""Settings of the OpenAI-compatible API, apart from its routes so that reading them does not import FastAPI."""

from __future__ import annotations

from pydantic import SecretStr

from coterie.base.config import ProtectedSetting, Section


class ApiSettings(Section):
    """The OpenAI-compatible API under `/v1`."""

    key: ProtectedSetting[SecretStr | None] = None
    """A key of the owner. Without one, and without a password, programs on this machine are the owner's; everybody
    else needs a personal key (`coterie people key`)."""
