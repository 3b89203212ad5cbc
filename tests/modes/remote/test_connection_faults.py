"""Whatever an agent does wrong is one plain sentence to the person, and nothing to anybody else. P12, issue 7"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from coterie.modes.remote.connections import AgentsSettings
from coterie.modes.remote.protocol import DoneStep, FileStep, HelloFrame, MessageFrame, TextStep, parse_server_frame
from tests.modes.remote.conftest import RemoteHarness

Play = Callable[[ServerConnection, MessageFrame], Awaitable[None]]
HELLO = HelloFrame(name="bad", epoch="e").to_json()


@asynccontextmanager
async def agent(play: Play) -> AsyncIterator[str]:
    """Says hello as it should; the rest is up to `play`."""

    async def connected(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(HELLO)
        async for frame in socket:
            if isinstance(told := parse_server_frame(frame), MessageFrame):
                await play(socket, told)

    async with serve(connected, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


@asynccontextmanager
async def raw(answer: bytes | None) -> AsyncIterator[str]:
    """A server that is no WebSocket: says this and hangs up, or nothing at all."""
    over = asyncio.Event()
    open_ones: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.append(writer)
        if answer is None:
            await over.wait()
        else:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        over.set()
    for _ in range(10):  # whoever called at the very end is let in, and shown out with the others
        await asyncio.sleep(0.001)
    for writer in open_ones:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


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
        raise AssertionError("it was let in")

    async with serve(never, "127.0.0.1", 0, process_request=refuse) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


async def hangs(_: ServerConnection, __: MessageFrame) -> None:
    """Takes the message, and nothing more is heard; pings are answered all the while."""


async def hangs_halfway(socket: ServerConnection, told: MessageFrame) -> None:
    if told.after == 0:
        await socket.send(TextStep(message=told.id, number=1, text="Half a ").to_json())


async def cuts(socket: ServerConnection, _: MessageFrame) -> None:
    socket.transport.abort()


async def cuts_halfway(socket: ServerConnection, told: MessageFrame) -> None:
    if told.after == 0:
        await socket.send(TextStep(message=told.id, number=1, text="Half a ").to_json())
        await socket.send(TextStep(message=told.id, number=2, text="sentence").to_json())
    await asyncio.sleep(0)
    socket.transport.abort()


async def closes(socket: ServerConnection, _: MessageFrame) -> None:
    await socket.close(1011, "internal error\n\x00")


def sends(*frames: str | bytes) -> Play:
    async def play(socket: ServerConnection, told: MessageFrame) -> None:
        for frame in frames:
            await socket.send(frame.replace("ID", told.id) if isinstance(frame, str) else frame)

    return play


UNREACHABLE = "Helper cannot be reached at the moment. Ask again in a while."
BROKE_OFF = "The line to Helper broke off. Ask again in a while."
SILENT = "Helper does not answer. Ask again in a while."
GARBLED = "What Helper answered cannot be understood. Ask again in a while."
FAULTS = {
    "refuses": (refuses(), [UNREACHABLE]),
    "500": (answers(HTTPStatus.INTERNAL_SERVER_ERROR), ["Helper is not well: it answered 500. Ask again in a while."]),
    "503": (answers(HTTPStatus.SERVICE_UNAVAILABLE), ["Helper is not well: it answered 503. Ask again in a while."]),
    "401": (
        answers(HTTPStatus.UNAUTHORIZED),
        ["Helper does not let me in. Whoever runs me has to look at its token."],
    ),
    "hangs at the door": (raw(None), [UNREACHABLE]),
    "hangs": (agent(hangs), [SILENT]),
    "hangs halfway": (agent(hangs_halfway), ["Half a ", SILENT]),
    "cuts": (agent(cuts), [BROKE_OFF]),
    "cuts halfway": (agent(cuts_halfway), ["Half a sentence", BROKE_OFF]),
    "closes": (agent(closes), [BROKE_OFF]),
    "speaks no HTTP": (raw(b"\x00\xff\x00 nonsense\r\n\r\n"), [UNREACHABLE]),
    "speaks no WebSocket": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"), ["it answered 200"]),
    "garbage": (agent(sends("}{ \x07")), [GARBLED]),
    "binary garbage": (agent(sends(bytes(range(256)))), [GARBLED]),
    "another shape": (agent(sends('{"type": "text", "message": 7}')), [GARBLED]),
    "unknown frame": (agent(sends('{"type": "launch", "message": "ID"}')), [GARBLED]),
    "leaves out": (agent(sends('{"type": "done", "message": "ID", "number": 9}')), [GARBLED]),
    "too large": (agent(sends('{"type": "text", "text": "' + "a" * 2_000_000 + '"}')), [GARBLED]),
    "says it failed": (
        agent(sends('{"type": "error", "message": "ID", "number": 1, "text": "The oven is off."}')),
        ["The oven is off. Ask again in a while."],
    ),
    "bad file": (
        agent(sends(FileStep(message="ID", number=1, data="é").to_json())),
        ["A piece of a file is not Base64."],
    ),
}


def fits(told: str, wanted: str) -> bool:
    """A line that broke off is called again; where that takes too long, the person is told that instead."""
    return wanted in told or (wanted == BROKE_OFF and UNREACHABLE in told)


@pytest.mark.parametrize("fault", FAULTS)
async def test_p12_whatever_is_wrong_is_one_sentence_and_other_rooms_go_on(house: RemoteHarness, fault: str) -> None:
    server, expected = FAULTS[fault]
    async with server as url:
        house.remote(url)
        await house.say("!agent Echo", "elsewhere", "0")
        await house.board.wait_idle()
        await house.say("Are you there?")
        await house.say("all well?", "elsewhere", "2")
        async with asyncio.timeout(5):  # the deadline of the product itself
            await house.board.wait_idle()
        shown = house.platform.shown("desk")
        assert len(shown) == len(expected), shown
        assert all(fits(told, wanted) for told, wanted in zip(shown, expected, strict=True)), shown
        assert house.platform.shown("elsewhere")[-1].startswith("all well? [echo:")
        # Nothing is stuck: the same room is answered again.
        assert "Helper" in (await house.told("!agent", key="3"))[-1]


def test_p12_the_house_gives_up_within_what_a_person_is_promised() -> None:
    assert AgentsSettings().silence_timeout_s + 1 < 5, "seconds, by the specification"


async def test_p12_an_agent_that_comes_back_in_time_is_not_noticed(house: RemoteHarness) -> None:
    house.settings = AgentsSettings(silence_timeout_s=20, max_retry_pause_s=0.05)
    await house.crash()
    calls = list[int]()

    async def cuts_twice(socket: ServerConnection, told: MessageFrame) -> None:
        calls.append(told.after)
        steps = ["One ", "two ", "three."]
        for number in range(told.after + 1, 4):
            await socket.send(TextStep(message=told.id, number=number, text=steps[number - 1]).to_json())
            if len(calls) < 3:
                await asyncio.sleep(0.05)
                socket.transport.abort()
                return
        await socket.send(DoneStep(message=told.id, number=4).to_json())

    async with agent(cuts_twice) as url:
        house.remote(url)
        assert await house.told("Count.") == ["One two three."]
    assert calls == [0, 1, 2]
