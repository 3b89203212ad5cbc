"""The connection to Discord: what is wrong is said, it is healed without a restart, and nothing is missed."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from coterie.base.errors import MissingExtra
from coterie.base.supervisor import Supervisor
from coterie.messaging.errors import PlatformUnreachable
from coterie.messaging.protocol import Account, OutgoingNotification, RoomRef
from coterie.messaging.quarantine import SkippedInputs
from coterie.surfaces.discord.service import DiscordService
from coterie.surfaces.discord.settings import DiscordSettings
from coterie.surfaces.discord.setup import check_installed, check_token
from tests.contracts.surface_app import SurfaceApp
from tests.contracts.surface_contract import spoken
from tests.surfaces.discord.discord_server import BOT, CHANNEL, GUILD, TOKEN, DiscordServer
from tests.surfaces.discord.platform import DiscordPlatform, discord, settle, until


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[SurfaceApp]:
    app = SurfaceApp(tmp_path / "coterie.db")
    await app.create_character()
    yield app
    await app.close()


@pytest.fixture
async def platform(app: SurfaceApp) -> AsyncIterator[DiscordPlatform]:
    async with discord(app) as platform:
        await app.people.link_owner("discord", platform.account("ana"))
        yield platform


def settings(url: str, token: str = TOKEN) -> DiscordSettings:
    return DiscordSettings(token=SecretStr(token), api_url=url)


async def test_p14_a_token_is_tested_and_says_who_the_bot_is() -> None:
    server = DiscordServer()
    async with server.running() as url:
        info = await check_token(settings(url))
        assert info.name == "Coterie" and "client_id=500" in info.link and info.reads_content
        for token in ("another", " ", "not\x20one", "schlüssel"):
            with pytest.raises(PlatformUnreachable, match="wrong or was reset"):
                await check_token(settings(url, token))
        server.down = True
        with pytest.raises(PlatformUnreachable, match="answered 503"):
            await check_token(settings(url))
    with pytest.raises(PlatformUnreachable, match="cannot be reached"):
        await check_token(settings(url))


def test_p14_without_the_package_a_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"pip install \"coterie\[discord\]\""):
        check_installed()


async def test_p14_problems_are_reported_and_healed_without_a_restart(
    app: SurfaceApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.messaging.connection.backoff_s", lambda *_, **__: 0.05)
    server, supervisor = DiscordServer(), Supervisor()
    async with server.running() as url:
        service = DiscordService(app.router, settings(url, "revoked"), app.files_in_workspace, supervisor)
        async with service.running():
            await until(lambda: service.status.state == "retrying")
            assert "wrong or was reset" in service.status.problem and "developer portal" in service.status.fix
            (state,) = [state for state in supervisor.states() if state.name == "Discord"]
            assert state.status == "degraded" and "reset" in state.error
            service.configure(settings(url))
            await until(lambda: service.status.state == "connected")
            assert service.status.account == "Coterie" and service.status.note == ""
            (state,) = [state for state in supervisor.states() if state.name == "Discord"]
            assert state.status == "running"
            server.token = "MTIz.renewed"  # Discord closes the connections of the old one
            await server.close_sessions(4004)
            await until(lambda: service.status.state == "retrying")
            assert "wrong or was reset" in service.status.problem
            server.token = TOKEN
            await until(lambda: service.status.state == "connected")
            server.down = True
            await server.close_sessions(1001)
            await until(lambda: service.status.state == "retrying")
            assert "Discord" in service.status.problem
            server.down, server.reads_content = False, False
            await until(lambda: service.status.state == "connected")
            assert "Message Content Intent" in service.status.note
            service.configure(DiscordSettings())
            await until(lambda: service.status.state == "off")
    assert server.violations == []
    await supervisor.stop()


async def test_p14_a_cut_connection_is_resumed_and_nothing_is_missed(
    app: SurfaceApp, platform: DiscordPlatform
) -> None:
    await platform.say("ana", "kitchen", "one", "k0")
    await platform.server.cut()
    channel = await platform.place("ana", "kitchen")
    await platform.server.write(platform.server.user("ana"), channel, "two")
    await until(lambda: platform.server.resumed == 1)
    await settle(platform.server, platform.connection)
    await app.router.wait_idle()
    assert spoken(platform.shown("kitchen")) == ["one", "two"] and platform.server.identified == 1


async def test_p14_after_an_invalid_session_missed_messages_are_read(
    app: SurfaceApp, platform: DiscordPlatform
) -> None:
    user, server = platform.server.user("ana"), platform.server
    await platform.say("ana", "kitchen", "one", "k0")
    await app.router.wait_idle()
    server.muted = True
    sessions = dict(server.sessions)
    await server.write(user, await platform.place("ana", "kitchen"), "two")
    await server.write(user, server.direct_chat(user), "in private")
    await server.write(user, server.channels[CHANNEL], f"<@{BOT['id']}> in public")
    await server.write(user, server.channels[CHANNEL], "not for the bot")
    server.muted = False
    server.sessions.clear()
    for session in sessions.values():
        assert session.socket is not None
        await session.socket.close(code=4000)
    await until(lambda: server.identified == 2)
    await until(lambda: len(app.echo.received) == 4)
    await app.router.wait_idle()
    assert sorted(text for _, text in app.echo.received) == ["in private", "in public", "one", "two"]
    assert spoken(platform.shown("kitchen")) == ["one", "two"]


async def test_p14_what_came_while_the_server_was_off_is_answered_once(
    app: SurfaceApp, platform: DiscordPlatform
) -> None:
    user, server = platform.server.user("ana"), platform.server
    await platform.say("ana", "kitchen", "one", "k0")
    await app.router.wait_idle()
    await platform.disconnect()
    for text in ("two", "three"):
        await server.write(user, await platform.place("ana", "kitchen"), text)
    await server.rename(user, await platform.place("ana", "kitchen"), "Pantry")
    await platform.connect()
    await platform.restart()
    await app.router.wait_idle()
    assert spoken(platform.shown("kitchen")) == ["one", "two", "three"]
    assert app.router.chats.rooms.get(platform.room_ref("kitchen")).title == "Pantry"


async def test_p14_bots_webhooks_and_what_is_not_for_us_are_ignored(app: SurfaceApp, platform: DiscordPlatform) -> None:
    server, ana = platform.server, platform.server.user("ana")
    general = server.channels[CHANNEL]
    await server.write({**ana, "id": "77", "bot": True}, general, f"<@{BOT['id']}> hello")
    await server.write(ana, general, f"<@{BOT['id']}> hello", webhook_id="78")
    await server.write(ana, general, "nice weather")
    await settle(server, platform.connection)
    await app.router.wait_idle()
    assert app.echo.received == []
    await server.write(ana, general, f"<@{BOT['id']}>, what does <@{server.user('bea')['id']}> mean?")
    await server.write(ana, general, "<@&902> and by its role")
    await settle(server, platform.connection)
    await app.router.wait_idle()
    assert [text for _, text in app.echo.received] == ["what does @Bea mean?", "<@&902> and by its role"]


async def test_p14_commands_can_be_written_in_a_direct_chat(app: SurfaceApp, platform: DiscordPlatform) -> None:
    code = await app.people.issue_code("you", 15)
    bea = platform.server.user("bea")
    await platform.server.write(bea, platform.server.direct_chat(bea), f"!link {code}")
    await settle(platform.server, platform.connection)
    await app.router.wait_idle()
    assert app.people.by_account("discord", bea["id"]) == app.people.person("you")


async def test_p14_a_room_is_a_thread_and_a_second_one_is_not_made_after_a_crash(
    app: SurfaceApp, platform: DiscordPlatform
) -> None:
    surface, server = platform.surface, platform.server
    await platform.say("ana", "kitchen", "hello", "k0")
    await app.router.wait_idle()
    ana = Account(surface="discord", id=platform.account("ana"), name="Ana")
    asked, key = RoomRef(surface="discord", id=CHANNEL), f"interaction {server.next_id()}"
    first = await surface.create_room(ana, "Garden", key, asked)
    await settle(server, platform.connection)
    again = await surface.create_room(ana, "Garden", key, asked)
    assert first is not None and first == again and server.channels[first.id]["type"] == 12
    server.private_threads = False
    public = await surface.create_room(ana, "Garden", f"interaction {server.next_id()}", asked)
    assert public is not None and server.channels[public.id]["type"] == 11
    private = await surface.direct_room(ana)
    assert private is not None and await surface.create_room(ana, "No", key, private) is None


async def test_p14_no_message_notifies_people_and_notices_are_not_formatted(
    app: SurfaceApp, platform: DiscordPlatform
) -> None:
    app.echo.script["shout"] = "@everyone <@1000> **now**"
    await platform.say("ana", "kitchen", "shout", "k0")
    await app.router.wait_idle()
    await app.router.notify(OutgoingNotification(room=platform.room_ref("kitchen"), text="a_b_c *d*"), "n1")
    await app.router.wait_idle()
    texts = [sent.text for sent in platform.server.in_channel(platform.room_ref("kitchen").id)]
    assert texts == ["@everyone <@1000> **now**", r"a\_b\_c \*d\*"]  # the server checks allowed_mentions


async def test_p14_server_errors_are_retried_and_the_nonce_keeps_the_message_single(
    app: SurfaceApp, platform: DiscordPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.messaging.delivery.backoff_s", lambda *_, **__: 0.01)
    platform.fail_next("taken, then hung up", "patience", "hung up", "taken, then hung up")
    await platform.say("ana", "kitchen", "hello", "k0")
    await app.router.wait_idle()
    assert spoken(platform.shown("kitchen")) == ["hello"] and app.router.delivery.outbox.uncertain() == []


async def test_p14_after_the_window_of_the_nonce_a_repeated_send_is_marked(
    app: SurfaceApp, platform: DiscordPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.messaging.delivery.backoff_s", lambda *_, **__: 0.1)
    platform.surface.capabilities = replace(platform.surface.capabilities, dedupe_window_s=0.05)
    platform.server.nonce_window_s = 0.05
    platform.fail_next("taken, then hung up")
    await platform.say("ana", "kitchen", "!help", "k0")
    await app.router.wait_idle()
    (message,) = app.router.delivery.outbox.uncertain()
    assert message.perhaps_twice and len(platform.shown("kitchen")) == 2


async def test_p14_who_leaves_the_server_leaves_its_rooms(app: SurfaceApp) -> None:
    server = DiscordServer(sees_members=True)
    async with server.running() as url:
        platform = DiscordPlatform(server, url, app)
        await platform.connect()
        await app.people.link_owner("discord", platform.account("ana"))
        ana = server.user("ana")
        await server.write(ana, server.channels[CHANNEL], f"<@{BOT['id']}> hello")
        await settle(server, platform.connection)
        await app.router.wait_idle()
        await server.dispatch("GUILD_MEMBER_REMOVE", {"guild_id": GUILD, "user": ana})
        await until(lambda: GUILD in server.left)
        await app.router.wait_idle()
        assert app.router.chats.rooms.on_surface("discord") == []
        await platform.close()


async def test_p14_typing_is_shown_while_an_answer_is_written(app: SurfaceApp, platform: DiscordPlatform) -> None:
    assert platform.surface.capabilities.typing_repeat_s == 8.0
    platform.surface.capabilities = replace(platform.surface.capabilities, typing_repeat_s=0.02)
    app.echo.gate = asyncio.Event()
    await platform.say("ana", "kitchen", "hello", "k0")
    path = f"/channels/{platform.room_ref('kitchen').id}/typing"
    await until(lambda: platform.server.calls.count(("POST", path)) >= 3)
    app.echo.gate.set()
    await app.router.wait_idle()


async def test_p14_500_messages_that_came_while_away_are_answered_once_in_order(
    app: SurfaceApp, platform: DiscordPlatform
) -> None:
    rooms = [f"room-{n}" for n in range(20)]
    for room in rooms:
        await platform.say("ana", room, "begin", f"k-{room}")
    await app.router.wait_idle()
    await platform.disconnect()
    for n in range(25):
        for room in rooms:
            await platform.server.write(platform.server.user("ana"), await platform.place("ana", room), f"m{n}")
    await platform.connect()
    await app.router.wait_idle()
    for room in rooms:
        assert spoken(platform.shown(room)) == ["begin", *(f"m{n}" for n in range(25))]


@pytest.mark.parametrize("damage", [{"author": {"id": "x"}}, {"attachments": [7]}])
async def test_p14_a_missed_message_that_the_library_cannot_read_stops_only_its_room(
    app: SurfaceApp, platform: DiscordPlatform, damage: dict[str, object]
) -> None:
    ana, server = platform.server.user("ana"), platform.server
    for room in ("kitchen", "cellar"):
        await platform.say("ana", room, "one", f"k-{room}")
    await app.router.wait_idle()
    await platform.disconnect()
    await server.write(ana, await platform.place("ana", "kitchen"), "two", **damage)
    await server.write(ana, await platform.place("ana", "cellar"), "two")
    await platform.connect()
    await app.router.wait_idle()
    assert spoken(platform.shown("cellar")) == ["one", "two"]
    await platform.say("ana", "kitchen", "three", "k3")
    await app.router.wait_idle()
    assert spoken(platform.shown("kitchen")) == ["one", "three"]
    assert SkippedInputs(app.store).counts() == {"discord": 1}
