"""S19 on a real server in this process: streams are complete, in order, and without repetition."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import uvicorn

from tests.surfaces.web.conftest import Web


@dataclass(frozen=True)
class Heard:
    event: str
    id: int | None
    data: Any


class Listener:
    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.raw: list[str] = []

    async def next(self) -> Heard:
        fields: dict[str, str] = {}
        async with asyncio.timeout(20):
            async for line in self._lines:
                self.raw.append(line)
                if line and not line.startswith(":"):
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif not line and "data" in fields:
                    break
        given = fields.get("id")
        return Heard(fields["event"], int(given) if given else None, json.loads(fields["data"]))

    async def until(self, kind: str) -> list[Heard]:
        """Everything up to a change of this kind."""
        heard = [await self.next()]
        while heard[-1].event != "change" or heard[-1].data["kind"] != kind:
            heard.append(await self.next())
        return heard


@dataclass
class Served:
    web: Web
    address: str

    @asynccontextmanager
    async def listen(self, chat: str, last: int | None = None) -> AsyncIterator[Listener]:
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        async with (
            httpx.AsyncClient(base_url=self.address, timeout=30) as client,
            client.stream("GET", f"{chat}/events", headers=headers) as answer,
        ):
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield Listener(answer.aiter_lines())


@pytest.fixture
async def served(web: Web) -> AsyncIterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        server = uvicorn.Server(uvicorn.Config(web.asgi, log_config=None, lifespan="off", timeout_graceful_shutdown=1))
        running = asyncio.create_task(server.serve([door]))
        yield Served(web, f"http://127.0.0.1:{door.getsockname()[1]}")
        server.should_exit = True
        await running


async def test_s19_a_snapshot_first_then_changes_and_words(served: Served) -> None:
    web = served.web
    _, chat = await web.begin()
    await web.say(chat, "before")
    async with served.listen(chat) as listener:
        first = await listener.next()
        assert first.event == "snapshot"
        assert [turn["text"] for turn in first.data["turns"]] == await web.texts(chat)
        assert first.data["chat"]["title"] == "Maren Oke"
        web.script.replies = ["One two\nthree \r\n four."]
        await web.post(f"{chat}/turns", {"text": "now"}, status=202)
        heard = await listener.until("assistant_turn")
    kinds = [one.data["kind"] for one in heard if one.event == "change"]
    assert [kind for kind in kinds if kind != "memory_used"] == [
        "user_turn",
        "assistant_turn_started",
        "prompt_sent",
        "assistant_turn",
    ]
    ids = [one.id for one in heard if one.id is not None]
    assert ids == sorted(set(ids))
    assert heard[-1].data["payload"]["text"] == "One two\nthree \r\n four."
    assert "\r" not in "".join(listener.raw)


async def test_s19_every_word_is_sent_once_and_in_order(served: Served) -> None:
    web = served.web
    _, chat = await web.begin()
    web.script.paused = True
    web.script.replies = ["a b c d e f g h"]
    async with served.listen(chat) as listener:
        await listener.next()
        await web.post(f"{chat}/turns", {"text": "now"}, status=202)
        text = ""
        while len(text) < 10:
            web.script.step()
            one = await listener.next()
            if one.event == "token":
                assert one.data["offset"] == len(text)
                assert one.id is None
                text += one.data["text"]
        # Somebody joins in the middle: the snapshot holds what was said, and the rest follows it.
        async with served.listen(chat) as late:
            joined = (await late.next()).data["turns"][-1]
            assert joined["state"] == "open"
            assert joined["text"] == text
            web.script.step(20)
            rest = await late.until("assistant_turn")
            words = [one for one in rest if one.event == "token"]
            heard = joined["text"]
            for one in words:
                assert one.data["offset"] == len(heard)
                heard += one.data["text"]
            assert "a b c d e f g h".startswith(heard)
            assert rest[-1].data["payload"]["text"] == "a b c d e f g h"


async def test_s19_a_reconnecting_client_gets_missed_events_once(served: Served) -> None:
    web = served.web
    _, chat = await web.begin()
    async with served.listen(chat) as listener:
        await listener.next()
        await web.say(chat, "one")
        seen = [one.id for one in await listener.until("assistant_turn") if one.id is not None]
    await web.say(chat, "two")
    room = f"room:{chat.removeprefix('/chats/')}"
    log = [event.id for event in await web.app.store.read(room, limit=10_000) if event.kind != "assistant_tokens"]
    missed = [event for event in log if event > seen[-1]]
    async with served.listen(chat, last=seen[-1]) as listener:
        caught_up = [(await listener.next()) for _ in missed]
    assert [one.id for one in caught_up] == missed
    assert {one.event for one in caught_up} == {"change"}


@pytest.mark.parametrize("last", ["99999999", "-1", "x", "1e3"])
async def test_s19_an_invalid_event_id_gets_a_snapshot(served: Served, last: str) -> None:
    _, chat = await served.web.begin()
    async with (
        httpx.AsyncClient(base_url=served.address, timeout=30) as client,
        client.stream("GET", f"{chat}/events", headers={"Last-Event-ID": last}) as answer,
    ):
        assert (await Listener(answer.aiter_lines()).next()).event == "snapshot"


async def test_s19_a_client_resuming_during_a_reply_gets_all_words(served: Served) -> None:
    web = served.web
    _, chat = await web.begin()
    web.script.paused = True
    web.script.replies = ["a b c d"]
    async with served.listen(chat) as listener:
        await listener.next()
        await web.post(f"{chat}/turns", {"text": "now"}, status=202)
        web.script.step(2)
        last = 0
        while True:
            one = await listener.next()
            last = one.id or last
            if one.event == "token":
                break
    async with served.listen(chat, last=last) as listener:
        one = await listener.next()
        while one.event != "token":
            one = await listener.next()
        assert (one.data["offset"], one.data["text"][:2]) == (0, "a ")
        web.script.step(9)


async def test_the_stream_ends_when_the_client_disconnects(served: Served) -> None:
    _, chat = await served.web.begin()
    bus: Any = served.web.app.store.bus
    before = len(bus._subscriptions)
    async with served.listen(chat) as listener:
        await listener.next()
        assert len(bus._subscriptions) == before + 1
    async with asyncio.timeout(20):
        while len(bus._subscriptions) > before:
            await asyncio.sleep(0.01)
