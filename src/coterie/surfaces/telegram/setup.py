"""Set up Telegram: a pasted token is tested, stored encrypted, and used without a restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from pydantic import SecretStr

from coterie.base.errors import ConfigError
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
    RoomFiles,
    SaveSettings,
)
from coterie.surfaces.telegram.settings import TelegramSettings

if TYPE_CHECKING:
    from coterie.surfaces.telegram.service import TelegramService


class TelegramMessenger:
    name = "telegram"
    label = "Telegram"
    about = "Write /newbot to @BotFather in Telegram, choose a name, and paste the token that it sends you."
    fields: tuple[MessengerField, ...] = (MessengerField("token", "Bot token", is_secret=True, hint="123456:ABC…"),)

    def __init__(
        self,
        router: MessageRouter,
        settings: TelegramSettings,
        files: Callable[[str], RoomFiles],
        save: SaveSettings,
        supervisor: Supervisor,
    ) -> None:
        self._save = save

        def make(settings: TelegramSettings) -> TelegramService:
            from coterie.surfaces.telegram.service import TelegramService

            return TelegramService(router, settings, files, supervisor)

        self._late = LateService(self.label, settings, make, supervisor)

    @property
    def status(self) -> MessengerStatus:
        return self._late.status

    @property
    def service(self) -> TelegramService | None:
        """The running service; None before it was needed."""
        return self._late.service

    async def connect(self, values: Mapping[str, str]) -> MessengerStatus:
        from coterie.surfaces.telegram.service import check_token

        token = values.get("token", "").strip()
        redact.register(token)
        if not token:
            raise ConfigError("The token is missing.", "Paste the token that @BotFather sent you.")
        settings = self._late.settings.model_copy(update={"token": SecretStr(token)})
        info = await check_token(settings)
        await self._save("telegram", {}, {"token": token})
        self._late.use(settings)
        return MessengerStatus("connecting", f"{info.name} (@{info.username})", info.link)

    def open_chat(self, code: str) -> OpenChat:
        return OpenChat(f"{self.status.link}?start={code}")

    async def answer(self, question: str, choice: str) -> None:
        raise NoSuchQuestion("There is no open question.", "Reload the page.")

    async def reset(self, mode: str, *, dry_run: bool) -> list[str]:
        raise NoSuchMode("Telegram needs no reset.", "Leave its chats, or disconnect it.")

    async def disconnect(self) -> None:
        await self._save("telegram", {"token": None}, {})
        self._late.use(self._late.settings.model_copy(update={"token": None}))

    def running(self) -> AbstractAsyncContextManager[None]:
        return self._late.running()
