"""C2, C17: a session divided among processes over a real NATS server."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import tomlkit

from coterie.app import all_projections
from coterie.base.clock import SystemClock
from coterie.eventstore import LogReader, Payload, Store
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.memory import Memory
from coterie.modes.crowd import ChatIdentity, ChatTokens, CrowdService, CrowdSettings, Replay, last_session_events
from coterie.modes.crowd.cluster import (
    Broker,
    ClusterClient,
    ClusterGateway,
    ContextService,
    CrowdCluster,
    Leases,
    PersonaWorker,
    RunningSession,
    RunningSessions,
    TrendsService,
)
from coterie.modes.crowd.cluster import session as session_module
from coterie.modes.crowd.cluster.services import shard_of
from coterie.modes.crowd.errors import LogBehindBroker, MessageRefused, NoBroker
from coterie.modes.crowd.events import CrowdSaid, CrowdTicked, CrowdWritten
from coterie.modes.crowd.gateway import Gateway
from coterie.modes.crowd.generation import CannedLineWriter
from coterie.modes.crowd.protocol import ChatAuthor, ChatMessage, ChatPost, Trace
from coterie.modes.crowd.session.replay import admission_for
from coterie.modes.crowd.session.session import opening_event
from coterie.modes.crowd.session.stream_sources import open_stream
from coterie.modes.crowd.settings import CrowdConfigs
from tests.modes.crowd.test_cluster import Cluster

HURRIED = """
name = "attic"
title = "The attic"
[tempo]
tick_s = 0.2
lines_per_minute = 600
rest_s = 1
typing_per_s = 5000
[limits]
burst = 100000
per_minute = 100000
"""
TALE = "".join(
    f'[[line]]\nat = {number * 0.5:.1f}\nsay = "chat, which door, number {number}?"\nevent = "chat_question"\n'
    for number in range(240)
)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    started = Cluster(tmp_path)
    (started.home / "configs" / "rooms" / "attic.toml").write_text(HURRIED)
    (tmp_path / "tale.toml").write_text(TALE)
    await started.start_server()
    yield started
    await started.kill(started.gateway)
    await started.kill(started.server)


async def start_part(cluster: Cluster, *command: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "coterie", "crowd", *command, "--bus", cluster.address, "--room", "attic"),
        env={**os.environ, "COTERIE_HOME": str(cluster.home)},
        stdout=asyncio.subprocess.DEVNULL,
    )


async def read(broker: Broker, received: list[ChatMessage]) -> None:
    async for message in ClusterClient(broker, "attic").firehose():
        received.append(message)  # noqa: PERF401 - it goes on until it is cancelled


async def until(condition: object, timeout_s: float = 90) -> None:
    assert callable(condition)
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.05)


async def test_c2_c17_a_divided_session_survives_kills_and_replays_to_the_byte(
    cluster: Cluster, tmp_path: Path
) -> None:
    await cluster.start_gateway()
    tale = str(tmp_path / "tale.toml")
    parts = {
        "trends": ("trends",),
        "context": ("context", tale),
        "first": ("personas", "--no-model"),
        "second": ("personas", "--no-model"),
    }
    running = {name: await start_part(cluster, *command) for name, command in parts.items()}
    broker = await Broker.connect(cluster.address)
    received: list[ChatMessage] = []
    reading = asyncio.create_task(read(broker, received))
    try:
        await until(lambda: len(received) >= 10)
        await cluster.kill(running["first"])  # the second takes over
        for name in ("trends", "context"):
            await cluster.kill(running[name])
            running[name] = await start_part(cluster, *parts[name])
        await cluster.kill(cluster.gateway)
        seen = len(received)
        await cluster.start_gateway()
        await until(lambda: len(received) >= seen + 30)
    finally:
        for process in running.values():
            await cluster.kill(process)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await broker.close()
    assert cluster.gateway is not None
    cluster.gateway.terminate()
    await cluster.gateway.wait()
    assert [message.number for message in received] == list(range(1, len(received) + 1))
    assert max(Counter((message.author.name, message.nonce) for message in received).values()) == 1
    answers = Counter((message.author.name, message.reply_to) for message in received if message.reply_to)
    assert max(answers.values(), default=1) == 1, "a persona answers a message once, whoever runs it"
    reader = LogReader(cluster.home / "coterie.db")
    events = last_session_events(reader, "attic")
    reader.close()
    ticks = [event for event in events if isinstance(event, CrowdTicked)]
    decided = Counter((tick.tick, name) for tick in ticks for name in tick.personas or ())
    assert max(decided.values()) == 1, "each persona is run by one worker at a time"
    configs = CrowdConfigs([cluster.home / "configs"])
    moderator = configs.moderator(configs.room("attic"))
    assert Replay(events, moderator).run().identical
    for behind in {tick.personas for tick in ticks if tick.personas}:
        late = record_late(events, frozenset(behind))
        assert Replay(late, moderator).run().identical, "how late a worker records its decisions changes nothing"


def record_late(events: list[Payload], share: frozenset[str]) -> list[Payload]:
    """The same session with a worker that is slow to record while it runs these personas.

    Its records keep their order, and a decision is recorded before the line that follows from it.
    """
    late: list[Payload] = []
    held: list[Payload] = []
    for event in events:
        about: set[str] = set()
        if isinstance(event, CrowdTicked):
            about = set(event.personas or ()) & share
            holds = set(event.personas or ()) == share
        elif isinstance(event, CrowdWritten):
            holds = bool(held) and event.persona in share
        else:
            holds = False
            if isinstance(event, CrowdSaid):
                about = {event.message.author.name} & share
        if holds:
            held.append(event)
            continue
        if about:
            late += held
            held.clear()
        late.append(event)
    return late + held


async def test_c2_workers_divide_the_personas_and_take_over_from_each_other(cluster: Cluster) -> None:
    configs = CrowdConfigs([cluster.home / "configs"])
    room = configs.room("attic")
    personas = configs.personas_in(room)
    everybody = {persona.name for persona in personas}
    broker = await Broker.connect(cluster.address)
    now = SystemClock().now_ms()
    await RunningSessions(broker).announce(RunningSession(opened=opening_event(room, personas, 1, now)))
    workers = [
        PersonaWorker(broker, "attic", "", lambda rules, _: CannedLineWriter(rules), SystemClock()) for _ in range(3)
    ]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]

    def divided(among: list[PersonaWorker]) -> bool:
        shares = [worker.names for worker in among]
        assert sum(map(len, shares)) == len({name for share in shares for name in share}), "nobody is run twice"
        return all(shares) and sum(map(len, shares)) == len(everybody)

    await until(lambda: divided(workers))
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    await until(lambda: divided(workers[1:]))
    await RunningSessions(broker).withdraw("attic")
    await until(lambda: not workers[1].names and not workers[2].names)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await broker.close()


def test_c2_a_shard_depends_on_the_name_only() -> None:
    assert [shard_of(name, 16) for name in ("salt_lamp", "nonna_exe")] == [
        shard_of(name, 16) for name in ("salt_lamp", "nonna_exe")
    ]
    assert len({shard_of(f"persona_{number}", 16) for number in range(300)}) == 16


async def test_c2_a_lease_has_one_holder_and_ends_without_renewal(cluster: Cluster) -> None:
    broker = await Broker.connect(cluster.address)
    now = 0.0
    first, second = Leases(broker, lambda: now), Leases(broker)
    assert await first.take("gateway.attic")
    assert not await second.take("gateway.attic")
    assert first.holds("gateway.attic")
    now = 10.0
    assert not first.holds("gateway.attic"), "a holder stops by its own clock"
    await asyncio.wait_for(second.wait_for("gateway.attic"), 30)
    assert second.holds("gateway.attic")
    await second.release("gateway.attic")
    assert await first.take("gateway.attic"), "a released lease is free at once"
    before, after = (Leases(broker, owner="one database") for _ in range(2))
    assert await before.take("gateway.den")
    assert not await Leases(broker, owner="another database").take("gateway.den")
    assert await after.take("gateway.den"), "who has the database that the holder had need not wait"
    await broker.close()


async def test_c4_only_a_worker_speaks_for_personas(cluster: Cluster) -> None:
    await cluster.start_gateway()
    broker = await Broker.connect(cluster.address)
    tokens = ChatTokens.from_folder(cluster.home, SystemClock())
    worker = ClusterClient(broker, "attic", tokens.issue("attic", ChatIdentity("personas", "worker")))
    guest = ClusterClient(broker, "attic", tokens.issue("attic", ChatIdentity("ana")))
    now = SystemClock().now_ms()

    def line(number: int, name: str = "salt_lamp", posted_ms: int = now) -> ChatPost:
        author = ChatAuthor(name=name, kind="persona")
        trace = Trace(because="base", posted_ms=posted_ms)
        return ChatPost(id=f"l{number}", room="attic", author=author, text=f"line number {number}", trace=trace)

    assert (await guest.post(line(1))).author.kind == "human"
    stored = await worker.post(line(2))
    assert (stored.author.kind, stored.author.name) == ("persona", "salt_lamp")
    assert await worker.post(line(2)) == stored, "a repeated line is stored once"
    for bad, rule in ((line(3, "nobody_here"), "name"), (line(4, posted_ms=now - 60_000), "late")):
        with pytest.raises(MessageRefused) as refused:
            await worker.post(bad)
        assert refused.value.rule == rule
    record = CrowdWritten(persona="salt_lamp", tick=1, at_ms=now, outcome="late", why="forged")
    forged = {"Chat-Token": tokens.issue("attic", ChatIdentity("ana")), "Event-Kind": "crowd_written"}
    await broker.jetstream.publish("chat.record.attic", record.model_dump_json().encode(), headers=forged)
    await broker.jetstream.publish("chat.record.attic", b"\xff", headers={"Event-Kind": "nonsense"})
    await guest.post(ChatPost(id="g2", room="attic", author=stored.author, text="the gateway goes on"))
    reader = LogReader(cluster.home / "coterie.db")
    assert not any(event.kind == "crowd_written" for event in reader.read("room:attic"))
    reader.close()
    await broker.close()


async def test_c2_a_gateway_with_another_log_refuses_to_serve_the_room(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.start_gateway()
    broker = await Broker.connect(cluster.address)
    tokens = ChatTokens.from_folder(cluster.home, SystemClock())
    guest = ClusterClient(broker, "attic", tokens.issue("attic", ChatIdentity("ana")))
    await guest.post(ChatPost(id="p1", room="attic", author=ChatAuthor(name="ana", kind="human"), text="hello there"))
    await cluster.kill(cluster.gateway)
    configs = CrowdConfigs([cluster.home / "configs"])
    room = configs.room("attic")
    store = Store.open(tmp_path / "other.db", projections=all_projections())
    admission = admission_for(room, configs.personas_in(room), configs.moderator(room))
    other = ClusterGateway(broker, Gateway(store, admission, SystemClock()), store.bus, tokens)
    with pytest.raises(ExceptionGroup) as failed:
        await asyncio.wait_for(other.run(), 60)
    assert failed.group_contains(LogBehindBroker)
    await broker.close()
    store.close()


async def test_c2_c19_with_a_bus_the_server_shows_the_room_as_before(cluster: Cluster, tmp_path: Path) -> None:
    clock = SystemClock()
    store = Store.open(tmp_path / "app.db", projections=all_projections())
    models = Models(ModelsSettings(), store=store)
    connection = CrowdCluster(
        cluster.address, ChatTokens.from_folder(cluster.home, clock), database=tmp_path / "app.db"
    )
    service = CrowdService(
        store, Memory(store, clock=clock), models, clock, cluster.home / "configs", CrowdSettings(), cluster=connection
    )
    subjects: set[str] = set()

    async def watch() -> None:
        async with store.bus.subscribe("*.*.attic") as updates:
            async for update in updates:
                subjects.add(update.subject)

    watching = asyncio.create_task(watch())
    room = await service.start("attic", str(tmp_path / "tale.toml"), line_source="phrasebook")
    expected = {f"{subject}.attic" for subject in ("chat.firehose", "stream.context", "chat.trends")}
    await until(lambda: expected <= subjects and room.gateway.admission.last_number > 5)
    assert room.contexts
    assert room.live is not None
    assert any(room.live.session.recent_decisions.values()), "the page shows why personas spoke"
    ana = ChatPost(
        id="p1", room="attic", author=ChatAuthor(name="ana", kind="human"), text="@nonna_exe is there any soup left?"
    )
    question = await room.gateway.post(ana)
    await until(lambda: any(message.reply_to == question.id for message in room.gateway.latest(1_000)))
    await service.stop("attic")
    assert room.state == "quiet"
    assert Replay(last_session_events(store.reader, "attic"), service.configs.moderator(room.rules)).run().identical
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await service.close()
    await models.close()
    store.close()


async def test_c2_c5_edits_apply_in_all_processes_at_one_tick_and_replay(cluster: Cluster, tmp_path: Path) -> None:
    clock = SystemClock()
    store = Store.open(tmp_path / "app.db", projections=all_projections())
    models = Models(ModelsSettings(), store=store)
    configs = cluster.home / "configs"
    tokens = ChatTokens.from_folder(cluster.home, clock)
    connection = CrowdCluster(cluster.address, tokens, database=tmp_path / "app.db")
    service = CrowdService(store, Memory(store), models, clock, configs, CrowdSettings(), cluster=connection)
    broker = await Broker.connect(cluster.address)
    worker = PersonaWorker(
        broker,
        "attic",
        tokens.issue("attic", ChatIdentity("personas", "worker")),
        lambda rules, _: CannedLineWriter(rules),
        clock,
    )
    working = asyncio.create_task(worker.run())
    try:
        room = await service.start("attic", str(tmp_path / "tale.toml"), line_source="phrasebook")

        def ticks() -> list[CrowdTicked]:
            events = store.reader.read("room:attic", kinds=[CrowdTicked.kind], limit=100_000)
            return [event.payload for event in events if isinstance(event.payload, CrowdTicked)]

        await until(lambda: room.gateway.admission.last_number > 5 and worker.names)
        (configs / "personas").mkdir(exist_ok=True)
        shipped = CrowdConfigs().persona("salt_lamp")
        loud = shipped.model_copy(
            update={"name": "new_here", "traits": shipped.traits.model_copy(update={"warmth": 1.0})}
        )
        (configs / "personas" / "new_here.toml").write_text(
            tomlkit.dumps(loud.model_dump(mode="json", exclude_none=True))
        )
        roster = 'roster = ["new_here", "nonna_exe", "tuba_dad"]\n'
        (configs / "rooms" / "attic.toml").write_text(HURRIED.replace("[tempo]", roster + "[tempo]"))
        service.reload_files()
        here = {"new_here", "nonna_exe", "tuba_dad"}
        await until(lambda: {name for tick in ticks() if tick.edit == 1 for name in tick.personas or ()} == here)
        await service.change_rules("attic", {"tempo": {"lines_per_minute": 900}})
        (configs / "personas" / "new_here.toml").unlink()
        (configs / "rooms" / "attic.toml").write_text(HURRIED.replace("[tempo]", 'roster = ["nonna_exe"]\n[tempo]'))
        service.reload_files()
        last = ticks()[-1].tick
        await until(lambda: any(tick.edit >= 2 and tick.personas == ("nonna_exe",) for tick in ticks()))
        await until(lambda: ticks()[-1].tick > last + 10)
        await service.stop("attic")
        recorded = ticks()
        by_tick: dict[int, set[int]] = {}
        for tick in recorded:
            by_tick.setdefault(tick.tick, set()).add(tick.edit)
            allowed = {1: here}.get(tick.edit)
            assert allowed is None or set(tick.personas or ()) <= allowed
        assert all(len(edits) == 1 for edits in by_tick.values()), "one edit per tick, in every process"
        decided = Counter((tick.tick, name) for tick in recorded for name in tick.personas or ())
        assert max(decided.values()) == 1
        assert Replay(last_session_events(store.reader, "attic"), service.configs.moderator(room.rules)).run().identical
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await service.close()
        await models.close()
        await broker.close()
        store.close()


async def test_c2_a_gateway_waits_for_its_role_and_keeps_its_session_when_it_loses_it(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_CONNECT_TIMEOUT_S", 0.3)
    clock = SystemClock()
    store = Store.open(tmp_path / "app.db", projections=all_projections())
    models = Models(ModelsSettings(), store=store)
    tokens = ChatTokens.from_folder(cluster.home, clock)
    connection = CrowdCluster(cluster.address, tokens, database=tmp_path / "app.db")
    service = CrowdService(
        store, Memory(store), models, clock, cluster.home / "configs", CrowdSettings(), cluster=connection
    )
    broker = await Broker.connect(cluster.address)
    other = Leases(broker)
    assert await other.take("gateway.attic")
    renewing = asyncio.create_task(other.run())
    room = await service.host("attic", "phrasebook")
    await until(lambda: room.problem)
    assert room.session_task is not None
    renewing.cancel()
    await asyncio.gather(renewing, return_exceptions=True)
    await until(lambda: room.live is not None and room.state == "live")
    first = await connection.gateway("attic")
    live = room.live
    assert isinstance(live, session_module.ClusterSession)
    handlers = live._on_record, live._recall
    await until(lambda: (first.on_record, first.answer_recall) == handlers)
    await broker.leases.put("gateway.attic", b"somebody else")  # as after an outage of the broker
    await until(lambda: not first.ready.is_set())
    second = await connection.ready_gateway("attic")
    assert second is not first
    assert (second.on_record, second.answer_recall) == handlers, "decisions are shown and memories found as before"
    assert room.state == "live"
    await service.close()
    await models.close()
    await broker.close()
    store.close()


async def test_c2_without_a_broker_a_session_does_not_start_and_the_page_says_why(tmp_path: Path) -> None:
    clock = SystemClock()
    store = Store.open(tmp_path / "app.db", projections=all_projections())
    models = Models(ModelsSettings(), store=store)
    connection = CrowdCluster(
        "nats://127.0.0.1:9", ChatTokens.from_folder(tmp_path, clock), database=tmp_path / "app.db"
    )
    service = CrowdService(
        store, Memory(store, clock=clock), models, clock, tmp_path / "configs", CrowdSettings(), cluster=connection
    )
    with pytest.raises(NoBroker, match="does not answer"):
        await service.host("late-shift")
    room = await service.room("late-shift")
    message = await room.gateway.post_from(
        ChatIdentity("you", "owner"),
        ChatPost(id="p", room="late-shift", author=ChatAuthor(name="x", kind="human"), text="still here"),  # type: ignore[arg-type]
    )
    assert message.number == 1, "people chat on the page all the same"
    await service.close()
    await models.close()
    store.close()


async def test_c9_a_context_service_goes_on_where_another_was_killed(cluster: Cluster, tmp_path: Path) -> None:
    broker = await Broker.connect(cluster.address)
    clock = SystemClock()
    configs = CrowdConfigs([cluster.home / "configs"])
    room = configs.room("attic")
    opened = opening_event(room, configs.personas_in(room), 1, clock.now_ms())
    await RunningSessions(broker).announce(RunningSession(opened=opened))

    def tale(start_s: float) -> AsyncIterator[object]:
        return open_stream(str(tmp_path / "tale.toml"), "attic", clock, start_s=start_s)

    async def run_for(count: int) -> list[str]:
        service = ContextService(broker, "attic", tale, clock)  # type: ignore[arg-type]
        task = asyncio.create_task(service.run())
        said: list[str] = []
        async for received in broker.follow("stream.context.attic"):
            said.append(received.data.decode())
            if len(said) >= count:
                break
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return said

    first = await run_for(3)
    await asyncio.sleep(1)
    second = await run_for(3)
    numbers = [int(each.split('"number":')[1].split(",")[0]) for each in (*first, *second)]
    assert numbers == sorted(set(numbers)), "contexts are numbered on, and none is repeated"
    assert '"summary":"chat, which door, number 0?"' not in "".join(second), "the stream goes on, not from its start"
    trends = TrendsService(broker, "attic", clock)
    task = asyncio.create_task(trends.run())
    ticks = []
    async for received in broker.follow("chat.trends.attic"):
        ticks.append(received.data)
        if len(ticks) == 3:
            break
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await broker.close()
