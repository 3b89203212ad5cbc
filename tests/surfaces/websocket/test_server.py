"""The WebSocket server over real sockets: posts, errors, reconnects and refused clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from coterie.base.clock import SystemClock
from coterie.eventstore import Store
from coterie.modes.crowd import BadWireMessage, ChatIdentity, ChatTokens, SenderPost
from coterie.modes.crowd.gateway import Admission, ChatRoom, Gateway, RoomLimits
from coterie.modes.crowd.moderation import Moderator, read_wordlists
from coterie.modes.crowd.protocol import ChatAuthor, ChatMessage
from coterie.modes.crowd.settings import SHIPPED_CONFIGS
from coterie.surfaces.websocket import server
from coterie.surfaces.websocket.server import serve

TOKENS = ChatTokens(b"k" * 32, SystemClock())


def as_guest(address: str, name: str) -> str:
    """The address with a token for this name."""
    return f"{address}?token={TOKENS.issue('den', ChatIdentity(name))}"


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[ChatRoom]:
    store = Store.open(tmp_path / "coterie.db")
    admission = Admission(
        "den", Moderator(read_wordlists([SHIPPED_CONFIGS / "moderation"])), RoomLimits(burst=100), names=["salt_lamp"]
    )
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
    server = await serve({"den": room}, tokens=TOKENS)
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
    async with connect(as_guest(address, "ana")) as ana, connect(as_guest(address, "bo")) as bo:
        assert await read(ana) == {"type": "snapshot", "messages": []}
        assert await post(ana, "hello", "a1") == {"type": "posted", "id": "a1", "message": "den-1"}
        message = await read_message(bo)
        assert (message["text"], message["author"]) == ("hello", {"name": "ana", "kind": "human", "badges": []})


async def test_c4_a_refused_post_gets_the_reason(address: str) -> None:
    async with connect(as_guest(address, "ana")) as ana:
        refused = await post(ana, "see evil.xyz", "a1")
        assert (refused["type"], refused["rule"], bool(refused["fix"])) == ("error", "links", True)
        await ana.send("not json")
        assert (await read(ana))["rule"] == "shape"
        assert (await post(ana, "still here", "a2"))["type"] == "posted"


async def test_c3_a_reconnect_resumes_after_the_last_number(address: str) -> None:
    async with connect(as_guest(address, "ana")) as ana:
        for number in range(5):
            await post(ana, f"line {number}", f"a{number}")
        async with connect(as_guest(address, "bo") + "&after=3") as bo:
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

    async with connect(as_guest(address, "bo"), max_size=None, max_queue=1, compression=None) as bo:
        async with connect(as_guest(address, "cy"), max_size=None, compression=None) as cy:
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
    async with connect(as_guest(address, "ana")) as ana, connect(as_guest(address, "mal")) as mal:
        await read(ana)
        for raw in (
            "[]",
            "{}",
            '{"id":"a","room":"den","text":7}',
            '{"id":"\\u0000","room":"den"}',
            "\u2028",
            "[" * 9_000,
            "9" * 5_000,
            '{"id":"a","room":"den","text":"\\ud800"}',
            '{"id":"a","room":"den","text":"a\\u0000b"}',
            '{"id":"a","room":"den","text":"a\\u0085b"}',
            '{"id":"a","room":"den","text":"a\\u202eb"}',
            "x" * 20_000,
            b"\x00\xff",
            ['{"id":"a",', '"room":"den","text":"in parts"}'],
        ):
            await mal.send(raw)
            while (frame := await read(mal))["type"] not in ("posted", "error"):
                pass
            assert (frame["type"], frame["rule"]) in (("error", "shape"), ("error", "length"))
        while (await post(mal, "still here", "m1"))["type"] != "posted":
            pass
        await mal.send("x" * 200_000)
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                await read(mal)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, "size" in closed.value.rcvd.reason) == (1009, True)
        assert (await post(ana, "still here", "a1"))["type"] == "posted"


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@settings(max_examples=100)
def test_any_frame_is_a_post_or_a_shape_error(raw: bytes) -> None:
    try:
        SenderPost.from_json(raw)
    except BadWireMessage as error:
        assert error.what


@pytest.mark.parametrize("name", ["salt_lamp", "Salt_Lamp", "saIt_lamp", "sаlt_lаmp", "ｓalt lamp", "salt\u200b_lamp"])
async def test_c4_nobody_posts_under_a_name_that_looks_like_a_persona(address: str, name: str) -> None:
    async with connect(f"{address}?name={quote(name)}") as claimed:
        assert (await post(claimed, "hello", "a1"))["rule"] == "identity"
    async with connect(as_guest(address, name)) as invited:
        assert (await post(invited, "hello", "a1"))["rule"] == "name"


async def test_c4_a_connection_without_a_token_can_only_read(address: str) -> None:
    async with connect(f"{address}?name=ana") as reader, connect(as_guest(address, "bo")) as bo:
        refused = await post(reader, "hello", "a1")
        assert (refused["rule"], "read" in refused["error"]) == ("identity", True)
        await post(bo, "hello", "b1")
        assert (await read_message(reader))["author"]["name"] == "bo"


@pytest.mark.parametrize("token", ["x", "a.b", TOKENS.issue("attic", ChatIdentity("ana")), "%ff", "." * 9_000])
async def test_c4_a_token_that_is_not_valid_is_refused_with_a_reason(address: str, token: str) -> None:
    with pytest.raises(InvalidStatus) as caught:
        async with connect(f"{address}?token={token}"):
            raise AssertionError("it was let in")
    assert caught.value.response.status_code in (401, 414, 400)


async def test_c3_a_returning_client_that_missed_too_much_gets_a_snapshot(
    address: str, room: ChatRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MAX_MISSED", 2)
    async with connect(as_guest(address, "ana")) as ana:
        for number in range(5):
            await post(ana, f"line {number}", f"a{number}")
        async with connect(f"{address}?after=1") as late, connect(f"{address}?after={'9' * 5_000}") as odd:
            assert (await read(late))["type"] == "snapshot"
            assert (await read(odd))["type"] == "snapshot"


async def test_c3_connections_beyond_the_limit_are_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 1)
    async with connect(address) as first:
        await read(first)
        with pytest.raises(InvalidStatus) as caught:
            async with connect(address):
                raise AssertionError("it was let in")
        assert caught.value.response.status_code == 503


async def test_c3_a_client_that_sends_and_never_reads_is_disconnected(
    address: str, room: ChatRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SLOW_READER_S", 0.2)
    port = int(address.rpartition(":")[2].partition("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    path = as_guest("/rooms/den", "mal")
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    junk = (b"\x81\x82\0\0\0\0[]" + b"\x89\xfd\0\0\0\0" + b"p" * 125) * 200
    async with asyncio.timeout(60):
        while room.fanout.readers:
            with suppress(ConnectionError, TimeoutError):
                writer.write(junk)
                await asyncio.wait_for(writer.drain(), 0.05)
            await asyncio.sleep(0)
    writer.transport.abort()


async def test_c3_many_viewers_and_a_flood_of_joins_leave_the_room_working(address: str, room: ChatRoom) -> None:
    async with AsyncExitStack() as stack:
        ana = await stack.enter_async_context(connect(as_guest(address, "ana")))
        viewers = [await stack.enter_async_context(connect(address, compression=None)) for _ in range(150)]
        for _ in range(100):
            async with connect(address, compression=None) as joining:
                await read(joining)
        assert (await post(ana, "hello everybody", "a1"))["type"] == "posted"
        messages = await asyncio.gather(*(read_message(viewer) for viewer in viewers))
        assert {message["text"] for message in messages} == {"hello everybody"}
        assert room.fanout.readers == 151
