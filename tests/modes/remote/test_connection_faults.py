"""Faults of a remote agent: the person gets one sentence, and other rooms are not affected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any

import pytest
import structlog
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from coterie.modes.remote.connections import AgentsSettings
from coterie.modes.remote.protocol import DoneStep, FileStep, HelloFrame, MessageFrame, TextStep, parse_server_frame
from tests.modes.remote.conftest import RemoteHarness

Play = Callable[[ServerConnection, MessageFrame], Awaitable[None]]
HELLO = HelloFrame(name="bad", epoch="e").to_json()


@asynccontextmanager
async def agent(play: Play) -> AsyncIterator[str]:
    """A server that sends a valid hello, and handles each message with `play`."""

    async def connected(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(HELLO)
        async for frame in socket:
            if isinstance(message := parse_server_frame(frame), MessageFrame):
                await play(socket, message)

    async with serve(connected, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


@asynccontextmanager
async def raw(answer: bytes | None, *, after_request: bool = False) -> AsyncIterator[str]:
    """A TCP server that sends these bytes, at once or when it has been asked, and closes, or sends nothing."""
    finished = asyncio.Event()
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if answer is None:
            await finished.wait()
        else:
            if after_request:
                with suppress(OSError, EOFError):
                    await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finished.set()
    while _accepting(connected.__qualname__):  # connections that were just accepted still reach `connected`
        await asyncio.sleep(0)
    for writer in writers:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _accepting(handler: str) -> bool:
    """Whether a connection is being accepted, or its handler has not ended."""
    names = {getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()}
    return any(name == handler or name.endswith("._accept_connection2") for name in names)


@asynccontextmanager
async def refuses() -> AsyncIterator[str]:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    yield f"ws://127.0.0.1:{port}"


@asynccontextmanager
async def answers(status: HTTPStatus) -> AsyncIterator[str]:
    def refuse(socket: ServerConnection, _: Request) -> Response:
        return socket.respond(status, "no\n")

    async def never(_: ServerConnection) -> None:
        raise AssertionError("the connection was accepted")

    async with serve(never, "127.0.0.1", 0, process_request=refuse) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


async def hangs(_: ServerConnection, __: MessageFrame) -> None:
    """Takes the message and sends nothing; pings are answered."""


async def hangs_halfway(socket: ServerConnection, message: MessageFrame) -> None:
    if message.after == 0:
        await socket.send(TextStep(message=message.id, number=1, text="Half a ").to_json())


async def cuts(socket: ServerConnection, _: MessageFrame) -> None:
    socket.transport.abort()


async def cuts_halfway(socket: ServerConnection, message: MessageFrame) -> None:
    if message.after == 0:
        await socket.send(TextStep(message=message.id, number=1, text="Half a ").to_json())
        await socket.send(TextStep(message=message.id, number=2, text="sentence").to_json())
    await asyncio.sleep(0)
    socket.transport.abort()


async def closes(socket: ServerConnection, _: MessageFrame) -> None:
    await socket.close(1011, "internal error\n\x00")


def sends(*frames: str | bytes) -> Play:
    async def play(socket: ServerConnection, message: MessageFrame) -> None:
        for frame in frames:
            await socket.send(frame.replace("ID", message.id) if isinstance(frame, str) else frame)

    return play


UNREACHABLE = "Helper cannot be reached at the moment. Try again later."
LOST = "The connection to Helper was lost. Try again later."
SILENT = "Helper does not answer. Try again later."
UNREADABLE = "The answer of Helper cannot be read. Try again later."
FAULTS = {
    "refuses": (refuses(), [UNREACHABLE]),
    "500": (answers(HTTPStatus.INTERNAL_SERVER_ERROR), ["Helper answered with HTTP status 500. Try again later."]),
    "503": (answers(HTTPStatus.SERVICE_UNAVAILABLE), ["Helper answered with HTTP status 503. Try again later."]),
    "401": (
        answers(HTTPStatus.UNAUTHORIZED),
        ["Helper refuses the token. Correct its token in agents.yaml."],
    ),
    "hangs while connecting": (raw(None), [UNREACHABLE]),
    "hangs": (agent(hangs), [SILENT]),
    "hangs halfway": (agent(hangs_halfway), ["Half a ", SILENT]),
    "cuts": (agent(cuts), [LOST]),
    "cuts halfway": (agent(cuts_halfway), ["Half a sentence", LOST]),
    "closes": (agent(closes), [LOST]),
    "speaks no HTTP": (raw(b"\x00\xff\x00 nonsense\r\n\r\n"), [UNREACHABLE]),
    "speaks no WebSocket": (
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", after_request=True),
        ["answered with HTTP status 200"],
    ),
    "garbage": (agent(sends("}{ \x07")), [UNREADABLE]),
    "binary garbage": (agent(sends(bytes(range(256)))), [UNREADABLE]),
    "another shape": (agent(sends('{"type": "text", "message": 7}')), [UNREADABLE]),
    "unknown frame": (agent(sends('{"type": "launch", "message": "ID"}')), [UNREADABLE]),
    "leaves out": (agent(sends('{"type": "done", "message": "ID", "number": 9}')), [UNREADABLE]),
    "too large": (agent(sends('{"type": "text", "text": "' + "a" * 2_000_000 + '"}')), [UNREADABLE]),
    "says it failed": (
        agent(sends('{"type": "error", "message": "ID", "number": 1, "text": "The oven is off."}')),
        ["The oven is off. Try again later."],
    ),
    "bad file": (
        agent(sends(FileStep(message="ID", number=1, data="é").to_json())),
        ["A chunk of a file is not Base64."],
    ),
}


def fits(shown: str, expected: str) -> bool:
    """A lost connection is opened again; if that takes too long, the error is that of connecting."""
    return expected in shown or (expected == LOST and UNREACHABLE in shown)


@pytest.mark.parametrize("fault", FAULTS)
async def test_p12_a_fault_is_one_sentence_and_other_rooms_are_not_affected(harness: RemoteHarness, fault: str) -> None:
    server, expected = FAULTS[fault]
    async with server as url:
        harness.remote(url)
        await harness.say("!agent Echo", "elsewhere", "0")
        await harness.router.wait_idle()
        await harness.say("Are you there?")
        await harness.say("all well?", "elsewhere", "2")
        async with asyncio.timeout(30):  # on a busy machine; the product's own limit has a test below
            await harness.router.wait_idle()
        shown = harness.platform.shown("desk")
        assert len(shown) == len(expected), shown
        assert all(map(fits, shown, expected)), shown
        assert harness.platform.shown("elsewhere")[-1].startswith("all well? [echo:")
        # The same room still gets answers.
        assert "Helper" in (await harness.ask("!agent", key="3"))[-1]


@pytest.mark.parametrize("turns", [2, 3, 10])
@pytest.mark.parametrize(
    "greeting",
    [
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="SSH"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", id="HTTP"),
        pytest.param(b"", id="nothing"),
    ],
)
async def test_p12_a_server_that_speaks_before_it_is_asked_cannot_be_reached(
    harness: RemoteHarness, monkeypatch: pytest.MonkeyPatch, greeting: bytes, turns: int
) -> None:
    """`turns` of the event loop pass between the connection and the request, as on a busy machine."""
    original = ClientConnection.handshake

    async def handshake(self: ClientConnection, *args: Any) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await original(self, *args)

    monkeypatch.setattr(ClientConnection, "handshake", handshake)
    with structlog.testing.capture_logs() as logs:
        async with raw(greeting) as url:
            harness.remote(url)
            (shown,) = await harness.ask("Are you there?")
    assert UNREACHABLE in shown
    assert not [line for line in logs if line["event"] == "background task failed"]


def test_p12_silence_is_reported_within_five_seconds() -> None:
    assert AgentsSettings().silence_timeout_s + 1 < 5, "seconds, by the specification"


async def test_p12_an_agent_that_reconnects_in_time_continues_its_reply(harness: RemoteHarness) -> None:
    harness.settings = AgentsSettings(silence_timeout_s=20, max_retry_pause_s=0.05)
    await harness.crash()
    calls = list[int]()

    async def cuts_twice(socket: ServerConnection, message: MessageFrame) -> None:
        calls.append(message.after)
        steps = ["One ", "two ", "three."]
        for number in range(message.after + 1, 4):
            await socket.send(TextStep(message=message.id, number=number, text=steps[number - 1]).to_json())
            if len(calls) < 3:
                await asyncio.sleep(0.05)
                socket.transport.abort()
                return
        await socket.send(DoneStep(message=message.id, number=4).to_json())

    async with agent(cuts_twice) as url:
        harness.remote(url)
        assert await harness.ask("Count.") == ["One two three."]
    assert calls == [0, 1, 2]
