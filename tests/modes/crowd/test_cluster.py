"""C2: gateway, senders and readers over a real NATS server; kill any of them, nothing is lost or duplicated."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coterie.modes.crowd.cluster import Broker, ClusterClient
from coterie.modes.crowd.errors import MessageRefused, NoBroker
from coterie.modes.crowd.protocol import ChatAuthor, ChatMessage, ChatPost

_SERVER = Path(sys.executable).parent / "nats-server"
ROOM = 'name = "attic"\ntitle = "The attic"\nroster = ["salt_lamp"]\n[limits]\nburst = 100000\nper_minute = 100000\n'


class Cluster:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.address = f"nats://127.0.0.1:{self._port}"
        (folder / "home" / "configs" / "rooms").mkdir(parents=True)
        (folder / "home" / "configs" / "rooms" / "attic.toml").write_text(ROOM)
        # Every acknowledged message is on the disk: that is what `sync_interval: always` costs time for.
        (folder / "nats.conf").write_text(
            f'listen: "127.0.0.1:{self._port}"\njetstream {{ store_dir: "{folder / "js"}", sync_interval: always }}\n'
        )
        self.server: asyncio.subprocess.Process | None = None
        self.gateway: asyncio.subprocess.Process | None = None

    async def start_server(self) -> None:
        program = str(_SERVER) if _SERVER.exists() else shutil.which("nats-server")
        assert program is not None
        quiet = asyncio.subprocess.DEVNULL
        self.server = await asyncio.create_subprocess_exec(
            program, "-c", str(self._folder / "nats.conf"), stdout=quiet, stderr=quiet
        )
        for _ in range(600):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return
        raise AssertionError("the NATS server does not come up")

    async def start_gateway(self) -> None:
        self.gateway = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "coterie", "crowd", "gateway", "--bus", self.address, "--room", "attic"),
            env={**os.environ, "COTERIE_HOME": str(self._folder / "home")},
            stdout=asyncio.subprocess.PIPE,
        )
        assert self.gateway.stdout is not None
        assert b"listens" in await self.gateway.stdout.readline()

    async def kill(self, process: asyncio.subprocess.Process | None) -> None:
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    started = Cluster(tmp_path)
    await started.start_server()
    yield started
    await started.kill(started.gateway)
    await started.kill(started.server)


def post(number: int, text: str = "") -> ChatPost:
    author = ChatAuthor(name=f"u{number % 7}", kind="human")
    return ChatPost(id=f"p{number}", room="attic", author=author, text=text or f"word number {number}")


async def test_c2_nothing_acknowledged_is_lost_or_doubled_after_kills(cluster: Cluster) -> None:
    await cluster.start_gateway()
    broker = await Broker.connect(cluster.address)
    remote = ClusterClient(broker, "attic")
    received: list[ChatMessage] = []

    async def listen() -> None:
        async for message in remote.firehose():
            received.append(message)  # noqa: PERF401 - it goes on until it is cancelled

    listening = asyncio.create_task(listen())
    acknowledged: list[ChatMessage] = []

    async def send(numbers: range) -> None:
        for number in numbers:
            acknowledged.append(await remote.post(post(number), deadline_s=200))  # noqa: PERF401 - each as it comes

    sending = [asyncio.create_task(send(range(part, 60, 4))) for part in range(4)]
    while len(acknowledged) < 15:
        await asyncio.sleep(0.02)
    await cluster.kill(cluster.gateway)
    await cluster.start_gateway()
    while len(acknowledged) < 35:
        await asyncio.sleep(0.02)
    await cluster.kill(cluster.server)
    await cluster.start_server()
    await asyncio.gather(*sending)
    assert await remote.post(post(3)) == next(each for each in acknowledged if each.nonce == "p3")
    while len(received) < 60:
        await asyncio.sleep(0.05)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await broker.close()
    assert sorted(each.nonce or "" for each in received) == sorted(f"p{number}" for number in range(60))
    assert [each.number for each in received] == list(range(1, 61))
    assert {each.id for each in acknowledged} == {each.id for each in received}


async def test_c4_a_refusal_crosses_the_broker(cluster: Cluster) -> None:
    await cluster.start_gateway()
    broker = await Broker.connect(cluster.address)
    remote = ClusterClient(broker, "attic")
    with pytest.raises(MessageRefused, match="links to"):
        await remote.post(post(1, "win at http://spam.example/now"))
    await broker.close()


async def test_c2_no_gateway_answers(cluster: Cluster) -> None:
    broker = await Broker.connect(cluster.address)
    with pytest.raises(NoBroker, match="No gateway"):
        await ClusterClient(broker, "attic").post(post(1), deadline_s=0.5)
    await broker.close()
    await cluster.kill(cluster.server)
    with pytest.raises(NoBroker, match="does not answer"):
        await Broker.connect(cluster.address)
