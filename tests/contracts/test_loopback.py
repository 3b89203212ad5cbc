"""The surface contract on in-memory platforms, with and without deduplication by token."""

from __future__ import annotations

import pytest

from tests.contracts.loopback import Loopback
from tests.contracts.surface_app import SurfaceApp
from tests.contracts.surface_contract import CODE, SurfaceContract


class TestLoopback(SurfaceContract):
    @pytest.fixture
    def platform(self, app: SurfaceApp) -> Loopback:
        loopback = Loopback(files=app.files_in)
        loopback.reconnect(app.router)
        return loopback

    async def test_p3_a_code_is_shown_to_who_is_alone_and_in_a_direct_room_otherwise(
        self, app: SurfaceApp, platform: Loopback
    ) -> None:
        await platform.say("ana", "attic", "!link", "k1")
        await platform.say("stranger", "hall", "Who is there?", "k2")
        await platform.say("ana", "hall", "!link", "k3")
        await app.router.wait_idle()
        assert len(CODE.findall(platform.shown("attic")[-1])) == 1
        assert "Others may read this room" in platform.shown("hall")[-1]
        assert len(CODE.findall(platform.shown("direct-ana")[-1])) == 1


class TestForgetfulLoopback(SurfaceContract):
    @pytest.fixture
    def platform(self, app: SurfaceApp) -> Loopback:
        loopback = Loopback(dedupes=False, buttons=False, files=app.files_in)
        loopback.reconnect(app.router)
        return loopback


class TestPreviewingLoopback(SurfaceContract):
    @pytest.fixture
    def platform(self, app: SurfaceApp) -> Loopback:
        loopback = Loopback(dedupes=False, previews=True, files=app.files_in)
        loopback.reconnect(app.router)
        return loopback

    async def test_p5_unfinished_text_is_shown_as_previews(self, app: SurfaceApp, platform: Loopback) -> None:
        text = " ".join(f"word{n}" for n in range(400))
        app.echo.script["go"], app.echo.pause_s = text, 0.005
        await platform.say("ana", "kitchen", "go", "k")
        await app.router.wait_idle()
        assert len(platform.previewed) > 3 and all(text.startswith(preview) for preview in platform.previewed)
        assert platform.shown("kitchen") == [text]
