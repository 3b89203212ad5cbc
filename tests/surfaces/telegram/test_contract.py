"""The surface contract on Telegram: our Bot API server checks every call."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contracts.surface_app import SurfaceApp
from tests.contracts.surface_contract import SurfaceContract
from tests.surfaces.telegram.platform import TelegramPlatform, telegram


class TestTelegram(SurfaceContract):
    @pytest.fixture
    async def platform(self, app: SurfaceApp) -> AsyncIterator[TelegramPlatform]:
        async with telegram(app) as platform:
            yield platform

    @pytest.fixture(autouse=True)
    async def ana(self, app: SurfaceApp, platform: TelegramPlatform) -> None:
        await app.people.link_owner(platform.surface.name, platform.account("ana"))

    async def crash(self, app: SurfaceApp, platform: TelegramPlatform) -> None:  # type: ignore[override]
        await app.crash()
        await platform.restart()


class TestTelegramWithDrafts(TestTelegram):
    @pytest.fixture
    async def platform(self, app: SurfaceApp) -> AsyncIterator[TelegramPlatform]:
        async with telegram(app, drafts=True) as platform:
            yield platform
