"""Settings of the Discord surface."""

from __future__ import annotations

from pydantic import SecretStr

from coterie.base.config import ProtectedSetting, Section

API_URL = "https://discord.com/api/v10"


class DiscordSettings(Section):
    """Discord: a bot for your characters. Without a token it is off."""

    token: ProtectedSetting[SecretStr | None] = None
    """The bot's token from the Discord developer portal; best as `secret:NAME` or `env:NAME`. Without it Discord is
    off."""
    api_url: ProtectedSetting[str] = API_URL
    """The address of the API, if you use a server that is compatible with Discord's."""
