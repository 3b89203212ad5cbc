"""The connection to Telegram: what is wrong is said, and it is healed without a restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from coterie.base.supervisor import Supervisor
from coterie.messaging.errors import PlatformUnreachable
from coterie.messaging.protocol import OutgoingReaction
from coterie.surfaces.telegram.routes import telegram_router
from coterie.surfaces.telegram.service import TelegramService, check_token, webhook_secret
from coterie.surfaces.telegram.settings import SECRET_HEADER, TelegramSettings
from tests.contracts.surface_app import SurfaceApp
from tests.surfaces.telegram.bot_api import BOT, TOKEN, BotApi
from tests.surfaces.telegram.platform import TelegramPlatform, telegram


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[SurfaceApp]:
    app = SurfaceApp(tmp_path / "coterie.db")
    await app.create_character()
    yield app
    await app.close()


@pytest.fixture
async def platform(app: SurfaceApp) -> AsyncIterator[TelegramPlatform]:
    async with telegram(app) as platform:
        await app.people.link_owner("telegram", platform.account("ana"))
        yield platform


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def settings(url: str, token: str = TOKEN) -> TelegramSettings:
    return TelegramSettings(token=SecretStr(token), api_url=url, poll_s=1)


async def test_p13_a_token_is_tested_and_says_who_the_bot_is() -> None:
    api = BotApi()
    async with api.running() as url:
        info = await check_token(settings(url))
        assert (info.username, info.link) == ("coterie_bot", "https://t.me/coterie_bot")
        with pytest.raises(PlatformUnreachable, match="wrong or was revoked"):
            await check_token(settings(url, "123456:another"))
        with pytest.raises(PlatformUnreachable, match="wrong or was revoked"):
            await check_token(settings(url, " "))
        api.down = True
        with pytest.raises(PlatformUnreachable):
            await check_token(settings(url))
    with pytest.raises(PlatformUnreachable, match="cannot be reached"):
        await check_token(settings(url))


async def test_p13_problems_are_reported_and_healed_without_a_restart(app: SurfaceApp) -> None:
    api, supervisor = BotApi(), Supervisor()
    async with api.running() as url:
        service = TelegramService(app.router, settings(url, "123456:revoked"), lambda _: None, supervisor)  # type: ignore[arg-type,return-value]
        async with service.running():
            await until(lambda: service.status.state == "retrying")
            assert "wrong or was revoked" in service.status.problem and "BotFather" in service.status.fix
            (state,) = [state for state in supervisor.states() if state.name == "Telegram"]
            assert state.status == "degraded" and "revoked" in state.error
            service.configure(settings(url))
            await until(lambda: service.status.state == "connected")
            assert service.status.account == "Coterie (@coterie_bot)"
            (state,) = [state for state in supervisor.states() if state.name == "Telegram"]
            assert state.status == "running"
            api.token = "123456:renewed"
            await until(lambda: service.status.state == "retrying")
            api.token = TOKEN
            await until(lambda: service.status.state == "connected")
            service.configure(TelegramSettings())
            await until(lambda: service.status.state == "off")
    assert api.violations == []
    await supervisor.stop()


async def test_p13_updates_come_by_webhook(app: SurfaceApp, platform: TelegramPlatform) -> None:
    platform.settings = platform.settings.model_copy(update={"webhook_url": "https://coterie.example"})
    await app.crash()
    await platform.restart()
    address, secret = platform.api.webhook
    assert address == "https://coterie.example/telegram/updates" and SECRET_HEADER.endswith("Secret-Token")
    assert secret == webhook_secret(platform.settings)
    platform.api.message(platform.user("ana"), platform.place("ana", "kitchen")[0], "hello")
    update = json.dumps(platform.api.updates[-1]).encode()
    web = FastAPI()
    web.include_router(telegram_router(SimpleNamespace(service=platform.service)))  # type: ignore[arg-type]
    transport = httpx.ASGITransport(web)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

        async def post(body: bytes, *secrets: str) -> int:
            headers = [(SECRET_HEADER, secret) for secret in secrets]
            return (await client.post("/telegram/updates", content=body, headers=headers)).status_code

        for wrong in ((), ("",), ("wrong",), (webhook_secret(TelegramSettings()),)):
            assert await post(update, *wrong) == 401
            assert await post(b"[" * 10, *wrong) == 401, "the secret is checked before the body is read"
        assert [await post(body, secret) for body in (b"[" * 10, b"[]", b"\xff", b"")] == [400] * 4
        assert await post(update, secret) == 204
        assert await post(update, secret) == 204, "Telegram repeats what it is not sure of"
    await app.router.wait_idle()
    assert [text for _, text in app.echo.received] == ["hello"]


async def test_p13_new_makes_a_topic_and_renames_follow_both_ways(app: SurfaceApp, platform: TelegramPlatform) -> None:
    await platform.say("ana", "kitchen", "hello", "k0")
    await platform.say("ana", "kitchen", "!new Garden", "k1")
    await app.router.wait_idle()
    chat = platform.place("ana", "kitchen")[0]["id"]
    (topic,) = [topic for (where, topic), name in platform.api.topics.items() if (where, name) == (chat, "Garden")]
    platform.api.message(platform.user("ana"), {"id": chat, "type": "private"}, "roses", topic)
    platform.api.message(platform.user("ana"), {"id": chat, "type": "private"}, "/rename Rose garden", topic)
    await platform.poll()
    await app.router.wait_idle()
    assert platform.api.topics[chat, topic] == "Rose garden"
    assert platform.api.in_chat(chat, topic)[0].text.startswith("roses [")
    platform.api.forums = False
    await platform.restart_service()
    await platform.say("ana", "kitchen", "!new Here", "k2")
    await app.router.wait_idle()
    assert "A new chat begins here" in platform.shown("kitchen")[-1], "without topics the chat itself starts over"


async def test_p13_what_falls_out_of_a_deleted_topic_is_removed(app: SurfaceApp, platform: TelegramPlatform) -> None:
    await platform.say("ana", "kitchen", "hello", "k0")
    await app.router.wait_idle()
    chat, topic = platform.place("ana", "kitchen")
    platform.api.topics[chat["id"], topic or 0] = "deleted"
    await platform.say("ana", "kitchen", "!chats", "k1")
    await app.router.wait_idle()
    assert platform.api.in_chat(chat["id"], None) == []
    (failed,) = app.router.delivery.outbox.uncertain()
    assert failed.state == "failed" and "topic was deleted" in failed.error


async def test_p13_a_code_in_the_link_to_the_bot_links_the_account(app: SurfaceApp, platform: TelegramPlatform) -> None:
    code = await app.people.issue_code("you", 15)
    await platform.say("bea", "hall", f"!start {code}", "k0")
    await app.router.wait_idle()
    assert app.people.by_account("telegram", platform.account("bea")) == app.people.person("you")


async def test_p13_commands_for_other_bots_and_bots_are_ignored(app: SurfaceApp, platform: TelegramPlatform) -> None:
    chat, _ = platform.place("ana", "square")
    platform.api.message(platform.user("ana"), chat, "/help@another_bot")
    platform.api.message({**platform.user("ana"), "is_bot": True}, chat, f"@{BOT['username']} hello")
    await platform.poll()
    await app.router.wait_idle()
    assert platform.api.sent == {}
    platform.api.message(platform.user("ana"), chat, f"/help@{BOT['username']}")
    await platform.poll()
    await app.router.wait_idle()
    assert len(platform.api.sent) == 1


async def test_p13_a_stranger_who_adds_the_bot_to_a_group_is_left(app: SurfaceApp, platform: TelegramPlatform) -> None:
    def added(who: str, chat: int) -> None:
        member = {"user": BOT, "status": "member"}
        change = {"chat": {"id": chat, "type": "group", "title": "G"}, "from": platform.user(who), "date": 1}
        platform.api.update(
            my_chat_member={**change, "old_chat_member": {"user": BOT, "status": "left"}, "new_chat_member": member}
        )

    added("mallory", -5)
    added("ana", -6)
    await platform.poll()
    await app.router.wait_idle()
    assert platform.api.left == {-5}
    (greeting,) = platform.api.in_chat(-6)
    assert "@coterie_bot" in greeting.text


async def test_p13_an_update_that_cannot_be_read_is_skipped(app: SurfaceApp, platform: TelegramPlatform) -> None:
    platform.api.update(message={"message_id": 5, "date": 1, "chat": {"id": 1, "type": "private"}, "from": {"id": 1}})
    await platform.say("ana", "kitchen", "still there?", "k0")
    await app.router.wait_idle()
    assert [text for _, text in app.echo.received] == ["still there?"]


async def test_p13_text_that_cannot_be_stored_does_not_stop_the_updates_after_it(
    app: SurfaceApp, platform: TelegramPlatform
) -> None:
    platform.api.message(platform.user("ana"), platform.place("ana", "kitchen")[0], "half a \ud83e crab")
    platform.api.update(callback_query={"id": "\ud800", "from": platform.user("ana"), "chat_instance": "1"})
    await platform.say("ana", "kitchen", "still there?", "k0")
    await app.router.wait_idle()
    assert sorted(text for _, text in app.echo.received) == ["half a \ufffd crab", "still there?"]


async def test_p13_500_messages_that_came_while_away_are_answered_once_in_order(
    app: SurfaceApp, platform: TelegramPlatform
) -> None:
    people = [f"person-{n}" for n in range(20)]
    for person in people:
        await app.people.link_owner("telegram", platform.account(person))
        platform.place(person, person)
    for n in range(25):
        for person in people:
            chat, topic = platform.place(person, person)
            platform.api.message(platform.user(person), chat, f"m{n}", topic)
    while await platform.service.poll_once(0):
        pass
    await app.router.wait_idle()
    for person in people:
        assert [text.partition(" [")[0] for text in platform.shown(person)] == [f"m{n}" for n in range(25)]


async def test_p1_an_emoji_that_is_no_reaction_of_telegram_is_written_as_a_reply(
    app: SurfaceApp, platform: TelegramPlatform
) -> None:
    key = await platform.say("ana", "kitchen", "hello", "k0")
    await app.router.wait_idle()
    room = platform.room_ref("kitchen")
    for n, emoji in enumerate(("\N{TEACUP WITHOUT HANDLE}", "\N{HEAVY BLACK HEART}\ufe0f")):
        await app.router.notify(OutgoingReaction(room=room, to=key, emoji=emoji), f"reaction-{n}")
    await app.router.wait_idle()
    assert app.router.delivery.outbox.uncertain() == []
    assert [(sent.text, str(sent.reply_to)) for sent in platform._sent("kitchen")][1:] == [
        ("\N{TEACUP WITHOUT HANDLE}", key)
    ]
    assert [call["reaction"][0]["emoji"] for name, call in platform.api.calls if name == "setMessageReaction"] == [
        "\N{HEAVY BLACK HEART}"
    ]
