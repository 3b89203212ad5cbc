"""The WebSocket server over real sockets: posts, errors, reconnects and refused clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from coterie.base.clock import SystemClock
from coterie.eventstore import Store
from coterie.modes.crowd.gateway import Admission, ChatRoom, Gateway, RoomLimits
from coterie.modes.crowd.moderation import Moderator, read_wordlists
from coterie.modes.crowd.protocol import ChatAuthor, ChatMessage
from coterie.modes.crowd.settings import SHIPPED_CONFIGS
from coterie.surfaces.websocket.server import serve


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[ChatRoom]:
    store = Store.open(tmp_path / "coterie.db")
    admission = Admission("den", Moderator(read_wordlists([SHIPPED_CONFIGS / "moderation"])), RoomLimits(burst=100))
    room = ChatRoom(Gateway(store, admission, SystemClock()), store.bus)
    running = asyncio.create_task(room.run())
    yield room
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await room.gateway.flush()
    store.close()


@pytest.fixture
async def address(room: ChatRoom) -> AsyncIterator[str]:
    server = await serve({"den": room})
    yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/rooms/den"
    server.close()


async def read(socket: ClientConnection) -> Any:
    return json.loads(await asyncio.wait_for(socket.recv(), 20))


async def read_message(socket: ClientConnection) -> Any:
    while (frame := await read(socket))["type"] != "messages":
        pass
    return frame["messages"][0]


async def post(socket: ClientConnection, text: str, nonce: str, **fields: object) -> Any:
    author = {"name": "someone_else", "kind": "system", "badges": ["moderator"]}
    await socket.send(json.dumps({"id": nonce, "room": "den", "author": author, "text": text, **fields}))
    while (frame := await read(socket))["type"] not in ("posted", "error"):
        pass
    return frame


async def test_c3_a_post_reaches_every_client_with_its_own_author(address: str) -> None:
    async with connect(f"{address}?name=ana") as ana, connect(f"{address}?name=bo") as bo:
        assert await read(ana) == {"type": "snapshot", "messages": []}
        assert await post(ana, "hello", "a1") == {"type": "posted", "id": "a1", "message": "den-1"}
        message = await read_message(bo)
        assert (message["text"], message["author"]) == ("hello", {"name": "ana", "kind": "human", "badges": []})


async def test_c4_a_refused_post_gets_the_reason(address: str) -> None:
    async with connect(f"{address}?name=ana") as ana:
        refused = await post(ana, "see evil.xyz", "a1")
        assert (refused["type"], refused["rule"], bool(refused["fix"])) == ("error", "links", True)
        await ana.send("not json")
        assert (await read(ana))["rule"] == "shape"
        assert (await post(ana, "still here", "a2"))["type"] == "posted"


async def test_c3_a_reconnect_resumes_after_the_last_number(address: str) -> None:
    async with connect(f"{address}?name=ana") as ana:
        for number in range(5):
            await post(ana, f"line {number}", f"a{number}")
        async with connect(f"{address}?name=bo&after=3") as bo:
            frame = await read(bo)
            assert [message["number"] for message in frame["messages"]] == [4, 5]
            await post(ana, "line 5", "a5")
            assert (await read_message(bo))["number"] == 6


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Host": "evil.example"}])
async def test_other_sites_are_refused(address: str, headers: dict[str, str]) -> None:
    with pytest.raises(InvalidStatus):
        async with connect(address, additional_headers=headers):
            raise AssertionError("it was let in")


async def test_an_unknown_room_is_refused(address: str) -> None:
    with pytest.raises(InvalidStatus):
        async with connect(f"{address}-other"):
            raise AssertionError("it was let in")


async def test_c3_a_slow_client_is_paused_then_gets_a_snapshot(address: str, room: ChatRoom) -> None:
    """The kernel's buffers fill first; what is sent until then arrives, nothing out of order and nothing twice."""
    author = ChatAuthor(name="ana", kind="human")
    numbers = iter(range(1, 1_000_000))

    def send_messages(count: int) -> None:
        messages = [
            ChatMessage(id=f"den-{n}", number=n, room="den", author=author, text="x" * 500, ts=n)
            for n in (next(numbers) for _ in range(count))
        ]
        room.fanout.send(messages)
        room.fanout.flush()

    async with connect(f"{address}?name=bo", max_size=None, max_queue=1, compression=None) as bo:
        async with connect(f"{address}?name=cy", max_size=None, compression=None) as cy:
            while not room.fanout.dropped:
                send_messages(200)
                assert (await asyncio.wait_for(cy.recv(), 20))[:8] == '{"type":'
        first = await read(bo)
        assert first["type"] == "snapshot"
        numbers_received: list[int] = []
        kinds: list[str] = []
        while "snapshot" not in kinds:
            send_messages(1)
            with suppress(TimeoutError):
                while True:
                    frame = json.loads(await asyncio.wait_for(bo.recv(), 0.05))
                    kinds.append(frame["type"])
                    numbers_received += [message["number"] for message in frame["messages"]]
        assert numbers_received == sorted(set(numbers_received))
        assert "messages" in kinds


async def test_hostile_frames_affect_only_their_sender(address: str) -> None:
    async with connect(f"{address}?name=ana") as ana, connect(f"{address}?name=mal") as mal:
        await read(ana)
        for raw in (
            "[]",
            "{}",
            '{"id":"a","room":"den","text":7}',
            '{"id":"\\u0000","room":"den"}',
            "\u2028",
            "[" * 9_000,
        ):
            await mal.send(raw)
            while (frame := await read(mal))["type"] not in ("posted", "error"):
                pass
            assert (frame["type"], frame["rule"]) == ("error", "shape")
        await mal.send("x" * 20_000)
        with pytest.raises(ConnectionClosed):
            while True:
                await read(mal)
        assert (await post(ana, "still here", "a1"))["type"] == "posted"
