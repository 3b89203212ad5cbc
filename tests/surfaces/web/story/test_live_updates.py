"""S19: live updates of a page can be repeated, late or split, with the same result."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

from coterie.eventstore import NewEvent
from coterie.eventstore.jobs import JobDied
from coterie.surfaces.web.shared.live_updates import Channels, _positions, _stream
from coterie.surfaces.web.story.live import ChatUpdates, LiveUpdate, TurnRenderer, failed_job_updates
from tests.surfaces.web.conftest import Web


async def collect(stream: AsyncIterator[LiveUpdate], until: str, most: int = 50) -> list[LiveUpdate]:
    updates: list[LiveUpdate] = []
    async with asyncio.timeout(20):
        async for one in stream:
            updates.append(one)
            if one.name == until or len(updates) == most:
                break
    return updates


def renderer(web: Web) -> TurnRenderer:
    app = web.app
    return TurnRenderer(app.feed, app.story, app.characters, app.people, app.workspaces)


def chat_updates(web: Web, chat: str, after: int) -> AsyncIterator[LiveUpdate]:
    return ChatUpdates(web.app.feed, renderer(web), room(chat), after).updates()


def room(chat: str) -> str:
    return f"room:{chat.removeprefix('/chats/')}"


async def test_a_page_gets_turns_and_words_from_its_last_position(web: Web) -> None:
    _, chat = await web.begin()
    after = web.app.feed.last_id()
    await web.say(chat, "Hello.")
    updates = await collect(chat_updates(web, chat, after), "changed", 4)
    assert updates[0].name == "caught-up"
    assert [one.name for one in updates[1:]] == ["turn", "turn", "changed"]
    assert "Hello." in updates[1].data["html"]


async def test_a_page_far_behind_gets_the_current_state_once(web: Web) -> None:
    _, chat = await web.begin()
    after = web.app.feed.last_id()
    for number in range(4):
        await web.say(chat, f"Said {number}.")
        await web.post(f"{chat}/regenerate?wait=true", {})
    last = web.app.feed.last_id()
    updates: list[LiveUpdate] = []
    async with asyncio.timeout(20):
        async for one in chat_updates(web, chat, after):
            updates.append(one)
            if one.event_id == max(event.id for event in web.app.store.reader.read(room(chat))):
                break
    assert [one.name for one in updates].count("timeline") == 1
    assert "turn" not in [one.name for one in updates]
    assert {one.event_id for one in updates[:-1]} == {after}, (
        "a page that disconnects before the last update gets all of them again"
    )
    assert after < updates[-1].event_id <= last
    assert all(f"Said {number}." in updates[1].data["html"] for number in range(4))


async def test_words_are_sent_in_blocks_and_finished_blocks_once(web: Web) -> None:
    _, chat = await web.begin()
    web.script.paused = True
    web.script.replies.append("One.\n\nTwo is longer.\n\nThree")
    updates = chat_updates(web, chat, web.app.feed.last_id())
    request = asyncio.create_task(web.post(f"{chat}/turns?wait=true", {"text": "Go."}))
    blocks: list[str] = []
    async with asyncio.timeout(20):
        async for update in updates:
            if update.name == "words":
                start = update.data["from"]
                assert start >= len(blocks) - 1, "a finished block is sent once"
                blocks[start:] = update.data["blocks"]
            if update.name == "turn" and update.data["state"] == "done" and blocks:
                break
            web.script.step(1)
    assert [block.strip() for block in blocks] == ["<p>One.</p>", "<p>Two is longer.</p>", "<p>Three</p>"][
        : len(blocks)
    ]
    await request


async def test_a_rewind_sends_the_last_turns(web: Web) -> None:
    _, chat = await web.begin()
    first = await web.say(chat, "One.")
    await web.say(chat, "Two.")
    after = web.app.feed.last_id()
    await web.post(f"{chat}/rewind", {"turn": first["reply"]})
    update = (await collect(chat_updates(web, chat, after), "timeline"))[-1]
    assert "One." in update.data["html"]
    assert "Two." not in update.data["html"]
    assert update.data["before"] is None


async def test_an_old_or_unknown_position_gets_the_whole_timeline(web: Web) -> None:
    _, chat = await web.begin()
    await web.say(chat, "Hello.")
    for after in (web.app.feed.last_id() - 6_000, web.app.feed.last_id() + 10):
        assert (await collect(chat_updates(web, chat, after), "timeline", 1))[0].name == "timeline"


async def test_a_reset_chat_is_reported_as_gone(web: Web) -> None:
    character, chat = await web.begin()
    after = web.app.feed.last_id()
    name = (await web.get(f"/characters/{character}"))["name"]
    await web.post(f"/characters/{character}/reset", {"confirm": name})
    assert (await collect(chat_updates(web, chat, after), "timeline"))[-1].data["gone"] is True


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


async def test_failed_jobs_are_sent(web: Web) -> None:
    after = web.app.feed.last_id()
    died = JobDied(job=1, job_kind="story_memory", key="k", attempts=5, error="It broke.")
    await web.app.store.append([NewEvent("instance", died)])
    assert (await collect(failed_job_updates(web.app.feed, after), "job-failed"))[-1].data["error"] == "It broke."


async def test_a_failing_channel_ends_the_stream_so_that_the_page_reconnects(
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


async def test_pages_that_follow_one_chat_share_what_is_read(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    _, chat = await web.begin()
    after = web.app.feed.last_id()
    await web.say(chat, "Hello.")
    reads: Counter[str] = Counter()
    for owner, name in ((web.app.store.reader, "read"), (web.app.story, "alternatives"), (web.app.story.chats, "chat")):
        monkeypatch.setattr(owner, name, counted(reads, name, getattr(owner, name)))
    pages = [await collect(chat_updates(web, chat, after), "changed", 4) for _ in range(20)]
    assert all(page == pages[0] for page in pages) and len(pages[0]) == 4
    assert reads["alternatives"] == 1 and reads["chat"] <= 3 and reads["read"] <= 3
    await web.say(chat, "And now?")
    assert "And now?" in (await collect(chat_updates(web, chat, after), "changed", 6))[3].data["html"]


def counted(reads: Counter[str], name: str, read: Callable[..., Any]) -> Callable[..., Any]:
    def count(*arguments: Any, **more: Any) -> Any:
        reads[name] += 1
        return read(*arguments, **more)

    return count


async def test_updates_that_are_there_together_are_sent_together(web: Web) -> None:
    _, chat = await web.begin()
    after = web.app.feed.last_id()
    await web.say(chat, "Hello.")
    app, stopping = web.app, anyio.Event()
    channels = Channels(app.store, app.feed, app.desk, app.draft, renderer(web))
    stream = _stream(channels, {chat.removeprefix("/chats/"): after}, stopping)
    chunks: list[bytes] = []
    async with asyncio.timeout(20):
        async for chunk in stream:
            chunks.append(chunk)
            if chunk.count(b"event: turn\n"):
                stopping.set()
    assert len(chunks) <= 2
    events = b"".join(chunks).split(b"\n\n")[:-1]
    assert [event.split(b"event: ")[1].split(b"\n")[0] for event in events][:3] == [b"caught-up", b"turn", b"turn"]


async def test_a_removed_turn_has_no_swipes(web: Web) -> None:
    _, chat = await web.begin()
    reply = await web.say(chat, "Hello.")
    story = web.app.story
    turn = story.timeline.turn(room(chat), reply["reply"])
    await web.post(f"{chat}/regenerate?wait=true")
    assert await renderer(web).swipes(turn) is None


def test_invalid_positions_are_ignored() -> None:
    assert _positions(["a:1", "b:", "c", ":4", "d:-1", "e:x", "a:b:7"]) == {"a": 1, "a:b": 7}
