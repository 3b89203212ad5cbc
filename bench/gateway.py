"""CPU cost of a crowd message on its way in, and of sending it to a thousand WebSocket readers.

In: parse, validate, check limits, moderate, redact, number, store durably in batches, answer. Out: a thousand readers
in another process, in CPU time of the server, with frames of one message and of twenty (a tick at 400 messages a
second). Loopback includes the readers' half of the connections, so a second run moves that half to another core where
possible (`bench.lib.loopback`). It is compared with `websockets.broadcast` and, as the lower bound, with bare
`os.write` of the same bytes. Then a tenth of the readers stop reading, and the delay of the others is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from websockets.asyncio.server import broadcast
from websockets.asyncio.server import serve as serve_websockets

from bench.lib.loopback import receive_on_other_core
from bench.lib.report import arguments, finish, log, percentile, scratch_folder
from coterie.base.clock import SystemClock
from coterie.eventstore import Store
from coterie.modes.crowd.gateway import Admission, ChatRoom, Gateway, RoomLimits
from coterie.modes.crowd.gateway.gateway import encode_frame
from coterie.modes.crowd.moderation import Moderator, read_wordlists
from coterie.modes.crowd.protocol import ChatAuthor, ChatMessage, ChatPost
from coterie.modes.crowd.settings import SHIPPED_CONFIGS
from coterie.surfaces.websocket.server import serve

_CHAT = (
    "hello there chat how are you",
    "did he just eat the health potion at full health",
    "LUL that was so good",
    "we need 20 more subs for the goal!!",
    "no way he makes that jump lmao",
    "@nora_k left path left path left path",
    "I have played this 3 times and I still do not know what the lever does",
    "someone clip that please",
)
_BATCH = 500
_FRAME_MESSAGES = 20


def open_gateway(store: Store) -> Gateway:
    limits = RoomLimits(burst=1_000_000, per_minute=1_000_000)
    return Gateway(
        store, Admission("den", Moderator(read_wordlists([SHIPPED_CONFIGS / "moderation"])), limits), SystemClock()
    )


async def measure_posts(folder: Path, count: int) -> float:
    """Messages per second of CPU, all threads of the process counted."""
    store = Store.open(folder / "in.db")
    gateway = open_gateway(store)
    chance = random.Random(1)
    raw = [
        ChatPost(
            id=f"c{number}",
            room="den",
            author=ChatAuthor(name=f"u{chance.randrange(2_000)}", kind="human"),
            text=chance.choice(_CHAT),
        ).to_json()
        for number in range(count)
    ]
    best = 0.0
    part = count // 4
    for start in range(0, count, part):  # the best of four, since other programs share the machine
        began = time.process_time()
        for at in range(start, start + part, _BATCH):
            for answer in [gateway.post(ChatPost.from_json(each)) for each in raw[at : at + _BATCH]]:
                await answer
        best = max(best, part / (time.process_time() - began))
    assert gateway.admission.last_number == count
    store.close()
    return best


class Readers:
    """The process of the readers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def connect(cls, port: int, readers: int, path: str, *, slow: int = 0) -> Readers:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.lib.websocket_readers", str(port), str(readers), str(slow), path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**26,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        return cls(process)

    async def delays(self) -> list[float]:
        output, _ = await self._process.communicate(b"")
        delays: list[float] = json.loads(output.splitlines()[-1])
        return delays


def messages(number: int, count: int) -> list[ChatMessage]:
    author = ChatAuthor(name="nora_k", kind="human", colour="#6a8f5c")
    now = round(time.time() * 1_000)
    return [
        ChatMessage(id=f"den-{n}", number=n, room="den", author=author, text=_CHAT[n % len(_CHAT)], ts=now)
        for n in range(number, number + count)
    ]


class Rates(NamedTuple):
    """Frames per second of CPU with one message, and with `_FRAME_MESSAGES`."""

    single: float
    full: float

    def __str__(self) -> str:
        return f"{self.single:,.0f} frames and {self.full * _FRAME_MESSAGES:,.0f} messages"


