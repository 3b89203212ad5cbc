"""S19: what open pages are told can be told twice, late or in pieces, and comes to the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import anyio
import pytest

from coterie.eventstore import NewEvent
from coterie.eventstore.jobs import JobDied
from coterie.surfaces.web.shared.live_updates import Channels, _positions, _stream
from coterie.surfaces.web.story.live import ChatUpdates, LiveUpdate, TurnRenderer, failed_job_updates
from tests.surfaces.web.conftest import Web


async def heard(news: AsyncIterator[LiveUpdate], until: str, most: int = 50) -> list[LiveUpdate]:
    found: list[LiveUpdate] = []
    async with asyncio.timeout(20):
        async for one in news:
            found.append(one)
            if one.name == until or len(found) == most:
                break
    return found


def renderer(web: Web) -> TurnRenderer:
    app = web.app
    return TurnRenderer(app.feed, app.story, app.characters, app.people, app.workspaces)


def chat_updates(web: Web, chat: str, after: int) -> AsyncIterator[LiveUpdate]:
    return ChatUpdates(web.app.feed, renderer(web), room(chat), after).updates()


def room(chat: str) -> str:
    return f"room:{chat.removeprefix('/chats/')}"


async def test_a_page_is_told_turns_and_words_from_where_it_was(web: Web) -> None:
    _, chat = await web.begin()
    after = web.app.feed.last_id()
    await web.say(chat, "Hello.")
    found = await heard(chat_updates(web, chat, after), "changed", 4)
    assert found[0].name == "caught-up"
    assert [one.name for one in found[1:]] == ["turn", "turn", "changed"]
    assert "Hello." in found[1].data["html"]


async def test_who_was_away_is_told_how_things_stand_and_not_each_step(web: Web) -> None:
    _, chat = await web.begin()
    after = web.app.feed.last_id()
    for number in range(4):
        await web.say(chat, f"Said {number}.")
        await web.post(f"{chat}/regenerate?wait=true", {})
    last = web.app.feed.last_id()
    found: list[LiveUpdate] = []
    async with asyncio.timeout(20):
        async for one in chat_updates(web, chat, after):
            found.append(one)
            if one.event_id == max(event.id for event in web.app.store.reader.read(room(chat))):
                break
    assert [one.name for one in found].count("timeline") == 1
    assert "turn" not in [one.name for one in found]
    assert {one.event_id for one in found[:-1]} == {after}, (
        "who leaves before the last of them is told all of them again"
    )
    assert after < found[-1].event_id <= last
    assert all(f"Said {number}." in found[1].data["html"] for number in range(4))


async def test_words_come_by_blocks_and_finished_ones_once(web: Web) -> None:
    _, chat = await web.begin()
    web.script.paused = True
    web.script.replies.append("One.\n\nTwo is longer.\n\nThree")
    told = chat_updates(web, chat, web.app.feed.last_id())
    said = asyncio.create_task(web.post(f"{chat}/turns?wait=true", {"text": "Go."}))
    blocks: list[str] = []
    async with asyncio.timeout(20):
        async for news in told:
            if news.name == "words":
                start = news.data["from"]
                assert start >= len(blocks) - 1, "a finished block is not told again"
                blocks[start:] = news.data["blocks"]
            if news.name == "turn" and news.data["state"] == "done" and blocks:
                break
            web.script.step(1)
    assert [block.strip() for block in blocks] == ["<p>One.</p>", "<p>Two is longer.</p>", "<p>Three</p>"][
        : len(blocks)
    ]
    await said


async def test_what_is_taken_back_is_told_as_the_last_turns(web: Web) -> None:
    _, chat = await web.begin()
    first = await web.say(chat, "One.")
    await web.say(chat, "Two.")
    after = web.app.feed.last_id()
    await web.post(f"{chat}/rewind", {"turn": first["reply"]})
    news = (await heard(chat_updates(web, chat, after), "timeline"))[-1]
    assert "One." in news.data["html"]
    assert "Two." not in news.data["html"]
    assert news.data["before"] is None


async def test_who_was_away_too_long_or_knows_the_future_is_told_all_anew(web: Web) -> None:
    _, chat = await web.begin()
    await web.say(chat, "Hello.")
    for after in (web.app.feed.last_id() - 6_000, web.app.feed.last_id() + 10):
        assert (await heard(chat_updates(web, chat, after), "timeline", 1))[0].name == "timeline"


async def test_a_chat_that_was_reset_is_gone(web: Web) -> None:
    character, chat = await web.begin()
    after = web.app.feed.last_id()
    name = (await web.get(f"/characters/{character}"))["name"]
    await web.post(f"/characters/{character}/reset", {"confirm": name})
    assert (await heard(chat_updates(web, chat, after), "timeline"))[-1].data["gone"] is True


async def test_older_turns_join_without_a_gap(web: Web) -> None:
    _, chat = await web.begin()
    for number in range(27):
        await web.post(f"{chat}/turns?wait=true", {"text": f"Number {number}."})
    _, html, before = await renderer(web).latest_turns(room(chat))
    assert html.count("<article") == 50
    assert before is not None
    _, older, further = await renderer(web).latest_turns(room(chat), before + 1)
    turns = (await web.get(f"{chat}/turns?limit=500"))["turns"]
    assert older.count("<article") == len(turns) - 50
    assert further is None


async def test_failures_in_the_background_are_told(web: Web) -> None:
    after = web.app.feed.last_id()
    died = JobDied(job=1, job_kind="story_memory", key="k", attempts=5, error="It broke.")
    await web.app.store.append([NewEvent("instance", died)])
    assert (await heard(failed_job_updates(web.app.feed, after), "job-failed"))[-1].data["error"] == "It broke."


async def test_a_teller_that_fails_ends_the_stream_so_that_the_page_asks_again(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, chat = await web.begin()

    async def broken(*_: object) -> object:
        raise RuntimeError("on purpose")

    monkeypatch.setattr(TurnRenderer, "latest_turns", broken)
    app = web.app
    channels = Channels(app.store, app.feed, app.desk, app.draft, renderer(web))
    stream = _stream(channels, {chat.removeprefix("/chats/"): 10**9}, anyio.Event())
    async with asyncio.timeout(20):
        assert [event async for event in stream] == []


async def test_a_turn_that_was_taken_back_meanwhile_has_no_other_replies(web: Web) -> None:
    _, chat = await web.begin()
    said = await web.say(chat, "Hello.")
    story = web.app.story
    turn = story.timeline.turn(room(chat), said["reply"])
    await web.post(f"{chat}/regenerate?wait=true")
    assert await renderer(web).swipes(turn) is None


def test_places_that_make_no_sense_are_left_out() -> None:
    assert _positions(["a:1", "b:", "c", ":4", "d:-1", "e:x", "a:b:7"]) == {"a": 1, "a:b": 7}
