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

from coterie.app import App, open_store
from coterie.base.clock import SystemClock
from coterie.base.paths import Paths
from coterie.base.redaction import redact
from coterie.base.supervisor import STABLE_S
from coterie.eventstore import LogReader
from coterie.modes.crowd import ChatIdentity, ChatTokens
from coterie.modes.crowd.cluster import Broker, ClusterClient
from coterie.modes.crowd.errors import MessageRefused, NoBroker
from coterie.modes.crowd.protocol import ChatAuthor, ChatMessage, ChatPost
from coterie.modes.crowd.settings import CrowdSettings
from coterie.settings import Settings
from tests.faulty_supervisor import SECRET, FaultySupervisor, until

_SERVER = Path(sys.executable).parent / "nats-server"
ROOM = 'name = "attic"\ntitle = "The attic"\nroster = ["salt_lamp"]\n[limits]\nburst = 100000\nper_minute = 100000\n'
STRICT = ROOM.replace("burst = 100000", "burst = 3").replace("per_minute = 100000", "per_minute = 1")


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
        self.home = folder / "home"
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


def client(cluster: Cluster, broker: Broker, name: str) -> ClusterClient:
    """A client with a token for this name."""
    tokens = ChatTokens.from_folder(cluster.home, SystemClock())
    return ClusterClient(broker, "attic", tokens.issue("attic", ChatIdentity(name)))


async def test_c2_nothing_acknowledged_is_lost_or_doubled_after_kills(cluster: Cluster) -> None:
    await cluster.start_gateway()
    broker = await Broker.connect(cluster.address)
    remote = ClusterClient(broker, "attic")
    senders = [client(cluster, broker, f"u{number}") for number in range(7)]
    received: list[ChatMessage] = []

    async def listen() -> None:
        async for message in remote.firehose():
            received.append(message)  # noqa: PERF401 - it goes on until it is cancelled

    listening = asyncio.create_task(listen())
    acknowledged: list[ChatMessage] = []

    async def send(numbers: range) -> None:
        for number in numbers:
            sender = senders[number % 7]
            acknowledged.append(await sender.post(post(number), deadline_s=200))

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
    assert await senders[3].post(post(3)) == next(each for each in acknowledged if each.nonce == "p3")
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
    remote = client(cluster, broker, "u1")
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


async def test_c4_over_nats_the_author_is_decided_by_the_token_not_by_the_post(cluster: Cluster) -> None:
    (cluster.home / "configs" / "rooms" / "attic.toml").write_text(STRICT)
    await cluster.start_gateway()
    broker = await Broker.connect(cluster.address)
    mal = client(cluster, broker, "mal")
    rules: list[str] = []
    for number in range(6):
        forged = ChatPost.model_validate(
            {
                "id": f"f{number}",
                "room": "attic",
                "author": {"name": "salt_lamp", "kind": "system", "badges": ["mod"], "is_mod": True, "id": "owner"},
                "text": f"line number {number}",
                "is_mod": True,
                "kind": "system",
                "trace": {"because": "event", "decision": "salt_lamp@1"},
            }
        )
        try:
            message = await mal.post(forged)
        except MessageRefused as refused:
            rules.append(refused.rule)
        else:
            assert message.author.model_dump() == {"name": "mal", "kind": "human", "badges": (), "colour": None}
            assert (message.trace, message.model_extra) == (None, {})
            rules.append("")
    assert rules == ["", "", "", "rate", "rate", "rate"], "a system message passes no limit"
    await broker.close()


async def test_c4_over_nats_a_post_needs_a_token_of_the_room(cluster: Cluster) -> None:
    await cluster.start_gateway()
    broker = await Broker.connect(cluster.address)
    other_room = ChatTokens.from_folder(cluster.home, SystemClock()).issue("den", ChatIdentity("ana"))
    for token in ("", "nonsense", "a.b", other_room, "\u00fc"):
        with pytest.raises(MessageRefused) as caught:
            await ClusterClient(broker, "attic", token).post(post(1))
        assert caught.value.rule == "identity"
    with pytest.raises(MessageRefused, match="salt_lamp"):
        await client(cluster, broker, "SaIt_lamp").post(post(2))
    await broker.close()


async def test_c2_a_gateway_that_fails_comes_back_and_nothing_is_lost(cluster: Cluster) -> None:
    redact.register(SECRET)
    supervisor, task = FaultySupervisor(), "crowd gateway: attic"
    paths = Paths.locate({"COTERIE_HOME": str(cluster.home)})
    settings = Settings(crowd=CrowdSettings(bus=cluster.address))
    with open_store(paths) as store:
        app = App(paths, settings, store, supervisor=supervisor)
        async with app.running():
            room = await app.crowd.room("attic")
            broker = await Broker.connect(cluster.address)
            ana = client(cluster, broker, "ana")
            assert (await ana.post(post(1))).number == 1
            supervisor.kill(task)
            await until(lambda: supervisor.runs[task] == 2)
            (problem,) = (state for state in supervisor.problems() if state.name == task)
            assert (problem.status, problem.failures) == ("retrying", 1)
            assert "ZeroDivisionError: arbitrary failure" in problem.error and SECRET not in problem.error
            assert [(await ana.post(post(number))).number for number in (1, 2)] == [1, 2]
            supervisor.clock.advance(STABLE_S)
            assert task not in {state.name for state in supervisor.problems()}
            reader = ClusterClient(broker, "attic").firehose()
            assert [(await anext(reader)).number for _ in range(2)] == [1, 2]
            assert room.gateway.admission.last_number == 2
            await reader.aclose()  # type: ignore[attr-defined]
            await broker.close()


async def test_c2_hostile_posts_over_nats_stop_nothing(cluster: Cluster) -> None:
    """Neither what is posted, nor where the answer is to go, nor what others publish on the firehose."""
    await cluster.start_gateway()
    broker = await Broker.connect(cluster.address)
    ana = client(cluster, broker, "ana")
    await ana.post(post(1))
    token = ana._token
    nothing = "chat.firehose.attic"
    junk = (b"", b"\x00", b"[]", b"{", b"\xff\xfe", b"9" * 5_000, b"[" * 100_000, b'{"id": 1e999}', b'"' * 200_000)
    for data in junk:
        headers = {"Chat-Token": token, "Answer-To": nothing}
        await broker.jetstream.publish("chat.ingest.attic", data, headers=headers)
        await broker.jetstream.publish("chat.ingest.attic", data, headers={"Answer-To": "*.>"})
    assert (await ana.post(post(2))).number == 2
    await broker.jetstream.publish("chat.firehose.attic", b"not from the gateway")
    await cluster.kill(cluster.gateway)
    await cluster.start_gateway()
    assert (await ana.post(post(3))).number == 3
    received = []
    async for message in ClusterClient(broker, "attic").firehose():
        received.append(message.number)
        if message.number == 3:
            break
    assert received == [1, 2, 3], "no answer was published there, and the foreign message was skipped"
    reader = LogReader(cluster.home / "coterie.db")
    kinds = [event.kind for event in reader.read("room:attic")]
    reader.close()
    assert kinds.count("crowd_said") == 3
    assert kinds.count("crowd_audited") > 0
    await broker.close()