async def measure_sends(send: Callable[[list[ChatMessage]], None], readers: int, ticks: int) -> Rates:
    """The best rate of several runs for each frame size."""
    best = {1: 0.0, _FRAME_MESSAGES: 0.0}
    repeats = max(ticks // 5, 1)
    number = 1
    for _ in range(0, ticks, repeats):
        for size in best:
            began = time.process_time()
            for _ in range(repeats):
                send(messages(number, size))
                number += size
                await asyncio.sleep(0.02)
            best[size] = max(best[size], readers * repeats / (time.process_time() - began))
            await asyncio.sleep(0.3)
    return Rates(best[1], best[_FRAME_MESSAGES])


@asynccontextmanager
async def open_room(folder: Path) -> AsyncIterator[tuple[ChatRoom, int]]:
    """A served room and its port."""
    store = Store.open(folder / "out.db")
    room = ChatRoom(open_gateway(store), store.bus)
    server = await serve({"den": room})
    yield room, server.sockets[0].getsockname()[1]
    server.close()
    while room.fanout.readers:  # noqa: ASYNC110 - closed sockets notify only the room
        await asyncio.sleep(0.05)
    store.close()


async def measure_coterie(folder: Path, readers: int, ticks: int) -> Rates:
    async with open_room(folder) as (room, port):

        def send(batch: list[ChatMessage]) -> None:
            room.fanout.send(batch)
            room.fanout.flush()

        crowd = await Readers.connect(port, readers, "/rooms/den?name=reader")
        rates = await measure_sends(send, readers, ticks)
        await crowd.delays()
        return rates


async def measure_websockets(readers: int, ticks: int) -> Rates:
    joined: set[object] = set()

    async def stay(connection: object) -> None:
        joined.add(connection)
        await connection.wait_closed()  # type: ignore[attr-defined]

    async with serve_websockets(stay, "127.0.0.1", 0, compression=None) as server:
        crowd = await Readers.connect(next(iter(server.sockets)).getsockname()[1], readers, "/")
        rates = await measure_sends(
            lambda batch: broadcast(joined, encode_frame("messages", batch).text.decode()),  # type: ignore[arg-type]
            readers,
            ticks,
        )
        await crowd.delays()
        return rates


async def measure_delay(folder: Path, readers: int, count: int) -> tuple[float, int]:
    """p99 delay while a tenth of the readers do not read, and the frames dropped for those."""
    async with open_room(folder) as (room, port):
        crowd = await Readers.connect(port, readers, "/rooms/den?name=reader", slow=readers // 10)
        for number in range(1, 1 + count):  # 400 a second, one by one as a gateway sends them
            room.fanout.send(messages(number, 1))
            await asyncio.sleep(0.0025)
        await asyncio.sleep(0.2)
        return percentile(await crowd.delays(), 0.99), room.fanout.dropped


async def measure_raw_writes(readers: int, ticks: int) -> Rates:
    """The lower bound: one system call per frame."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0), backlog=readers) as listening, ExitStack() as open_sockets:
        listening.setblocking(False)
        connecting = asyncio.create_task(Readers.connect(listening.getsockname()[1], readers, "/"))
        joined: list[int] = []
        while len(joined) < readers:
            taken, _ = await loop.sock_accept(listening)
            open_sockets.enter_context(taken)
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_recv(taken, 4_096)
            await loop.sock_sendall(taken, b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
            joined.append(taken.fileno())
        crowd = await connecting

        def send(batch: list[ChatMessage]) -> None:
            data = encode_frame("messages", batch).websocket
            for number in joined:
                os.write(number, data)

        rates = await measure_sends(send, readers, ticks)
        await crowd.delays()
    return rates


async def run(quick: bool) -> dict[str, object]:
    readers, ticks = 1_000, 15 if quick else 60
    with scratch_folder() as name:
        folder = Path(name)
        path = await measure_posts(folder, 8_000 if quick else 60_000)
        log(f"posts: {path:,.0f} messages per core-second")
        here = await measure_coterie(folder, readers, ticks)
        bare_here = await measure_raw_writes(readers, ticks)
        log(f"sends to {readers:,} readers per core-second, with the readers' half of the connections: {here}")
        log(f"bare writes, with that half: {bare_here}")
        with receive_on_other_core() as elsewhere:
            ours_rates, peers, bare = (
                await measure_coterie(folder, readers, ticks),
                await measure_websockets(readers, ticks),
                await measure_raw_writes(readers, ticks),
            )
        scope = "without it" if elsewhere else "with it, since this system cannot separate them"
        log(f"{scope}: {ours_rates}; websockets.broadcast {peers}; bare writes {bare}")
        p99, dropped = await measure_delay(folder, readers, ticks * 2 * _FRAME_MESSAGES)
    log(
        f"with 100 readers that stopped reading: p99 {p99:.0f} ms for the others, {dropped} frames not sent to the slow"
    )
    return {
        "path_msgs_per_core_s": round(path),
        "frames_per_core_s": round(ours_rates.single),
        "msgs_per_core_s": round(ours_rates.full * _FRAME_MESSAGES),
        "websockets_frames_per_core_s": round(peers.single),
        "websockets_msgs_per_core_s": round(peers.full * _FRAME_MESSAGES),
        "bare_writes_per_core_s": round(bare.single),
        "readers_half_elsewhere": elsewhere,
        "frames_per_core_s_with_readers_half": round(here.single),
        "msgs_per_core_s_with_readers_half": round(here.full * _FRAME_MESSAGES),
        "bare_writes_per_core_s_with_readers_half": round(bare_here.single),
        "added_p99_ms": round(p99, 1),
    }


def main() -> None:
    options = arguments(__doc__).parse_args()
    finish(asyncio.run(run(options.quick)))


if __name__ == "__main__":
    main()
