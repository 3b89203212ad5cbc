"""Set up Telegram: a pasted token is tested, stored encrypted, and used without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pydantic import SecretStr

from coterie.base.errors import ConfigError
from coterie.base.redaction import redact
from coterie.base.supervisor import Supervisor
from coterie.messaging import (
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
        self._router = router
        self._settings = settings
        self._files = files
        self._save = save
        self._supervisor = supervisor
        self._service: TelegramService | None = None
        self._needed = asyncio.Event()

    @property
    def status(self) -> MessengerStatus:
        if self._service is not None:
            return self._service.status
        return MessengerStatus("off" if self._settings.token is None else "connecting")

    @property
    def service(self) -> TelegramService | None:
        """The running service; None before it was needed."""
        return self._service

    async def connect(self, values: Mapping[str, str]) -> MessengerStatus:
        from coterie.surfaces.telegram.service import check_token

        token = values.get("token", "").strip()
        redact.register(token)
        if not token:
            raise ConfigError("The token is missing.", "Paste the token that @BotFather sent you.")
        settings = self._settings.model_copy(update={"token": SecretStr(token)})
        info = await check_token(settings)
        await self._save("telegram", {}, {"token": token})
        self._use(settings)
        return MessengerStatus("connecting", f"{info.name} (@{info.username})", info.link)

    def open_chat(self, code: str) -> OpenChat:
        return OpenChat(f"{self.status.link}?start={code}")

    async def answer(self, question: str, choice: str) -> None:
        raise NoSuchQuestion("There is no open question.", "Reload the page.")

    async def reset(self, mode: str, *, dry_run: bool) -> list[str]:
        raise NoSuchMode("Telegram needs no reset.", "Leave its chats, or disconnect it.")

    async def disconnect(self) -> None:
        await self._save("telegram", {"token": None}, {})
        self._use(self._settings.model_copy(update={"token": None}))

    def _use(self, settings: TelegramSettings) -> None:
        self._settings = settings
        if self._service is not None:
            self._service.configure(settings)
        self._needed.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The library is loaded when there is a token: it takes a third of a second."""
        if self._settings.token is not None:
            self._needed.set()
        task = self._supervisor.start("Telegram set-up", self._run)
        try:
            yield
        finally:
            await task.stop()

    async def _run(self) -> None:
        await self._needed.wait()
        from coterie.surfaces.telegram.service import TelegramService

        self._service = TelegramService(self._router, self._settings, self._files, self._supervisor)
        async with self._service.running():
            await asyncio.Event().wait()
