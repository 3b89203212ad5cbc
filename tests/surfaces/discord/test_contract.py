"""The surface contract on Discord: our own gateway and REST server check every call."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contracts.surface_app import SurfaceApp
from tests.contracts.surface_contract import SurfaceContract
from tests.surfaces.discord.platform import DiscordPlatform, discord


class TestDiscord(SurfaceContract):
    @pytest.fixture
    async def platform(self, app: SurfaceApp) -> AsyncIterator[DiscordPlatform]:
        async with discord(app) as platform:
            yield platform

    @pytest.fixture(autouse=True)
    async def ana(self, app: SurfaceApp, platform: DiscordPlatform) -> None:
        await app.people.link_owner(platform.surface.name, platform.account("ana"))

    async def crash(self, app: SurfaceApp, platform: DiscordPlatform) -> None:  # type: ignore[override]
        await app.crash()
        await platform.restart()
