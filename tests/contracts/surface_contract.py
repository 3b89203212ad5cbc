"""The contract of surfaces. An adapter's test module subclasses it and provides `platform`, attached to `app`."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coterie.base.errors import CoterieError
from coterie.characters.identity import Identity
from coterie.characters.service import OWNER
from coterie.messaging.protocol import OutgoingMessage, OutgoingNotification, OutgoingReaction, OutgoingUI
from tests.contracts.loopback import Feature, Platform
from tests.contracts.surface_app import SurfaceApp

ROOMS = 50
CODE = re.compile(r"\b[A-Z2-9]{5}-?[A-Z2-9]{5}\b")


def context_in(text: str) -> str:
    return text.partition("[")[2].rstrip("]")


def need(platform: Platform, *features: Feature) -> None:
    if missing := set(features) - platform.features:
        pytest.skip(f"the platform has no {', '.join(sorted(missing))}")


def spoken(texts: list[str]) -> list[str]:
    """The messages that the character repeated."""
    return [text.partition(" [")[0] for text in texts if " [echo:" in text]


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
        app.echo.gate = None  # for what is answered after the crash
        await self.crash(app, platform)
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
        assert failed.state == "failed" and failed.error

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
        if platform.surface.capabilities.can_edit:
            app.echo.may_continue = lambda: bool(platform.shown("kitchen"))
        await platform.say("ana", "kitchen", "tell me all", "k")
        await app.router.wait_idle()
        shown = platform.shown("kitchen")
        assert "".join(shown).encode() == text.encode()
        assert all(
            platform.surface.capabilities.length_of(part) <= platform.surface.capabilities.max_length for part in shown
        )
        if platform.surface.capabilities.can_edit:
            assert 1 <= platform.most_edits() <= 31

    async def test_p5_a_crash_while_streaming_leaves_one_complete_message(
        self, app: SurfaceApp, platform: Platform
    ) -> None:
        if not platform.surface.capabilities.can_edit:
            pytest.skip("nothing is shown before the answer is complete")
        text = " ".join(f"word{n}" for n in range(220))
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
        await platform.say("ana", "square", "a secret, Echo", "k0")
        for n, text in enumerate(["Who is there?", "!chats", "!agent", "!context", "!link WRONG", "!approve X"]):
            await platform.say("mallory", "cellar", text, f"k{n}")
        await platform.say("mallory", "square", "!chats", "k-in")
        await app.router.wait_idle()
        texts = "\n".join(platform.shown("cellar") + platform.shown("square")[1:])
        assert "do not know you yet" in texts and "is not valid" in texts
        assert not any(word in texts for word in ("Echo", "secret", "square", "echo:"))
        assert [text for _, text in app.echo.received] == ["a secret, Echo"]

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

    async def test_p3_a_code_is_never_shown_in_a_room_that_others_may_read(
        self, app: SurfaceApp, platform: Platform
    ) -> None:
        _, code = await app.people.invite("Bea", 15)
        await platform.say("bea", "hall", f"!link {code}", "k0")
        await platform.say("ana", "square", "ours, Echo", "k1")
        await platform.say("ana", "square", "!invite bea", "k2")
        await platform.say("bea", "square", "Good evening, Echo.", "k2b")
        await app.router.wait_idle()
        for who, key in (("ana", "k3"), ("bea", "k4")):
            await platform.say(who, "square", "!link", key)
        await app.router.wait_idle()
        shown = platform.shown("square")
        assert not any(CODE.search(text) for text in shown)
        assert sum("Others may read this room" in text for text in shown) == 2

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
        await platform.say("ana", "square", "ours, Echo", "k1")
        await app.router.wait_idle()
        await platform.say("bea", "square", "Echo, let me in", "k2")
        await platform.say("bea", "square", "!context", "k3")
        await app.router.wait_idle()
        assert [text for _, text in app.echo.received] == ["ours, Echo"]
        assert all("somebody else's" in text for text in platform.shown("square")[1:])
        await platform.say("ana", "square", "!invite bea", "k4")
        await app.router.wait_idle()
        await platform.say("bea", "square", "thank you, Echo", "k5")
        await app.router.wait_idle()
        context = context_in(platform.shown("square")[0])
        assert app.echo.received[-1] == (context, "thank you, Echo") and app.echo.added_people == [(context, bea.id)]
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

    async def test_p8_an_archived_room_is_silent_until_it_is_brought_back(
        self, app: SurfaceApp, platform: Platform
    ) -> None:
        await platform.say("ana", "kitchen", "one", "k0")
        await platform.say("ana", "kitchen", "!archive", "k1")
        await platform.say("ana", "kitchen", "!yes", "k2")
        await platform.say("ana", "kitchen", "anybody?", "k3")
        await app.router.wait_idle()
        assert app.router.chats.rooms.get(platform.room_ref("kitchen")).archived
        assert "is archived" in platform.shown("kitchen")[-1]
        await platform.say("ana", "kitchen", "!unarchive", "k4")
        await platform.say("ana", "kitchen", "two", "k5")
        await app.router.wait_idle()
        assert [text for _, text in app.echo.received] == ["one", "two"]
        assert [room.room for room in app.router.chats.rooms.of_person(OWNER, platform.surface.name)] == [
            platform.room_ref("kitchen")
        ]

    async def test_p3_approving_asks_which_character(self, app: SurfaceApp, platform: Platform) -> None:
        await app.roster.save(Identity(name="Other", persona="Different."))
        await platform.say("bea", "hall", "May I?", "k0")
        await platform.say("ana", "kitchen", "hello", "k1")
        await app.router.wait_idle()
        (request,) = app.people.open_pairing_requests()
        await platform.say("ana", "kitchen", f"!approve {request.code}", "k2")
        await app.router.wait_idle()
        question = platform.messages("kitchen")[-1]
        assert "1. Echo" in question.text and "2. Other" in question.text and "none yet" in question.text
        if platform.surface.capabilities.buttons:
            await platform.press("ana", "kitchen", "Echo")
        else:
            await platform.say("ana", "kitchen", "1", "k3")
        await app.router.wait_idle()
        assert "with Echo" in platform.shown("kitchen")[-1]
        await platform.say("bea", "hall", "thank you", "k4")
        await app.router.wait_idle()
        assert platform.shown("hall")[-1].startswith("thank you [")
        person = app.people.by_account(platform.surface.name, platform.account("bea"))
        assert person is not None and len(app.people.allowed_characters(person.id)) == 1

    async def test_p1_a_reply_reaches_the_mode_with_what_it_replies_to(
        self, app: SurfaceApp, platform: Platform
    ) -> None:
        need(platform, "replies")
        first = await platform.say("ana", "kitchen", "The lamp is out.", "k0")
        await app.router.wait_idle()
        (answer,) = platform.messages("kitchen")
        assert answer.reply_to is None, "in a direct chat nobody doubts what is answered"
        await platform.say("ana", "kitchen", "What did you mean?", "k1", reply_to=answer.id)
        await platform.say("ana", "kitchen", "I meant this.", "k2", reply_to=first)
        await platform.say("ana", "kitchen", "And this?", "k3", reply_to="unknown-message")
        await app.router.wait_idle()
        assert [text for _, text in app.echo.received[1:]] == ["What did you mean?", "I meant this.", "And this?"]
        assert app.echo.quotes == ["", answer.text, "The lamp is out.", ""]

    async def test_p7_an_answer_stays_in_its_thread(self, app: SurfaceApp, platform: Platform) -> None:
        need(platform, "threads")
        root = await platform.say("ana", "kitchen", "a thread begins", "k0")
        await app.router.wait_idle()
        await platform.say("ana", "kitchen", "in it", "k1", thread=root)
        await platform.say("ana", "kitchen", "!chats", "k2", thread=root)
        await platform.say("ana", "kitchen", "beside it", "k3")
        await app.router.wait_idle()
        assert [message.thread for message in platform.messages("kitchen")] == [None, root, root, None]

    async def test_p5_a_refused_final_edit_becomes_a_new_message(self, app: SurfaceApp, platform: Platform) -> None:
        if not platform.surface.capabilities.can_edit:
            pytest.skip("nothing is edited")
        text = " ".join(f"word{n}" for n in range(220))
        app.echo.script["go"], app.echo.pause_s = text, 0.01
        await platform.say("ana", "kitchen", "go", "k0")
        async with asyncio.timeout(20):
            while not platform.shown("kitchen"):
                await asyncio.sleep(0.005)
        platform.refuse_edits()
        await app.router.wait_idle()
        shown = platform.shown("kitchen")
        assert shown[-1] == text and len(shown) == 2 and text.startswith(shown[0])

    async def test_p5_notices_and_questions_are_split_too(self, app: SurfaceApp, platform: Platform) -> None:
        capabilities = platform.surface.capabilities
        await platform.say("ana", "kitchen", "hello", "k0")
        await app.router.wait_idle()
        room, thread = platform.room_ref("kitchen"), platform.notice_thread("kitchen")
        text = "\n".join(f"line {n} 🌊" for n in range(capabilities.max_length // 6))
        question = OutgoingUI(room=room, thread=thread, text=text, fallback="Write yes.")
        await app.router.notify(OutgoingNotification(room=room, thread=thread, text=text), "long-notice")
        await app.router.notify(question, "long-question")
        await app.router.wait_idle()
        notice_and_question = platform.shown("kitchen")[1:]
        assert all(capabilities.length_of(part) <= capabilities.max_length for part in notice_and_question)
        fallback = "" if capabilities.buttons else "\nWrite yes."
        assert len(notice_and_question) >= 4 and "".join(notice_and_question) == text + text + fallback

    async def test_p5_code_that_is_split_is_code_in_every_part(self, app: SurfaceApp, platform: Platform) -> None:
        capabilities = platform.surface.capabilities
        code = "\n".join(f"line_{n} = {n}" for n in range(capabilities.max_length // 8))
        app.echo.script["code?"] = f"See:\n```python\n{code}\n```\nThat is all."
        await platform.say("ana", "kitchen", "code?", "k0")
        await app.router.wait_idle()
        ((received,),) = app.store.query("SELECT max(id) FROM inbox")
        answers = [queued.outgoing for queued in app.router.delivery.outbox.answers_to(received)]
        parts = [answer for answer in answers if isinstance(answer, OutgoingMessage)]
        assert len(parts) > 1 and parts[0].code_fence == "" and {part.code_fence for part in parts[1:]} == {"```python"}
        assert all(part.markdown.startswith("```python\nline_") for part in parts[1:])

    async def test_p6_files_go_both_ways(self, app: SurfaceApp, platform: Platform) -> None:
        need(platform, "files")
        await platform.say("ana", "kitchen", "hello", "k0")
        await app.router.wait_idle()
        data = random.Random(5).randbytes(100_000)
        await platform.send_file("ana", "kitchen", "../../lamp plan.bin", data)
        await app.router.wait_idle()
        (file,) = app.echo.files
        with app.files_in(platform.room_ref("kitchen")).open(file.path, platform.room_ref("kitchen")) as saved:
            assert saved.read() == data
        app.echo.sent_files["the plan?"], app.echo.script["the plan?"] = (file,), "Here it is."
        await platform.say("ana", "kitchen", "the plan?", "k1")
        await app.router.wait_idle()
        assert [content for message in platform.messages("kitchen") for _, content in message.files] == [data]

    async def test_p8_a_question_is_answered_by_a_button_or_by_writing(
        self, app: SurfaceApp, platform: Platform
    ) -> None:
        await platform.say("ana", "kitchen", "one", "k0")
        await platform.say("ana", "kitchen", "!clear", "k1")
        await app.router.wait_idle()
        question = platform.messages("kitchen")[-1]
        if platform.surface.capabilities.buttons:
            assert question.buttons == ("Yes", "No") and "yes or" not in question.text
            await platform.press("ana", "kitchen", "Yes")
        else:
            assert question.buttons == () and "yes or" in question.text
            await platform.say("ana", "kitchen", "!yes", "k2")
        await platform.say("ana", "kitchen", "two", "k3")
        await app.router.wait_idle()
        one, two = (context for context, _ in app.echo.received)
        assert one != two

    async def test_p1_reactions_are_sent_where_there_are_any(self, app: SurfaceApp, platform: Platform) -> None:
        await platform.say("ana", "kitchen", "hello", "k0")
        await app.router.wait_idle()
        (answer,) = platform.messages("kitchen")
        reaction = OutgoingReaction(room=platform.room_ref("kitchen"), to=answer.id, emoji="👍")
        await app.router.notify(reaction, "reaction-1")
        await app.router.wait_idle()
        (answer,) = platform.messages("kitchen")
        assert answer.reactions == (["👍"] if platform.surface.capabilities.reactions else [])
        app.echo.gate = asyncio.Event()
        await platform.say("ana", "kitchen", "tell me", "k1")
        await platform.say("ana", "kitchen", "!stop", "k2")
        await app.router.wait_idle()
        assert spoken(platform.shown("kitchen")) == ["hello", "tell me"]
        assert app.router.delivery.outbox.uncertain() == []

    async def test_p8_a_new_room_is_made_beside_the_one_it_was_asked_in(
        self, app: SurfaceApp, platform: Platform
    ) -> None:
        await platform.say("ana", "kitchen", "hello", "k0")
        await platform.say("ana", "kitchen", "!new Garden", "k1", times=2)
        await app.router.wait_idle()
        rooms = app.router.chats.rooms.on_surface(platform.surface.name)
        if platform.surface.capabilities.can_create_rooms:
            assert sorted(room.title for room in rooms) == ["Echo", "Garden"]
        else:
            assert [room.title for room in rooms] == ["Echo"]
            assert len(app.router.chats.rooms.contexts(platform.room_ref("kitchen"))) == 2

    async def test_p2_a_rename_on_the_platform_is_recorded(self, app: SurfaceApp, platform: Platform) -> None:
        need(platform, "renames")
        await platform.say("ana", "kitchen", "hello", "k0")
        await app.router.wait_idle()
        await platform.rename("ana", "kitchen", "The  kitchen")
        await app.router.wait_idle()
        binding = app.router.chats.rooms.get(platform.room_ref("kitchen"))
        assert binding.title == "The kitchen" and app.echo.titles == {binding.context: "The kitchen"}
        assert len(platform.shown("kitchen")) == 1, "the platform itself shows the new name"

    async def test_groups_are_answered_only_when_addressed(self, app: SurfaceApp, platform: Platform) -> None:
        need(platform, "groups")
        bea, code = await app.people.invite("Bea", 15)
        await platform.say("bea", "hall", f"!link {code}", "k0")
        await app.router.wait_idle()
        await app.people.allow(bea.id, app.roster.all()[0].id)
        await platform.say("ana", "square", "hello there, Echo", "k1")
        await app.router.wait_idle()
        await platform.join("bea", "square")
        await app.router.wait_idle()
        assert app.echo.added_people == [(context_in(platform.shown("square")[0]), bea.id)]
        before = app.store.query("SELECT count(*) FROM event WHERE kind = 'message_received'")
        await platform.say("ana", "square", "nice weather", "k2")
        await platform.say("bea", "square", "an echo is not a name", "k3")
        await platform.say("bea", "square", "Echoes are neither", "k4")
        await app.router.wait_idle()
        named = {"an echo is not a name"}  # names are compared without case
        assert set(spoken(platform.shown("square"))[1:]) <= named, "not addressed: silent"
        kept = app.store.query("SELECT count(*) FROM event WHERE kind = 'message_received'")[0][0] - before[0][0]
        assert kept <= len(named), "what is not for the character is not stored"
        await platform.say("bea", "square", "what do you think?", "k5", mention=True)
        await app.router.wait_idle()
        answer = platform.messages("square")[-1]
        asked = app.router.inbound.inbox.text_of(platform.room_ref("square"), answer.reply_to or "")
        assert asked == "what do you think?" and answer.text.startswith("what do you think?")
        await platform.say("ana", "square", "and why?", "k6", reply_to=answer.id)
        await app.router.wait_idle()
        assert spoken(platform.shown("square"))[-1] == "and why?"
        await platform.say("ana", "square", "!listen all", "k7")
        await app.router.wait_idle()
        await platform.say("bea", "square", "it rains again", "k8")
        await app.router.wait_idle()
        assert spoken(platform.shown("square"))[-1] == "it rains again"

    async def test_groups_strangers_get_nothing_in_public(self, app: SurfaceApp, platform: Platform) -> None:
        need(platform, "groups")
        await platform.say("ana", "square", "hello, Echo", "k0")
        await app.router.wait_idle()
        await platform.join("mallory", "square")
        before = platform.shown("square")
        for n, text in enumerate(["Echo, who am I?", "!chats", "!link WRONG-CODE"]):
            await platform.say("mallory", "square", text, f"m{n}", mention=n == 0)
        await app.router.wait_idle()
        public = platform.shown("square")[len(before) :]
        assert not any(request.code in text for request in app.people.open_pairing_requests() for text in public)
        assert all("is not valid" in text for text in public), "only the answer to a code that they wrote themselves"
        assert [text for _, text in app.echo.received] == ["hello, Echo"]

    async def test_groups_the_bot_leaves_a_room_that_its_owner_left(self, app: SurfaceApp, platform: Platform) -> None:
        need(platform, "groups")
        await platform.say("ana", "square", "hello, Echo", "k0")
        await app.router.wait_idle()
        await platform.join("mallory", "square")
        await platform.leave("mallory", "square")
        await app.router.wait_idle()
        assert platform.is_in("square"), "others come and go"
        await platform.join("mallory", "square")
        await platform.leave("ana", "square")
        await app.router.wait_idle()
        assert not platform.is_in("square")
        assert app.router.chats.rooms.find(platform.room_ref("square")) is None
