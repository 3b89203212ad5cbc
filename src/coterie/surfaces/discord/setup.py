"""Set up Discord: a pasted token is tested, stored encrypted, and used without a restart.

It works without the library of the optional package, which is loaded when there is a token.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
from pydantic import SecretStr

from coterie.base.errors import ConfigError, MissingExtra
from coterie.base.redaction import redact
from coterie.base.supervisor import Supervisor
from coterie.messaging import (
    LateService,
    MessageRouter,
    MessengerField,
    MessengerStatus,
    NoSuchMode,
    NoSuchQuestion,
    OpenChat,
    PlatformRateLimited,
    PlatformUnreachable,
    RoomFiles,
    SaveSettings,
    testing_connection,
)
from coterie.surfaces.discord.settings import DiscordSettings

if TYPE_CHECKING:
    from coterie.surfaces.discord.service import DiscordService

PERMISSIONS = sum(1 << bit for bit in (6, 10, 11, 14, 15, 16, 34, 35, 36, 38))
"""What the bot asks for when it is added: add reactions, view channels, send messages, embed links, attach files, read
the history, manage threads, create public and private ones, and send messages in them."""
NEEDS_CONTENT = (
    "The bot reads only direct messages and those that mention it. To let it answer to its name, switch on Message"
    " Content Intent in the developer portal."
)
_CHECK_TIMEOUT_S = 4.0
_CONTENT_FLAGS = 1 << 18 | 1 << 19
_MEMBERS_FLAGS = 1 << 14 | 1 << 15


@dataclass(frozen=True)
class DiscordBot:
    """Who the bot is, and what Discord gives it."""

    id: int
    name: str
    application: int
    reads_content: bool
    """Whether it gets the text of messages that do not mention it."""
    sees_members: bool
    """Whether it is told who joins and leaves."""

    @property
    def link(self) -> str:
        """The address that adds it to a server."""
        scope = "bot+applications.commands"
        return (
            f"https://discord.com/oauth2/authorize?client_id={self.application}&permissions={PERMISSIONS}&scope={scope}"
        )


def bad_token() -> PlatformUnreachable:
    return PlatformUnreachable(
        "Discord does not accept the bot's token: it is wrong or was reset.",
        "Copy the current one from the developer portal, and enter it in Settings → Messengers.",
        ambiguous=False,
    )


async def check_token(settings: DiscordSettings) -> DiscordBot:
    """Test a token that a person has entered."""
    async with testing_connection("Discord"):
        return await ask_who_the_bot_is(settings)


async def ask_who_the_bot_is(settings: DiscordSettings) -> DiscordBot:
    """Ask Discord. `PlatformUnreachable` if the token is wrong or Discord does not answer in time."""
    token = settings.token.get_secret_value().strip() if settings.token is not None else ""
    redact.register(token)
    if not token or not token.isascii() or any(letter.isspace() for letter in token):
        raise bad_token()
    headers = {"Authorization": f"Bot {token}", "User-Agent": "DiscordBot (https://github.com/coterie, 1)"}
    async with httpx.AsyncClient(headers=headers, timeout=_CHECK_TIMEOUT_S, trust_env=False) as http:
        user = await _get(http, f"{settings.api_url.rstrip('/')}/users/@me")
        application = await _get(http, f"{settings.api_url.rstrip('/')}/oauth2/applications/@me")
    try:
        flags = int(application.get("flags") or 0)
        return DiscordBot(
            int(user["id"]),
            str(user.get("global_name") or user["username"]),
            int(application["id"]),
            reads_content=bool(flags & _CONTENT_FLAGS),
            sees_members=bool(flags & _MEMBERS_FLAGS),
        )
    except (KeyError, TypeError, ValueError):
        raise PlatformUnreachable("Discord's answer cannot be read.", ambiguous=False) from None


async def _get(http: httpx.AsyncClient, url: str) -> dict[str, Any]:
    try:
        response = await http.get(url)
        body = response.json() if response.is_success else {}
    except (httpx.TransportError, httpx.InvalidURL, ValueError) as error:
        raise PlatformUnreachable(f"Discord cannot be reached ({type(error).__name__}).", ambiguous=False) from error
    if response.status_code == 401:
        raise bad_token()
    if response.status_code == 429:
        wait = response.headers.get("Retry-After", "")
        raise PlatformRateLimited("Discord limits the rate.", float(wait) if wait.isdecimal() else 5.0)
    if not isinstance(body, dict) or not response.is_success:
        raise PlatformUnreachable(f"Discord answered {response.status_code}.", ambiguous=False)
    return body


def check_installed() -> None:
    """`MissingExtra` if the optional package is not installed."""
    if importlib.util.find_spec("discord") is None:
        raise MissingExtra("discord", "Discord")


class DiscordMessenger:
    name = "discord"
    label = "Discord"
    about = (
        "In the Discord developer portal (discord.com/developers), create an application. Under Bot, switch on Message"
        " Content Intent, choose Reset Token, and paste the token here."
    )
    fields: tuple[MessengerField, ...] = (MessengerField("token", "Bot token", is_secret=True, hint="MTIz…"),)

    def __init__(
        self,
        router: MessageRouter,
        settings: DiscordSettings,
        files: Callable[[str], RoomFiles],
        save: SaveSettings,
        supervisor: Supervisor,
    ) -> None:
        self._save = save

        def make(settings: DiscordSettings) -> DiscordService:
            check_installed()
            from coterie.surfaces.discord.service import DiscordService

            return DiscordService(router, settings, files, supervisor)

        self._late = LateService(self.label, settings, make, supervisor)

    @property
    def status(self) -> MessengerStatus:
        return self._late.status

    async def connect(self, values: Mapping[str, str]) -> MessengerStatus:
        check_installed()
        token = values.get("token", "").strip()
        redact.register(token)
        if not token:
            raise ConfigError("The token is missing.", "Paste the token from the developer portal.")
        settings = self._late.settings.model_copy(update={"token": SecretStr(token)})
        info = await check_token(settings)
        await self._save("discord", {}, {"token": token})
        self._late.use(settings)
        return MessengerStatus("connecting", info.name, info.link)

    def open_chat(self, code: str) -> OpenChat:
        return OpenChat(self.status.link, f"/link {code}")

    async def answer(self, question: str, choice: str) -> None:
        raise NoSuchQuestion("There is no open question.", "Reload the page.")

    async def reset(self, mode: str, *, dry_run: bool) -> list[str]:
        raise NoSuchMode("Discord needs no reset.", "Leave its chats, or disconnect it.")

    async def disconnect(self) -> None:
        await self._save("discord", {"token": None}, {})
        self._late.use(self._late.settings.model_copy(update={"token": None}))

    def running(self) -> AbstractAsyncContextManager[None]:
        return self._late.running()
