"""The contract of surfaces. An adapter's test module subclasses it and provides `platform`, attached to `app`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coterie.base.errors import CoterieError
from coterie.characters.service import OWNER
from tests.contracts.loopback import Platform
from tests.contracts.surface_app import SurfaceApp

ROOMS = 50


def context_in(text: str) -> str:
    return text.partition("[")[2].rstrip("]")


class SurfaceContract:
    messages_per_room = 4
    """Messages in each of fifty chats."""

    @pytest.fixture
    async def app(self, tmp_path: Path) -> AsyncIterator[SurfaceApp]:
        app = SurfaceApp(tmp_path / "coterie.db")
        await app.create_character()
        yield app
        await app.close()

    @pytest.fixture(autouse=True)
    async def ana(self, app: SurfaceApp, platform: Platform) -> None:
        await app.people.link_owner(platform.surface.name, "ana")

    async def crash(self, app: SurfaceApp, platform: Platform) -> None:
        await app.crash()
        platform.reconnect(app.router)

    async def test_p2_a_message_is_answered_in_its_room(self, app: SurfaceApp, platform: Platform) -> None:
        await platform.say("ana", "kitchen", "Hello?", "1")
        await app.router.wait_idle()
        (answer,) = platform.shown("kitchen")
        assert answer.startswith("Hello? [echo:")

    async def test_p4_fifty_chats_at_once_and_no_answer_in_the_wrong_room(
        self, app: SurfaceApp, platform: Platform
    ) -> None:
        app.echo.pause_s = 0.001
        rooms, chance = list(range(ROOMS)), random.Random(3)
        for n in range(self.messages_per_room):
            chance.shuffle(rooms)
            messages = (platform.say("ana", f"room-{room}", f"m{n} in {room}", f"{room}.{n}") for room in rooms)
            await asyncio.gather(*messages)
        await app.router.wait_idle()
        contexts = set()
        for number in range(ROOMS):
            shown = platform.shown(f"room-{number}")
            assert [text.partition(" [")[0] for text in shown] == [
                f"m{n} in {number}" for n in range(self.messages_per_room)
            ]
            (context,) = {context_in(text) for text in shown}
            contexts.add(context)
        assert len(contexts) == ROOMS

    async def test_p4_a_repeated_delivery_is_handled_once(self, app: SurfaceApp, platform: Platform) -> None:
        await platform.say("ana", "kitchen", "once", "k1", times=3)
        await app.router.wait_idle()
        await platform.say("ana", "kitchen", "once", "k1")
        await platform.say("ana", "kitchen", "twice", "k2")
        await app.router.wait_idle()
        assert [text.partition(" [")[0] for text in platform.shown("kitchen")] == ["once", "twice"]
        assert [text for _, text in app.echo.received] == ["once", "twice"]

    async def test_p4_a_crash_before_the_answer_loses_nothing(self, app: SurfaceApp, platform: Platform) -> None:
        app.echo.gate = asyncio.Event()
        for n in range(5):
            await platform.say("ana", "kitchen", f"m{n}", f"k{n}")
        await asyncio.sleep(0.05)
        await self.crash(app, platform)
        app.echo.gate = None
        await app.router.wait_idle()
        assert [text.partition(" [")[0] for text in platform.shown("kitchen")] == [f"m{n}" for n in range(5)]

    async def test_p4_a_crash_after_the_platform_took_it_is_answered_in_order(
        self, app: SurfaceApp, platform: Platform
    ) -> None:
        platform.fail_next("stuck after taking")
        await platform.say("ana", "kitchen", "m0", "k0")
        await platform.say("ana", "kitchen", "m1", "k1")
        await asyncio.sleep(0.1)
        await self.crash(app, platform)
        await app.router.wait_idle()
        shown = [text.partition(" [")[0] for text in platform.shown("kitchen")]
        if platform.surface.capabilities.deduplicates:
            assert shown == ["m0", "m1"]
        else:
            assert shown == ["m0", "m0", "m1"] or shown == ["m0", "m1"]
            assert len(shown) - 2 == len(app.router.delivery.outbox.uncertain())

    async def test_p4_rate_limits_and_broken_connections_keep_the_order(
        self, app: SurfaceApp, platform: Platform, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("coterie.messaging.delivery.backoff_s", lambda *_, **__: 0.01)
        platform.fail_next("patience", "hung up", "patience", "hung up")
        for n in range(3):
            await platform.say("ana", "kitchen", f"m{n}", f"k{n}")
        await app.router.wait_idle()
        assert [text.partition(" [")[0] for text in platform.shown("kitchen")] == ["m0", "m1", "m2"]
        assert app.router.delivery.outbox.uncertain() == []

    async def test_p4_an_ambiguous_send_is_repeated_and_marked(
        self, app: SurfaceApp, platform: Platform, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("coterie.messaging.delivery.backoff_s", lambda *_, **__: 0.01)
        platform.fail_next("taken, then hung up")
        await platform.say("ana", "kitchen", "!help", "k")
        await app.router.wait_idle()
        shown, uncertain = platform.shown("kitchen"), app.router.delivery.outbox.uncertain()
        if platform.surface.capabilities.deduplicates:
            assert (len(shown), len(uncertain)) == (1, 0)
        else:
            assert (len(shown), len(uncertain)) == (2, 1)
            assert uncertain[0].perhaps_twice

    async def test_p4_a_refused_message_is_recorded_as_failed_and_the_rest_follows(
        self, app: SurfaceApp, platform: Platform
    ) -> None:
        platform.fail_next("refused")
        await platform.say("ana", "kitchen", "!help", "k0")
        await platform.say("ana", "kitchen", "still there?", "k1")
        await app.router.wait_idle()
        assert [text.partition(" [")[0] for text in platform.shown("kitchen")] == ["still there?"]
        (failed,) = app.router.delivery.outbox.uncertain()
        assert failed.state == "failed" and "Not this." in failed.error

    async def test_p5_a_long_reply_is_streamed_and_ends_byte_exact(self, app: SurfaceApp, platform: Platform) -> None:
        chance = random.Random(11)
        words = [
            chance.choice(["tide", "lämp", "“storm”", "eis\n\n", "…", "`code`", "wind. ", "🌊"]) for _ in range(4_000)
        ]
        text = " ".join(words)[:20_000].strip()
        app.echo.script["tell me all"] = text
        app.echo.pause_s = 0.0005
        for _ in range(8):
            platform.fail_next("patience")
        await platform.say("ana", "kitchen", "tell me all", "k")
        await app.router.wait_idle()
        shown = platform.shown("kitchen")
        assert "".join(shown).encode() == text.encode()
        assert all(
            platform.surface.capabilities.length_of(part) <= platform.surface.capabilities.max_length for part in shown
        )
        assert 1 <= platform.most_edits() <= 31

    async def test_p5_a_crash_while_streaming_leaves_one_complete_message(
        self, app: SurfaceApp, platform: Platform
    ) -> None:
        text = " ".join(f"word{n}" for n in range(400))
        app.echo.script["go"] = text
        app.echo.pause_s = 0.01
        await platform.say("ana", "kitchen", "go", "k")
        async with asyncio.timeout(10):
            while not platform.shown("kitchen"):
                await asyncio.sleep(0.005)
        await self.crash(app, platform)
        app.echo.pause_s = 0
        await app.router.wait_idle()
        shown, uncertain = platform.shown("kitchen"), app.router.delivery.outbox.uncertain()
        assert shown[-1] == text
        # Without deduplication a preview whose id was lost stays, and is reported as uncertain.
        assert len(shown) - 1 == len(uncertain)
        assert not (uncertain and platform.surface.capabilities.deduplicates)

    async def test_p1_a_failing_backend_is_one_sentence_and_other_rooms_go_on(
        self, app: SurfaceApp, platform: Platform
    ) -> None:
        refused = CoterieError("Nobody answers at the other end.", "Try again later.")
        app.echo.exceptions = {"refuse": refused, "garbage": ValueError("\x00 is no JSON"), "cut": TimeoutError()}
        app.echo.reply_errors = {"halfway": "The line broke off. Write !retry to hear it again."}
        app.echo.script = {"halfway": "Half a "}
        for n, text in enumerate(["refuse", "garbage", "cut", "halfway"]):
            await platform.say("ana", text, text, f"k{n}")
        await platform.say("ana", "elsewhere", "all well?", "k9")
        await app.router.wait_idle()
        assert platform.shown("refuse") == ["Nobody answers at the other end. Try again later."]
        for room in ("garbage", "cut"):
            (notice,) = platform.shown(room)
            assert "went wrong" in notice and "JSON" not in notice
        assert platform.shown("halfway") == ["Half a ", "The line broke off. Write !retry to hear it again."]
        assert platform.shown("elsewhere")[0].startswith("all well?")

    async def test_p3_a_stranger_gets_no_character_no_rooms_and_no_memory(
        self, app: SurfaceApp, platform: Platform
    ) -> None:
        await platform.say("ana", "kitchen", "a secret", "k0")
        for n, text in enumerate(["Who is there?", "!chats", "!agent", "!context", "!link WRONG", "!approve X"]):
            await platform.say("mallory", "cellar", text, f"k{n}")
        await platform.say("mallory", "kitchen", "!chats", "k-in")
        await app.router.wait_idle()
        texts = "\n".join(platform.shown("cellar") + platform.shown("kitchen")[1:])
        assert "do not know you yet" in texts and "is not valid" in texts
        assert not any(word in texts for word in ("Echo", "secret", "kitchen", "echo:"))
        assert [text for _, text in app.echo.received] == ["a secret"]

    async def test_p3_a_code_links_an_account_once(self, app: SurfaceApp, platform: Platform) -> None:
        code = await app.people.issue_code(OWNER, 15)
        await platform.say("bea", "hall", f"!link {code}", "k0")
        await platform.say("mallory", "cellar", f"!link {code}", "k1")
        await app.router.wait_idle()
        assert app.people.by_account(platform.surface.name, platform.account("bea")) == app.people.person(OWNER)
        assert app.people.by_account(platform.surface.name, platform.account("mallory")) is None
        await platform.say("bea", "hall", "it is me", "k2")
        await app.router.wait_idle()
        assert platform.shown("hall")[-1].startswith("it is me")

    async def test_p3_a_code_expires(self, app: SurfaceApp, platform: Platform) -> None:
        code = await app.people.issue_code(OWNER, -1)
        await platform.say("bea", "hall", f"!link {code}", "k0")
        await app.router.wait_idle()
        assert app.people.by_account(platform.surface.name, platform.account("bea")) is None
        assert any("is not valid" in text for text in platform.shown("hall"))

    async def test_p3_a_chat_is_for_its_person_and_invited_guests(self, app: SurfaceApp, platform: Platform) -> None:
        app.settings = app.settings.model_copy(update={"burst_quiet_s": 0.0, "burst_most_s": 0.0})
        await self.crash(app, platform)
        bea, code = await app.people.invite("Bea", 15)
        await platform.say("bea", "hall", f"!link {code}", "k0")
        await platform.say("ana", "kitchen", "ours", "k1")
        await app.router.wait_idle()
        await platform.say("bea", "kitchen", "let me in", "k2")
        await platform.say("bea", "kitchen", "!context", "k3")
        await app.router.wait_idle()
        assert [text for _, text in app.echo.received] == ["ours"]
        assert all("somebody else's" in text for text in platform.shown("kitchen")[1:])
        await platform.say("ana", "kitchen", "!invite bea", "k4")
        await app.router.wait_idle()
        await platform.say("bea", "kitchen", "thank you", "k5")
        await app.router.wait_idle()
        context = context_in(platform.shown("kitchen")[0])
        assert app.echo.received[-1] == (context, "thank you") and app.echo.added_people == [(context, bea.id)]
        await platform.say("bea", "elsewhere", "and alone?", "k6")
        await app.router.wait_idle()
        assert "no character" in platform.shown("elsewhere")[-1], "let into one chat is not let to the character"

    async def test_p8_the_mode_of_a_new_chat_can_be_chosen(self, app: SurfaceApp, platform: Platform) -> None:
        await platform.say("ana", "kitchen", "!help", "k0")
        await platform.say("ana", "kitchen", "!new other Tea time", "k1")
        await platform.say("ana", "kitchen", "!new otherworldly", "k2")
        await app.router.wait_idle()
        assert "modes: echo, other" in platform.shown("kitchen")[0]
        rooms = app.router.chats.rooms.on_surface(platform.surface.name)
        if platform.surface.capabilities.can_create_rooms:
            modes = {room.title: room.mode for room in rooms}
            assert (modes["Tea time"], modes["otherworldly"]) == ("other", "echo")
        else:
            (room,) = rooms
            assert room.mode == "other", "the second is of the kind that the room had"

    async def test_p8_p9_confirmations_survive_a_restart(self, app: SurfaceApp, platform: Platform) -> None:
        await platform.say("ana", "kitchen", "one", "k0")
        await platform.say("ana", "kitchen", "!clear", "k1")
        await app.router.wait_idle()
        await self.crash(app, platform)
        await platform.say("ana", "kitchen", "!yes", "k2")
        await platform.say("ana", "kitchen", "two", "k3")
        await platform.say("ana", "kitchen", "!load", "k4")
        await app.router.wait_idle()
        await self.crash(app, platform)
        await platform.say("ana", "kitchen", "1", "k5")
        await platform.say("ana", "kitchen", "three", "k6")
        await app.router.wait_idle()
        spoken = [text for text in platform.shown("kitchen") if text.endswith("]")]
        one, two, three = map(context_in, spoken)
        assert one == three != two, "P9: what was cleared can be loaded again"
