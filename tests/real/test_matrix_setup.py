"""Matrix is set up while the server runs: the account is tested, and what is wrong is said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from coterie.base.errors import ConfigError
from coterie.base.ids import new_id
from coterie.base.supervisor import Supervisor
from coterie.messaging.errors import PlatformUnreachable
from coterie.surfaces.matrix.homeserver import Homeserver
from coterie.surfaces.matrix.login import LoginRefused
from coterie.surfaces.matrix.settings import MatrixSettings
from coterie.surfaces.matrix.setup import MatrixMessenger
from tests.contracts.surface_app import SurfaceApp
from tests.real.matrix_app import MatrixUser
from tests.real.synapse import PASSWORD, Synapse


class Setup:
    def __init__(self, app: SurfaceApp, folder: Path) -> None:
        self.saved: list[tuple[dict[str, Any], dict[str, str]]] = []
        self.folder = folder
        self.supervisor = Supervisor()
        self.messenger = MatrixMessenger(
            app.router,
            app.store,
            MatrixSettings(sync_s=1),
            folder,
            app.files_in_workspace,
            lambda _: None,
            self.save,
            self.supervisor,
        )

    async def save(self, section: str, values: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        assert section == "matrix"
        self.saved.append((dict(values), dict(secrets)))

    async def state(self, wanted: str) -> None:
        async with asyncio.timeout(60):
            while self.messenger.status.state != wanted:
                await asyncio.sleep(0.05)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[SurfaceApp]:
    app = SurfaceApp(tmp_path / "coterie.db")
    await app.create_character()
    yield app
    await app.close()


@pytest.fixture
async def setup(app: SurfaceApp, tmp_path: Path) -> AsyncIterator[Setup]:
    setup = Setup(app, tmp_path / "matrix")
    async with setup.messenger.running():
        yield setup
    await setup.supervisor.stop()


@pytest.fixture
def bot(synapse: Synapse) -> str:
    return synapse.register(f"coterie-{new_id().lower()}")


@asynccontextmanager
async def domain(homeserver: str) -> AsyncIterator[str]:
    """A web server that names the homeserver of its domain."""

    async def well_known(_: web.Request) -> web.Response:
        return web.json_response({"m.homeserver": {"base_url": homeserver}})

    application = web.Application()
    application.router.add_get("/.well-known/matrix/client", well_known)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_p7_an_account_is_tested_and_used_at_once(
    app: SurfaceApp, setup: Setup, synapse: Synapse, bot: str
) -> None:
    assert setup.messenger.status.state == "off"
    wrong = {"homeserver": synapse.url, "user": bot, "password": "wrong"}
    with pytest.raises(LoginRefused, match="does not accept the login"):
        await setup.messenger.connect(wrong)
    with pytest.raises(PlatformUnreachable, match="does not answer"):
        await setup.messenger.connect({**wrong, "homeserver": "http://127.0.0.1:9"})
    with pytest.raises(ConfigError, match="password is missing"):
        await setup.messenger.connect({"homeserver": synapse.url, "user": bot})
    assert setup.saved == [] and not setup.folder.exists() and setup.messenger.status.state == "off"
    async with domain(synapse.url) as address:
        await setup.messenger.connect({"homeserver": address, "user": bot, "password": f" {PASSWORD} ".strip()})
    assert setup.saved == [
        ({"homeserver": synapse.url, "user": bot, "access_token": None}, {"password": PASSWORD}),
    ]
    await setup.state("connected")
    status = setup.messenger.status
    assert (status.account, status.link) == (bot, f"https://matrix.to/#/{bot}")
    chat = setup.messenger.open_chat("CODE")
    assert chat.write == "!link CODE"
    ana = await MatrixUser.arrive(synapse, f"ana-{new_id().lower()}")
    code = await app.people.issue_code("you", 15)
    room = await ana.room_with(bot)
    await ana.say(room, f"!link {code}")
    async with asyncio.timeout(60):
        while app.people.by_account("matrix", ana.user) is None:
            await asyncio.sleep(0.05)
    assert setup.messenger.status.last_message is not None
    await ana.close()
    device = json.loads((setup.folder / "login.json").read_text())["device"]
    await setup.messenger.connect({"homeserver": synapse.url, "user": bot, "password": PASSWORD})
    assert json.loads((setup.folder / "login.json").read_text())["device"] == device, "its keys stay valid"
    await setup.state("connected")
    await setup.messenger.disconnect()
    await setup.state("off")


async def test_p7_an_access_token_is_enough_and_a_revoked_one_is_said(
    app: SurfaceApp, setup: Setup, synapse: Synapse, bot: str
) -> None:
    session = Homeserver(synapse.url)
    _, _, session.token = await session.login(bot, PASSWORD)
    with pytest.raises(LoginRefused, match="wrong or was revoked"):
        await setup.messenger.connect({"homeserver": synapse.url, "access_token": "wrong"})
    await setup.messenger.connect({"homeserver": synapse.url, "access_token": session.token})
    assert setup.saved[0][0]["user"] == bot and setup.saved[0][1] == {"access_token": session.token}
    await setup.state("connected")
    await session.logout()
    await setup.state("retrying")
    assert "no longer accepts this login" in setup.messenger.status.problem
    assert "Settings → Messengers" in setup.messenger.status.fix
    await setup.messenger.connect({"homeserver": synapse.url, "user": bot, "password": PASSWORD})
    await setup.state("connected")
    await session.close()


async def test_p7_another_account_sets_the_keys_of_the_first_aside(
    app: SurfaceApp, setup: Setup, synapse: Synapse, bot: str
) -> None:
    other = synapse.register(f"other-{new_id().lower()}")
    await setup.messenger.connect({"homeserver": synapse.url, "user": bot, "password": PASSWORD})
    await setup.state("connected")
    await setup.messenger.connect({"homeserver": synapse.url, "user": other, "password": PASSWORD})
    async with asyncio.timeout(60):
        while (setup.messenger.status.state, setup.messenger.status.account) != ("connected", other):
            await asyncio.sleep(0.05)
    assert len(list(setup.folder.glob("*keys.db"))) == 2
