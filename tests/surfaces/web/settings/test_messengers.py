"""Setting up messengers over HTTP and on the settings page, against our Bot API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from coterie.messaging import MessengerQuestion, MessengerStatus
from coterie.settings import load_settings
from coterie.surfaces.discord.settings import DiscordSettings
from coterie.surfaces.matrix.setup import MatrixMessenger
from coterie.surfaces.telegram.settings import TelegramSettings
from tests.surfaces.telegram.bot_api import TOKEN, BotApi
from tests.surfaces.web.conftest import Web


@pytest.fixture
async def api(web: Web, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BotApi]:
    monkeypatch.setenv("COTERIE_PASSPHRASE", "open sesame")
    api = BotApi()
    async with api.running() as url:
        web.app.telegram._late.settings = TelegramSettings(api_url=url, poll_s=1)
        yield api
    assert api.violations == []


async def state(web: Web, wanted: str) -> dict[str, str]:
    async with asyncio.timeout(30):
        while (now := (await web.get("/messengers"))[0])["state"] != wanted:
            await asyncio.sleep(0.02)
    return dict(now)


async def test_p13_a_pasted_token_is_tested_stored_encrypted_and_used(web: Web, api: BotApi) -> None:
    async with web.app.telegram.running():
        assert (await web.get("/messengers"))[0]["state"] == "off"
        await web.post("/messengers/telegram", {"values": {"token": f" {TOKEN} "}})
        connected = await state(web, "connected")
        assert connected["account"] == "Coterie (@coterie_bot)" and connected["link"] == "https://t.me/coterie_bot"
        assert TOKEN not in web.home.config.read_text() and TOKEN not in web.home.secrets.read_text()
        assert load_settings(web.home).settings.telegram.token == SecretStr(TOKEN)
        opened = await web.post("/messengers/telegram/open")
        code = opened["link"].partition("?start=")[2]
        assert opened["qr"].startswith("<svg") and (await web.app.people.link(code, "telegram", "1")).is_owner
        await web.client.delete("/messengers/telegram")
        await state(web, "off")
        assert load_settings(web.home).settings.telegram.token is None


async def test_p13_what_does_not_work_is_said_and_changes_nothing(web: Web, api: BotApi) -> None:
    async with web.app.telegram.running():
        for token, sentence in (("", "missing"), ("123456:wrong", "wrong or was revoked")):
            answer = await web.client.post("/messengers/telegram", json={"values": {"token": token}})
            assert answer.status_code == 400 and sentence in answer.json()["error"] and answer.json()["fix"]
        api.down = True
        answer = await web.client.post("/messengers/telegram", json={"values": {"token": TOKEN}})
        assert answer.status_code == 400 and "Telegram" in answer.json()["error"]
        assert (await web.get("/messengers"))[0]["state"] == "off" and not web.home.secrets.exists()
        assert (await web.client.post("/messengers/icq", json={"values": {}})).status_code == 404
        assert (await web.client.post("/messengers/telegram/open")).status_code == 409


async def test_p13_the_page_shows_the_form_and_the_state(web: Web, api: BotApi, tmp_path: Path) -> None:
    await web.begin()
    await web.client.put("/you", json={"name": "Ana"})
    page = (await web.client.get("/settings", headers={"Accept": "text/html"})).text
    assert "Connect Telegram" in page and "@BotFather" in page and 'type="password"' in page
    async with web.app.telegram.running():
        await web.post("/messengers/telegram", {"values": {"token": TOKEN}})
        await state(web, "connected")
        part = (await web.client.get("/settings/messengers/telegram", headers={"Accept": "text/html"})).text
        assert "@coterie_bot" in part and "no message yet" in part
        api.token = "123456:renewed"
        await state(web, "retrying")
        part = (await web.client.get("/settings/messengers/telegram", headers={"Accept": "text/html"})).text
        assert "wrong or was revoked" in part and "BotFather" in part


async def test_p7_a_question_about_the_connection_is_shown_and_answered(
    web: Web, api: BotApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = MessengerQuestion(
        "t1", "Compare: <b>Dog</b>", (("match", "They match"), ("differ", "They do not match"))
    )
    status, answers = MessengerStatus("connected", "@bot:here", questions=(question,)), list[tuple[str, str]]()

    async def answer(_: MatrixMessenger, asked: str, choice: str) -> None:
        answers.append((asked, choice))

    monkeypatch.setattr(MatrixMessenger, "status", status)
    monkeypatch.setattr(MatrixMessenger, "answer", answer)
    part = (await web.client.get("/settings/messengers/matrix", headers={"Accept": "text/html"})).text
    assert "Compare: &lt;b&gt;Dog" in part and "They do not match" in part and 'data-choice="match"' in part
    shown = await web.post("/messengers/matrix/answer", {"question": "t1", "choice": "match"})
    assert answers == [("t1", "match")] and shown["questions"][0]["id"] == "t1"
    refused = await web.client.post("/messengers/telegram/answer", json={"question": "t1", "choice": "match"})
    assert refused.status_code == 404 and "no open question" in refused.json()["error"]


async def test_p7_p13_p14_a_server_that_never_answers_is_said_soon_with_what_to_do(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COTERIE_PASSPHRASE", "open sesame")
    monkeypatch.setattr("coterie.messaging.messengers._TEST_TIMEOUT_S", 0.5)
    never = asyncio.Event()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await never.wait()
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        web.app.telegram._late.settings = TelegramSettings(api_url=url)
        web.app.discord._late.settings = DiscordSettings(api_url=url)
        entered = {
            "telegram": {"token": TOKEN},
            "discord": {"token": "a-token"},
            "matrix": {"homeserver": url, "user": "@bot:here", "password": "quiet-harbour-81"},
        }
        for name, values in entered.items():
            answer = await web.client.post(f"/messengers/{name}", json={"values": values})
            assert answer.status_code == 400 and "does not answer in time" in answer.json()["error"], name
            assert "connect again" in answer.json()["fix"]
        never.set()
    answer = await web.client.post("/messengers/telegram", json={"values": {"token": TOKEN}})
    assert "cannot be reached" in answer.json()["error"] and "connect again" in answer.json()["fix"]
