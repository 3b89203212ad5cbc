"""Twitch in a crowd room: reading, rulings, sending, reconnects, and hostile lines, on a chat server of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from bench.lib.twitch_server import TwitchServer, escape_tag, privmsg, settle
from coterie.app import all_projections
from coterie.base.clock import SystemClock
from coterie.base.supervisor import Supervisor
from coterie.eventstore import Store
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.memory import Memory
from coterie.modes.crowd import (
    ChatAuthor,
    ChatMessage,
    ChatPost,
    CrowdRuled,
    CrowdService,
    CrowdSettings,
    Gateway,
    RoomTwitch,
)
from coterie.surfaces.twitch import IrcLine, TwitchBridge, TwitchService, TwitchSettings

LIMITS = "[limits]\nburst = 100\nper_minute = 1000\n"
ROOM = f'name = "attic"\ntitle = "The attic"\nroster = ["salt_lamp", "nonna_exe"]\n{LIMITS}'


class Channel:
    def __init__(self, folder: Path) -> None:
        (folder / "configs" / "rooms").mkdir(parents=True)
        self.file = folder / "configs" / "rooms" / "attic.toml"
        self.file.write_text(ROOM)
        self.store = Store.open(folder / "coterie.db", projections=all_projections())
        clock = SystemClock()
        self.models = Models(ModelsSettings(), store=self.store)
        self.supervisor = Supervisor(clock)
        self.crowd = CrowdService(
            self.store,
            Memory(self.store, clock=clock),
            self.models,
            clock,
            folder / "configs",
            CrowdSettings(),
            self.supervisor,
        )
        self.server = TwitchServer("streamer", token="secret7")
        self.settings = TwitchSettings()

    async def start(self) -> None:
        await self.server.start()
        self.settings = TwitchSettings(
            url=self.server.url, account="botty", token=SecretStr("oauth:secret7"), per_30_s=3
        )

    async def gateway(self) -> Gateway:
        return (await self.crowd.room("attic")).gateway

    async def bridge(self, send: str = "nothing") -> asyncio.Task[None]:
        twitch = RoomTwitch.model_validate({"channel": "Streamer", "send": send})
        bridge = TwitchBridge(await self.gateway(), self.store.bus, self.settings, twitch)
        task = asyncio.create_task(bridge.run())
        await settle(lambda: len(self.server.joined) >= (2 if send == "nothing" else 3))
        return task

    async def messages(self, count: int) -> list[ChatMessage]:
        gateway = await self.gateway()
        await settle(lambda: len(gateway.latest(100_000)) >= count)
        return gateway.latest(100_000)

    async def stop(self) -> None:
        await self.crowd.close()
        await self.supervisor.stop()
        await self.models.close()
        await self.server.stop()
        self.store.close()


@pytest.fixture
async def channel(tmp_path: Path) -> AsyncIterator[Channel]:
    opened = Channel(tmp_path)
    await opened.start()
    yield opened
    await opened.stop()


async def cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_viewers_appear_once_with_replies_badges_and_mentions(channel: Channel) -> None:
    task = await channel.bridge()
    await channel.server.send(
        [
            privmsg("streamer", "ana", "@salt_lamp hello; is it warm?", "id-1", display="Ana"),
            privmsg("streamer", "ben", "\x01ACTION waves\x01", "id-2", reply_to="id-1", display="ベン"),
        ]
    )
    first, second = await channel.messages(2)
    assert (first.author.name, first.author.badges, first.author.colour) == ("Ana", ("subscriber",), "#1e90ff")
    assert first.mentions == ("salt_lamp",)
    assert (second.author.name, second.text, second.reply_to) == ("ben", "waves", first.id)
    await channel.server.ping()
    await settle(lambda: all(viewer.pongs for viewer in channel.server.joined))
    await cancel(task)
    assert not channel.server.problems


async def test_a_viewer_called_like_a_persona_is_told_apart(channel: Channel) -> None:
    task = await channel.bridge()
    await channel.server.send([privmsg("streamer", "sa1t_lamp", "I am the real one", "id-1")])
    await channel.server.send([privmsg("streamer", "sa1t_lamp", "no really, I am", "id-2")])
    messages = await channel.messages(2)
    assert [(message.author.name, message.author.kind) for message in messages] == [("sa1t_lamp (Twitch)", "human")] * 2
    await cancel(task)


async def test_deletions_timeouts_and_bans_become_rulings(channel: Channel) -> None:
    task = await channel.bridge()
    gateway = await channel.gateway()
    lines = [privmsg("streamer", name, f"line of {name} number {n}", f"{name}-{n}") for n in (1, 2) for name in "abc"]
    await channel.server.send(lines)
    await channel.messages(6)
    await channel.server.send(
        [
            "@login=a;target-msg-id=a-1;tmi-sent-ts=5 :tmi.twitch.tv CLEARMSG #streamer :line of a number 1",
            "@ban-duration=600;room-id=1;tmi-sent-ts=6 :tmi.twitch.tv CLEARCHAT #streamer :b",
            "@room-id=1;tmi-sent-ts=7 :tmi.twitch.tv CLEARCHAT #streamer :c",
        ]
    )
    await settle(lambda: sum("deleted" in each.text for each in gateway.latest(10)) == 5)
    assert [each.author.name for each in gateway.latest(10) if "deleted" not in each.text] == ["a"]
    await channel.server.send([privmsg("streamer", name, f"{name} again", f"{name}-9") for name in "abc"])
    assert (await channel.messages(7))[-1].text == "a again"
    rulings = [event.payload.what for event in channel.store.reader.read("room:attic", kinds=["crowd_ruled"])]  # type: ignore[attr-defined]
    assert sorted(rulings) == ["ban", *["delete"] * 5, "timeout"], "two connections make one ruling each"
    await cancel(task)
    restarted = CrowdService(
        channel.store, Memory(channel.store), channel.models, SystemClock(), channel.file.parent.parent, CrowdSettings()
    )
    again = (await restarted.room("attic")).gateway
    assert sum("deleted" in each.text for each in again.latest(10)) == 5, "what was deleted stays so"
    await restarted.close()


async def test_a_reconnect_does_not_wait_until_a_busy_chat_is_silent(channel: Channel) -> None:
    task = await channel.bridge()
    gateway = await channel.gateway()
    sent = 0

    async def chatter() -> None:
        nonlocal sent
        while True:
            sent += 1
            await channel.server.send([privmsg("streamer", f"u{sent % 90}", f"thought number {sent}", f"id-{sent}")])
            await asyncio.sleep(0.05)

    chatting = asyncio.create_task(chatter())
    await channel.messages(5)
    await channel.server.send([":tmi.twitch.tv RECONNECT"])
    await settle(lambda: channel.server.joins >= 4)
    later = sent + 60  # written long after both have joined again
    await settle(lambda: any(int(each.text.split()[-1]) >= later for each in gateway.latest(1_000)))
    await cancel(chatting)
    numbers = [int(each.text.split()[-1]) for each in await channel.messages(sent)]
    assert sorted(numbers) == list(range(1, sent + 1))
    await cancel(task)


async def test_a_ban_that_was_lifted_on_twitch_is_lifted_here_but_no_other(channel: Channel) -> None:
    task = await channel.bridge()
    gateway = await channel.gateway()
    await channel.server.send(
        [privmsg("streamer", name, f"{name} first", f"{name}-1", sent_ms=1_000) for name in "abc"]
    )
    await channel.messages(3)
    ban = "room-id=1;tmi-sent-ts=5000 :tmi.twitch.tv CLEARCHAT #streamer :"
    await channel.server.send([f"@ban-duration=600;{ban}a", f"@{ban}b", f"@{ban}c"])
    await settle(lambda: sum("deleted" in each.text for each in gateway.latest(10)) == 3)
    await gateway.moderate(CrowdRuled(what="ban", at_ms=gateway.now_ms(), who="c", by="you"))
    late = [privmsg("streamer", name, f"{name} was slow", f"{name}-2", sent_ms=4_000) for name in "abc"]
    again = [privmsg("streamer", name, f"{name} again", f"{name}-3", sent_ms=6_000) for name in "abc"]
    await channel.server.send([*late, *again, privmsg("streamer", "d", "d last", "d-1", sent_ms=7_000)])

    def shown() -> list[str]:
        return sorted(each.text for each in gateway.latest(10) if "deleted" not in each.text)

    await settle(lambda: len(shown()) >= 3)
    await channel.server.send([privmsg("streamer", "d", "d at last", "d-2", sent_ms=8_000)])
    await settle(lambda: "d at last" in shown())
    assert shown() == ["a again", "b again", "d at last", "d last"], "what the room's own moderator decided stays"
    await cancel(task)


async def test_a_cleared_channel_is_cleared_here(channel: Channel) -> None:
    task = await channel.bridge()
    gateway = await channel.gateway()
    lamp = ChatPost(id="p1", room="attic", author=ChatAuthor(name="salt_lamp", kind="persona"), text="a warm thought")
    await gateway.post(lamp)
    await channel.server.send([privmsg("streamer", "ana", f"line {number}", f"id-{number}") for number in range(5)])
    await channel.messages(6)
    await channel.server.send(["@room-id=1;tmi-sent-ts=9 :tmi.twitch.tv CLEARCHAT #streamer"])
    await settle(lambda: sum("deleted" in each.text for each in gateway.latest(10)) == 5)
    assert [each.text for each in gateway.latest(10) if "deleted" not in each.text] == ["a warm thought"]
    await cancel(task)


async def test_lost_connections_and_reconnects_lose_and_double_nothing(channel: Channel) -> None:
    task = await channel.bridge()
    sent = 0

    async def say(count: int) -> None:
        nonlocal sent
        for _ in range(count):
            sent += 1
            await channel.server.send([privmsg("streamer", f"u{sent % 9}", f"thought number {sent}", f"id-{sent}")])

    await say(10)
    await channel.server.cut(channel.server.joined[0])
    await say(10)
    await settle(lambda: len(channel.server.joined) == 2)
    await say(5)
    await channel.server.send([":tmi.twitch.tv RECONNECT"])
    await say(20)
    await settle(lambda: channel.server.joins >= 5)
    await say(5)
    messages = await channel.messages(sent)
    assert sorted(int(message.text.split()[-1]) for message in messages) == list(range(1, sent + 1))
    await cancel(task)
    assert not channel.server.problems


async def test_a_raid_is_a_notice_and_a_resubscription_carries_the_viewers_text(channel: Channel) -> None:
    task = await channel.bridge()
    notice = escape_tag("15 raiders from TestChannel have joined; welcome!")
    await channel.server.send(
        [
            f"@id=n-1;login=testchannel;msg-id=raid;system-msg={notice} :tmi.twitch.tv USERNOTICE #streamer",
            f"@id=n-2;login=ana;display-name=Ana;msg-id=resub;system-msg={escape_tag('Ana subscribed')} "
            ":tmi.twitch.tv USERNOTICE #streamer :thanks for the soup",
        ]
    )
    messages = await channel.messages(3)
    assert [(message.author.kind, message.author.name, message.text) for message in messages] == [
        ("system", "Twitch", "15 raiders from TestChannel have joined; welcome!"),
        ("system", "Twitch", "Ana subscribed"),
        ("human", "Ana", "thanks for the soup"),
    ]
    await cancel(task)


async def test_lines_of_personas_are_sent_only_if_allowed_and_within_the_limit(channel: Channel) -> None:
    gateway = await channel.gateway()
    lamp = ChatAuthor(name="salt_lamp", kind="persona")

    async def speak(number: int, reply_to: str | None = None) -> None:
        text = f"warm thought number {number}"
        await gateway.post(ChatPost(id=f"s{number}", room="attic", author=lamp, text=text, reply_to=reply_to))

    task = await channel.bridge()
    await speak(1)
    await cancel(task)
    await settle(lambda: not channel.server.joined)
    task = await channel.bridge("answers")
    await channel.server.send([privmsg("streamer", "ana", "@salt_lamp hello", "id-1")])
    question = (await channel.messages(2))[-1]
    await speak(2)
    for number in range(3, 8):
        await speak(number, question.id)
    await settle(lambda: len(channel.server.said) >= 3)
    await asyncio.sleep(0.2)
    assert channel.server.said == [f"salt_lamp: warm thought number {number}" for number in (3, 4, 5)]
    await channel.server.send([privmsg("streamer", "botty", channel.server.said[0], "id-2")])
    await channel.server.send([privmsg("streamer", "ana", "thanks", "id-3")])
    assert "botty" not in {message.author.name for message in await channel.messages(9)}, (
        "its own lines do not come back"
    )
    await cancel(task)
    assert not channel.server.problems


async def test_a_channel_in_a_rooms_file_applies_without_a_restart(channel: Channel) -> None:
    service = TwitchService(channel.crowd, channel.store.bus, channel.settings, channel.supervisor)
    await service.update()
    assert not channel.server.joined
    channel.file.write_text(ROOM + '[twitch]\nchannel = "streamer"\n')
    await service.update()
    await settle(lambda: len(channel.server.joined) == 2)
    channel.file.write_text(ROOM)
    await service.update()
    await settle(lambda: not channel.server.joined)


async def test_hostile_lines_stop_nothing(channel: Channel) -> None:
    task = await channel.bridge()
    for line in (
        "",
        ":",
        "@",
        "@a",
        "@id=1 :x PRIVMSG",
        "@id=\\ :x!x@x PRIVMSG #streamer :\u202e\x00",
        "@id=ok-1 :ana!a@a PRIVMSG #streamer :" + "\u202e\x07\x00 ",
        "@id=ok-2;color=#zzzzzz;badges=//,, :ana!a@a PRIVMSG #streamer :" + "x" * 5_000,
        "@id=../../etc :ana!a@a PRIVMSG #streamer :path",
        "@ban-duration=-1 :tmi CLEARCHAT #streamer :",
        "CLEARMSG",
        "USERNOTICE",
    ):
        await channel.server.send([line])
    await channel.server.send([privmsg("streamer", "ana", "still here", "id-9")])
    messages = await channel.messages(2)
    assert [len(message.text) for message in messages[:-1]] == [500]
    assert messages[-1].text == "still here"
    await cancel(task)


@given(st.text(max_size=300))
def test_any_text_is_a_line_or_none(raw: str) -> None:
    line = IrcLine.parse(raw)
    assert line is None or line.command


@given(st.dictionaries(st.from_regex(r"[a-z-]{1,10}", fullmatch=True), st.text(max_size=30), max_size=5))
def test_tags_come_back_as_they_were_sent(tags: dict[str, str]) -> None:
    tags = {key: value.replace("\x00", "") for key, value in tags.items()}
    head = ";".join(f"{key}={escape_tag(value)}" for key, value in tags.items())
    line = IrcLine.parse(f"@{head} PING" if tags else "PING")
    assert line is not None
    assert dict(line.tags) == tags
