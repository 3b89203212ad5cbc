"""Settings of the Telegram surface."""

from __future__ import annotations

from pydantic import Field, SecretStr

from coterie.base.config import PageSetting, ProtectedSetting, Section

WEBHOOK_PATH = "/telegram/updates"
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105


class TelegramSettings(Section):
    """Telegram: a bot for your characters. Without a token it is off."""

    token: ProtectedSetting[SecretStr | None] = None
    """The bot's token from @BotFather; best as `secret:NAME` or `env:NAME`. Without it Telegram is off."""
    api_url: ProtectedSetting[str] = "https://api.telegram.org"
    """The address of the Bot API, if you run a server of it yourself."""
    drafts: PageSetting[bool] = False
    """Stream replies in private chats as drafts instead of by edits; in groups they come when complete. A draft can
    show twice for a moment."""
    webhook_url: ProtectedSetting[str] = ""
    """The public `https` address of this server, for updates by webhook; if empty, updates are polled."""
    poll_s: PageSetting[int] = Field(default=30, ge=0, le=50)
    """The long-polling timeout of a request for updates."""
