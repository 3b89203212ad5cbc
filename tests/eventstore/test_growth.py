"""What is stored stays small: shared texts, finished jobs, undo journals, the write-ahead log."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from bench.lib.sample_events import SampleTurn, Turns, sample_projections
from coterie.eventstore import NewEvent, NewJob, Store
from coterie.eventstore.bus import BusMessage, LocalBus, WhenSlow
from coterie.eventstore.sqlite import interning, jobs
from coterie.eventstore.sqlite.database import Rows
from coterie.eventstore.sqlite.interning import SharedTexts, read_shared_texts
from coterie.eventstore.sqlite.verify import verify


def turn_event(room: str, turn: str, text: str = "Hello.") -> NewEvent:
    return NewEvent(room, SampleTurn(turn=turn, speaker="ana", text=text))


def test_equal_texts_have_one_number_and_texts_with_equal_hashes_have_two(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interning, "_hash", lambda _: 7)

    def work(rows: Rows) -> tuple[list[int], dict[int, str]]:
        first, second = SharedTexts(rows), SharedTexts(rows)  # the second one has nothing in memory
        numbers = [texts.number(text) for texts in (first, second) for text in ("a", "b" * 300, "a")]
        return numbers, read_shared_texts(rows, numbers)

    numbers, texts = store.transact(work)
    assert numbers == [numbers[0], numbers[1], numbers[0]] * 2
    assert texts == {numbers[0]: "a", numbers[1]: "b" * 300}


async def test_numbers_given_in_a_transaction_that_failed_are_not_used(store: Store) -> None:
    """A rollback discards names and texts, and so must what is remembered of them."""

    def work(rows: Rows) -> None:
        store._recorder._names.number("room:gone")
        store._recorder._texts.number("gone")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.transact(work)
    (event,) = await store.append([turn_event("room:gone", "1")])
    assert await store.read("room:gone") == [event]
    assert store.reader.shared_texts(range(10)) == {}


async def test_finished_jobs_are_forgotten_and_not_enqueued_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_KEPT_FINISHED", 2)
    monkeypatch.setattr(jobs, "_FORGET_EVERY", 5)
    await store.jobs.enqueue([NewJob("work", f"job {number}") for number in range(11)])
    for _ in range(10):
        (job,) = await store.jobs.lease(["work"], holder="me")
        await store.jobs.complete(job)
    assert [job.key for job in await store.jobs.find()] == ["job 10", "job 9", "job 8"]
    assert store.reader.jobs.count_by_state() == {"ready": 1, "done": 10}
    assert store.reader.jobs.state_of("job 0") == store.reader.jobs.state_of("job 9") == "done"
    await store.jobs.enqueue([NewJob("work", f"job {number}") for number in range(12)])
    assert [job.key for job in store.reader.jobs.pending()] == ["job 10", "job 11"]


class TurnsWithoutJournal(Turns):
    journaled = False


async def test_a_projection_without_a_journal_follows_every_control_event(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "coterie.db", projections=[TurnsWithoutJournal()])
    try:
        for number in range(6):
            await store.append([turn_event("room:a", str(number))])
        await store.rewind("room:a", 3)
        await store.fork("room:a", 2, "room:b")
        await store.supersede("room:a", drop=[1])
        assert store.query("SELECT room, turn FROM sample_turn ORDER BY room, seq") == [
            *(("room:a", "1"), ("room:a", "2")),
            *(("room:b", "0"), ("room:b", "1")),
        ]
        assert verify(store.reader, store.projections).clean
        assert not store.query("SELECT 1 FROM sqlite_schema WHERE name GLOB 'undo_*'")
    finally:
        store.close()


async def test_the_write_ahead_log_shrinks_after_a_long_read(tmp_path: Path) -> None:
    path = tmp_path / "coterie.db"
    store = Store.open(path, projections=sample_projections())
    journal = path.with_name("coterie.db-wal")
    try:
        text = "".join(chr(32 + number * 7919 % 90) for number in range(40_000))
        with store.reader.connections.read_transaction() as rows:
            rows.all("SELECT count(*) FROM log")
            for number in range(150):
                await store.append([turn_event("room:a", f"a{number}", text[number:])])
            during = journal.stat().st_size
        for number in range(300):
            await store.append([turn_event("room:a", f"b{number}", text[number:])])
        assert journal.stat().st_size <= max(during, 20_000_000)
    finally:
        store.close()


async def test_every_one_of_many_subscribers_is_woken_and_finds_the_newest_message() -> None:
    bus, count = LocalBus(), 500
    received: dict[int, int] = {}
    subscribed, finished = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def listen(number: int) -> None:
        async with bus.subscribe("room.*", limit=1, when_slow=WhenSlow.DROP_OLDEST) as messages:
            subscribed.release()
            async for message in messages:
                received[number] = message.body
                if message.body == 9:
                    finished.release()
                    return

    tasks = [asyncio.create_task(listen(number)) for number in range(count)]
    for _ in range(count):
        await subscribed.acquire()
    for body in range(10):
        await asyncio.to_thread(bus.publish, [BusMessage("room.a", body)])
    async with asyncio.timeout(60):
        for _ in range(count):
            await finished.acquire()
    await asyncio.gather(*tasks)
    assert set(received.values()) == {9}
    assert len(received) == count


async def test_none_of_many_subscribers_is_served_again_before_all_were_served() -> None:
    bus, count = LocalBus(), 200
    served: Counter[int] = Counter()
    early: list[int] = []
    subscribed, every = asyncio.Semaphore(0), asyncio.Event()

    async def listen(number: int) -> None:
        async with bus.subscribe("room.*", limit=1, when_slow=WhenSlow.DROP_OLDEST) as messages:
            subscribed.release()
            async for _ in messages:
                if served[number] and len(served) < count:
                    early.append(number)
                served[number] += 1
                if len(served) == count:
                    every.set()

    tasks = [asyncio.create_task(listen(number)) for number in range(count)]
    for _ in range(count):
        await subscribed.acquire()
    async with asyncio.timeout(60):
        while not every.is_set():
            bus.publish([BusMessage("room.a", None)])
            await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert early == []
