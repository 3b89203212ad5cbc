"""The how-to pages on Telegram and Discord are followed in a browser.

What is in bold is pressed, and what is in code is written, as the page has it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from coterie.messaging import COMMAND_NAMES
from coterie.surfaces.telegram.settings import TelegramSettings
from tests.e2e.server_process import ROOT, Server, environ
from tests.e2e.test_messengers import Background, settings_page, status
from tests.e2e.test_messengers import background as background
from tests.surfaces.discord.discord_server import TOKEN as DISCORD_TOKEN
from tests.surfaces.discord.discord_server import DiscordServer
from tests.surfaces.telegram.bot_api import BOT, BotApi, Json
from tests.surfaces.telegram.bot_api import TOKEN as TELEGRAM_TOKEN

pytestmark = pytest.mark.timeout(300)
SAID = "The lamp is lit."


class Guide:
    """What a how-to page tells the reader to press and to write."""

    def __init__(self, name: str) -> None:
        self.text = " ".join((ROOT / f"docs/how-to/{name}.md").read_text(encoding="utf-8").split())
        self._read_to = 0

    def press(self, place: Locator, label: str) -> None:
        """The next button that the page names, which is this one."""
        found = re.compile(r"[Cc]hoose \*\*([^*]+)\*\*").search(self.text, self._read_to)
        while found is not None and found[1] not in (label,):
            found = re.compile(r"[Cc]hoose \*\*([^*]+)\*\*").search(self.text, found.end())
        assert found is not None, f"the page does not say to choose {label}"
        self._read_to = found.end()
        place.get_by_role("button", name=re.compile(f"^{re.escape(found[1])}")).click()

    def command(self, name: str) -> str:
        """A command in code, as the page has it."""
        found = re.search(rf"`(/{name}\b[^`]*)`", self.text)
        assert found is not None, f"the page does not have /{name}"
        return found[1]

    def console(self, start: str) -> list[str]:
        found = re.search(rf"`(coterie {start}[^`]*)`", self.text)
        assert found is not None
        return found[1].split()[1:]

    def check_commands(self) -> None:
        named = {name for name in re.findall(r"`/(\w+)", self.text) if name != "newbot"}
        assert named and named <= COMMAND_NAMES


def until(condition: Callable[[], object], what: str) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends, what
        time.sleep(0.1)


def open_messengers(page: Page) -> None:
    """*Settings → Messengers*, as the pages call it."""
    page.goto("/")
    page.get_by_role("link", name="Settings", exact=True).first.click()
    expect(page.get_by_role("heading", name="Messengers", exact=True)).to_be_visible()


def connect_in_terminal(server: Server, arguments: list[str], token: str) -> str:
    command = [sys.executable, "-m", "coterie", *arguments, "--no-qr"]
    done = subprocess.run(
        command, env=environ(server.home), input=f"{token}\n", capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def replies(tmp_path: Path) -> dict[str, str]:
    """The settings for a character whose replies are recorded."""
    recording = tmp_path / "recording.jsonl"
    recording.write_text("\n".join([json.dumps({"say": SAID})] * 50), encoding="utf-8")
    return {"COTERIE_MODELS__REPLAY": str(recording)}


def test_p13_the_page_on_telegram_is_followed(
    browser: Browser, background: Background, tmp_path: Path, replies: dict[str, str]
) -> None:
    guide, api = Guide("telegram"), BotApi()
    ana: Json = {"id": 9, "is_bot": False, "first_name": "Ana"}
    private, group = {"id": 9, "type": "private"}, {"id": -77, "type": "supergroup", "title": "Harbour"}

    def write(text: str, chat: Json = private, **more: Any) -> None:
        background.run(_in_loop(lambda: api.message(ana, chat, text, **more)))

    def shown(chat: int) -> list[str]:
        return [sent.text for sent in list(api.sent.values()) if sent.chat == chat]

    with background.running(api.running()) as url:
        settings = {"COTERIE_TELEGRAM__API_URL": url, "COTERIE_TELEGRAM__POLL_S": "1", **replies}
        with settings_page(browser, tmp_path / "home", "telegram", **settings) as (page, section, server):
            server.client.post("/characters/ready/maren").raise_for_status()
            open_messengers(page)
            section.locator("[name=token]").fill(TELEGRAM_TOKEN)
            guide.press(section, "Connect Telegram")
            status(section, "connected as Coterie")
            guide.press(section, "Open a chat")
            link = section.get_by_role("link", name="https://t.me/coterie_bot?start=").get_attribute("href") or ""
            write(f"/start {link.partition('?start=')[2]}")
            until(lambda: any("Welcome" in text for text in shown(9)), "the account is linked")
            write("Good evening")
            until(lambda: any(SAID in text for text in shown(9)), "the character answers")
            write(guide.command("new"))
            name = guide.command("new").partition(" ")[2]
            until(lambda: name in api.topics.values(), "a chat in a topic of its own")
            write(guide.command("help"))
            until(lambda: any("list all commands" in text or "/new" in text for text in shown(9)), "the commands")
            write("nice weather", group)
            write(f"@{BOT['username']} good evening", group)
            until(lambda: any(SAID in text for text in shown(-77)), "it answers when it is mentioned")
            assert len(shown(-77)) <= 2, "what is not addressed to it is not answered"
            write(guide.command("listen"), group)
            until(lambda: any("every message" in text for text in shown(-77)), "it listens to everything")
            printed = connect_in_terminal(server, guide.console("telegram connect"), TELEGRAM_TOKEN)
            assert "The bot is Coterie" in printed and "connected now" in printed
            status(section, "connected as Coterie")
    guide.check_commands()
    assert set(re.findall(r"`telegram\.(\w+)", guide.text)) <= set(TelegramSettings.model_fields)
    assert api.violations == []


def test_p14_the_page_on_discord_is_followed(
    browser: Browser, background: Background, tmp_path: Path, replies: dict[str, str]
) -> None:
    guide, discord = Guide("discord"), DiscordServer()
    ana = discord.user("ana")
    with background.running(discord.running()) as url:
        settings = {"COTERIE_DISCORD__API_URL": url, **replies}
        with settings_page(browser, tmp_path / "home", "discord", **settings) as (page, section, server):
            server.client.post("/characters/ready/maren").raise_for_status()
            open_messengers(page)
            section.locator("[name=token]").fill(DISCORD_TOKEN)
            guide.press(section, "Connect Discord")
            status(section, "connected as Coterie")
            guide.press(section, "Open a chat")
            expect(section.get_by_role("link", name="oauth2/authorize")).to_be_visible()
            written = section.locator("[data-messenger-open-result] code").inner_text()
            assert written.split()[0] == guide.command("link").split()[0]
            chat = discord.direct_chat(ana)
            background.run(discord.slash(ana, chat, "link", written.split()[1]))

            def shown() -> list[str]:
                return [sent.text for sent in discord.in_channel(chat["id"])]

            until(lambda: any("Welcome" in text for text in shown()), "the account is linked")
            background.run(discord.write(ana, chat, "Good evening"))
            until(lambda: any(SAID in text for text in shown()), "the character answers")
            name, _, title = guide.command("new").removeprefix("/").partition(" ")
            background.run(discord.slash(ana, chat, name, title))
            until(lambda: any("A new chat begins here" in text for text in shown()), "it starts over: no threads here")
            background.run(discord.slash(ana, chat, guide.command("help").removeprefix("/"), ""))
            until(lambda: any("get another reply" in text for text in shown()), "the commands")
            printed = connect_in_terminal(server, guide.console("discord connect"), DISCORD_TOKEN)
            assert "The bot is Coterie" in printed and "connected now" in printed
            status(section, "connected as Coterie")
    guide.check_commands()
    assert discord.violations == []


async def _in_loop(call: Callable[[], object]) -> None:
    call()
