"""Each messenger is set up from nothing on the page, against servers of ours (Telegram, Discord) and a real Synapse."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from coterie.base.ids import new_id
from coterie.surfaces.matrix.homeserver import Homeserver
from tests.e2e.browser import window
from tests.e2e.server_process import Server
from tests.real.conftest import synapse as synapse
from tests.real.synapse import PASSWORD, Synapse
from tests.surfaces.discord.discord_server import TOKEN as DISCORD_TOKEN
from tests.surfaces.discord.discord_server import DiscordServer
from tests.surfaces.telegram.bot_api import TOKEN as TELEGRAM_TOKEN
from tests.surfaces.telegram.bot_api import BotApi

T = TypeVar("T")
pytestmark = pytest.mark.timeout(300)


class Background:
    """An event loop in a thread, for the servers of the platforms."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    @contextmanager
    def running(self, server: AbstractAsyncContextManager[str]) -> Iterator[str]:
        url = self.run(server.__aenter__())
        try:
            yield url
        finally:
            self.run(server.__aexit__(None, None, None))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def background() -> Iterator[Background]:
    background = Background()
    yield background
    background.close()


@contextmanager
def settings_page(browser: Browser, home: Path, name: str, **settings: str) -> Iterator[tuple[Page, Locator, Server]]:
    server = Server(home, settings={"COTERIE_PASSPHRASE": "open sesame", **settings})
    context = window(browser, server.address, 1280, 900, "light")
    errors: list[str] = []
    try:
        server.client.put("/you", json={"name": "Ana"})
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto("/settings#messengers")
        yield page, page.locator(f"[data-messenger={name}]"), server
        assert errors == []
    finally:
        context.close()
        server.close()


def connect(section: Locator, label: str, **values: str) -> None:
    for name, value in values.items():
        section.locator(f"[name={name}]").fill(value)
    section.get_by_role("button", name=f"Connect {label}", exact=True).click()


def says(section: Locator, text: str) -> None:
    """A sentence about what was entered, within five seconds."""
    expect(section.get_by_role("alert")).to_contain_text(re.compile(text), timeout=15_000)


def status(section: Locator, text: str) -> None:
    expect(section.locator("[data-status-of]")).to_contain_text(re.compile(text))


def test_p13_telegram_is_set_up_on_the_page(browser: Browser, background: Background, tmp_path: Path) -> None:
    api = BotApi()
    with background.running(api.running()) as url:
        settings = {"COTERIE_TELEGRAM__API_URL": url, "COTERIE_TELEGRAM__POLL_S": "1"}
        with settings_page(browser, tmp_path / "home", "telegram", **settings) as (_, section, server):
            status(section, "off")
            connect(section, "Telegram", token="123456:wrong")
            says(section, "wrong or was revoked.*BotFather")
            api.down = True
            connect(section, "Telegram", token=TELEGRAM_TOKEN)
            says(section, "Telegram answered|cannot be reached")
            api.down = False
            connect(section, "Telegram", token=TELEGRAM_TOKEN)
            status(section, r"connected as Coterie \(@coterie_bot\), no message yet")
            section.get_by_role("button", name="Open a chat on Telegram").click()
            link = section.get_by_role("link", name="https://t.me/coterie_bot?start=")
            code = (link.get_attribute("href") or "").partition("?start=")[2]
            expect(section.get_by_role("img", name="QR code")).to_be_visible()
            user = {"id": 9, "is_bot": False, "first_name": "Ana"}
            background.run(_later(lambda: api.message(user, {"id": 9, "type": "private"}, f"/start {code}")))
            status(section, "last message")
            api.token = "123456:renewed"
            status(section, "retrying.*wrong or was revoked")
            api.token = TELEGRAM_TOKEN
            connect(section, "Telegram", token=TELEGRAM_TOKEN)
            status(section, "connected as Coterie")
            assert TELEGRAM_TOKEN not in (server.home / "config.toml").read_text()
    assert api.violations == []


def test_p14_discord_is_set_up_on_the_page(browser: Browser, background: Background, tmp_path: Path) -> None:
    discord = DiscordServer()
    with background.running(discord.running()) as url:
        settings = {"COTERIE_DISCORD__API_URL": url}
        with settings_page(browser, tmp_path / "home", "discord", **settings) as (_, section, server):
            status(section, "off")
            connect(section, "Discord", token="wrong")
            says(section, "wrong or was reset.*developer portal")
            discord.down = True
            connect(section, "Discord", token=DISCORD_TOKEN)
            says(section, "Discord answered 503")
            discord.down = False
            connect(section, "Discord", token=DISCORD_TOKEN)
            status(section, "connected as Coterie, no message yet")
            section.get_by_role("button", name="Open a chat on Discord").click()
            expect(section.get_by_role("link", name="oauth2/authorize")).to_be_visible()
            written = section.locator("[data-messenger-open-result] code").inner_text()
            code = written.removeprefix("/link ")
            ana = discord.user("ana")
            background.run(discord.slash(ana, discord.direct_chat(ana), "link", code))
            status(section, "connected")
            background.run(discord.write(ana, discord.direct_chat(ana), "hello"))
            status(section, "last message")
            discord.token = "renewed"
            background.run(discord.close_sessions(4004))
            status(section, "retrying.*wrong or was reset")
            discord.token = DISCORD_TOKEN
            connect(section, "Discord", token=DISCORD_TOKEN)
            status(section, "connected as Coterie")
            assert DISCORD_TOKEN not in (server.home / "config.toml").read_text()
    assert discord.violations == []


def test_p7_matrix_is_set_up_on_the_page(
    browser: Browser, synapse: Synapse, background: Background, tmp_path: Path
) -> None:
    bot = synapse.register(f"coterie-{new_id().lower()}")
    with settings_page(browser, tmp_path / "home", "matrix", COTERIE_MATRIX__SYNC_S="1") as (page, section, server):
        status(section, "off")
        connect(section, "Matrix", homeserver=synapse.url, user=bot, password="wrong")
        says(section, "does not accept the login.*Check the user and the password")
        connect(section, "Matrix", homeserver="http://127.0.0.1:9", user=bot, password=PASSWORD)
        says(section, "does not answer")
        connect(section, "Matrix", homeserver=synapse.url, user=bot, password=PASSWORD)
        status(section, f"connected as {bot}")
        section.get_by_role("button", name="Open a chat on Matrix").click()
        expect(section.locator("[data-messenger-open-result] code")).to_contain_text("!link ")
        session = Homeserver(synapse.url)

        async def new_token() -> str:
            _, _, session.token = await session.login(bot, PASSWORD)
            return session.token

        async def revoke() -> None:
            await session.logout()
            await session.close()

        token = background.run(new_token())
        with page.expect_response(lambda response: response.request.method == "POST" and response.ok):
            connect(section, "Matrix", homeserver=synapse.url, access_token=token)
        status(section, f"connected as {bot}")
        background.run(revoke())
        status(section, "retrying.*no longer accepts this login")
        connect(section, "Matrix", homeserver=synapse.url, user=bot, password=PASSWORD)
        status(section, f"connected as {bot}")
        assert PASSWORD not in (server.home / "config.toml").read_text()


async def _later(call: Callable[[], object]) -> None:
    call()
