from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from bench.lib.sample_events import SampleTurn
from coterie.base.clock import ManualClock
from coterie.base.errors import InUse, StorageError
from coterie.eventstore import BusMessage, LocalBus, Log, NewEvent, NewJob, Store
from coterie.eventstore.jobs import Jobs


def turn_event(room: str, text: str) -> NewEvent:
    return NewEvent(room, SampleTurn(turn=text, speaker="mara", text=text))


def test_the_store_implements_the_protocols(store: Store) -> None:
    log: Log = store
    jobs: Jobs = store.jobs
    assert log and jobs


async def test_acknowledged_events_are_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "coterie.db"
    store = Store.open(path)
    (event,) = await store.append([turn_event("room:a", "kept")], jobs=[NewJob("work", key="w")])
    store.close()
    store = Store.open(path)
    assert await store.read() == [event]
    assert [job.key for job in await store.jobs.find()] == ["w"]
    store.close()


async def test_reading_one_stream_by_event_id_equals_filtering_all(store: Store) -> None:
    for number in range(60):
        await store.append([turn_event(f"room:{'abc'[number * number % 3]}", str(number))])
    for after in range(62):
        everything = store.reader.read(after=after)
        for stream in ("room:a", "room:b", "room:c", "room:unheard-of"):
            own = [event for event in everything if event.stream == stream]
            assert store.reader.read(after=after, only_stream=stream) == own
            assert store.reader.read(after=after, only_stream=stream, limit=2) == own[:2]
            assert store.reader.read(after=after, only_stream=stream, newest_first=True) == own[::-1]


def test_blocking_appends_from_many_threads(store: Store) -> None:
    def write(writer: int) -> None:
        for number in range(20):
            store.append_blocking([turn_event("room:a", f"{writer}:{number}")])

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.reader.head("room:a") == 160


async def test_queued_requests_share_a_commit(store: Store) -> None:
    before = store.writer_stats.commits
    await asyncio.gather(*(store.append([turn_event("room:a", str(n))]) for n in range(200)))
    assert store.writer_stats.requests >= 200
    assert store.writer_stats.commits - before < 100


async def test_the_bus_publishes_only_committed_events(store: Store) -> None:
    async with store.bus.subscribe("event.room.a.>") as messages:
        with pytest.raises(StorageError):
            await store.append([turn_event("room:a", "refused"), NewEvent("room:a", _unstorable())])
        (event,) = await store.append([turn_event("room:a", "hello")])
        received = await asyncio.wait_for(anext(messages), 5)
    assert received == BusMessage("event.room.a.sample_said", event)


def _unstorable() -> SampleTurn:
    """A payload that cannot be stored: the projection requires a turn."""
    return SampleTurn.model_construct(turn=None, speaker="x", text="y")  # type: ignore[arg-type]


async def test_a_transaction_without_events_is_durable_and_can_fail(store: Store) -> None:
    await asyncio.to_thread(store.transact, lambda rows: rows.run("CREATE TABLE cache(k TEXT PRIMARY KEY)"))
    await asyncio.to_thread(store.transact, lambda rows: rows.run("INSERT INTO cache VALUES ('x')"))
    with pytest.raises(StorageError, match="Constraint"):
        await asyncio.to_thread(store.transact, lambda rows: rows.run("INSERT INTO cache VALUES ('x')"))
    assert store.query("SELECT k FROM cache") == [("x",)]


async def test_one_process_owns_the_file(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "coterie.db")
    with pytest.raises(InUse, match="COTERIE_HOME"):
        Store.open(tmp_path / "coterie.db")
    store.close()
    Store.open(tmp_path / "coterie.db").close()


async def test_a_closed_store_refuses_writes_and_can_be_closed_twice(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "coterie.db")
    store.close()
    store.close()
    with pytest.raises(StorageError, match="closed"):
        await store.append([turn_event("room:a", "too late")])


async def test_closing_finishes_queued_writes(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "coterie.db")
    writes = [asyncio.ensure_future(store.append([turn_event("room:a", str(n))])) for n in range(50)]
    await asyncio.sleep(0)
    await asyncio.to_thread(store.close)
    await asyncio.gather(*writes)
    store = Store.open(tmp_path / "coterie.db")
    assert await store.head("room:a") == 50
    store.close()


async def test_an_append_of_a_cancelled_caller_is_stored(store: Store) -> None:
    task = asyncio.ensure_future(store.append([turn_event("room:a", "one")]))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.append([turn_event("room:a", "two")])
    assert await store.head("room:a") == 2


async def test_times_come_from_the_clock(store: Store, clock: ManualClock) -> None:
    (first,) = await store.append([turn_event("room:a", "one")])
    clock.advance(90)
    (second,) = await store.append([turn_event("room:a", "two")])
    assert (second.ts - first.ts).total_seconds() == 90
    assert first.ts == ManualClock().now()


async def test_a_failing_bus_does_not_affect_writers(tmp_path: Path) -> None:
    class Broken(LocalBus):
        def publish(self, messages: Iterable[BusMessage]) -> None:
            raise RuntimeError("no")

    store = Store.open(tmp_path / "coterie.db", bus=Broken())
    await store.append([turn_event("room:a", "one")])
    await store.append([turn_event("room:a", "two")])
    assert await store.head("room:a") == 2
    assert store.is_writable
    store.close()
    assert not store.is_writable
