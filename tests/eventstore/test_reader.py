from __future__ import annotations

from bench.lib.sample_events import SampleTurn
from coterie.base.clock import ManualClock
from coterie.eventstore import NewEvent, NewJob, Store


def turn_event(room: str, text: str, *, key: str | None = None, turn: str | None = None) -> NewEvent:
    return NewEvent(room, SampleTurn(turn=turn or text, speaker="mara", text=text), key=key, turn=turn)


async def test_events_are_found_by_their_keys(store: Store) -> None:
    drafts = [turn_event("room:b", "1", key="say:x:1", turn="T1"), turn_event("room:a", "2", key="say:x:2", turn="T2")]
    first, second = await store.append(drafts)
    await store.append([turn_event("room:a", "3", key="say:y:1"), turn_event("room:a", "4")])
    assert store.reader.id_by_key("say:x:2") == second.id
    assert store.reader.turn_by_key("say:x:1") == "T1"
    assert store.reader.id_by_key("say:z") is None and store.reader.turn_by_key("say:z") is None
    assert store.reader.by_key_prefix("say:x:") == [second, first]


async def test_the_log_can_be_counted_and_timed(store: Store, clock: ManualClock) -> None:
    assert (store.reader.count(), store.reader.last_time()) == (0, None)
    (first,) = await store.append([turn_event("room:a", "1")])
    clock.advance(5)
    (second,) = await store.append([turn_event("room:a", "2")])
    assert store.reader.count() == 2
    assert store.reader.last_time() == second.ts
    assert store.reader.times([first.id, second.id, 99]) == {first.id: first.ts, second.id: second.ts}


async def test_payload_fields_are_listed_and_summed(store: Store) -> None:
    events = await store.append([turn_event("room:a", text) for text in ("1", "2", "2", "x")])
    await store.append([turn_event("room:b", "50")])
    assert sorted(store.reader.distinct_payload_fields(SampleTurn.kind, ("speaker", "text"))) == [
        ("mara", "1"), ("mara", "2"), ("mara", "50"), ("mara", "x")
    ]  # fmt: skip
    total = store.reader.sum_payload_field("room:a", SampleTurn.kind, "text", after=events[0].id, unless=("text", "x"))
    assert total == (2, 4)


async def test_forks_and_their_roots(store: Store) -> None:
    await store.append([turn_event("room:a", "1"), turn_event("room:other", "1")])
    await store.fork("room:a", 1, "room:b")
    await store.fork("room:b", 2, "room:c")
    assert store.reader.roots() == {"room:a": "room:a", "room:b": "room:a", "room:c": "room:a"}
    assert store.reader.forks() == {"room:b", "room:c"}


async def test_jobs_are_found_by_key_state_and_payload(store: Store) -> None:
    jobs = store.reader.jobs
    await store.jobs.enqueue(
        [
            NewJob("work", key="w1", payload={"room": "room:a", "reply": "r1"}),
            NewJob("work", key="w2", payload={"room": "room:b"}),
            NewJob("rest", key="r1", payload={"room": "room:a"}),
        ]
    )
    (leased,) = await store.jobs.lease(["rest"], holder="me")
    assert [job.key for job in jobs.pending(payload={"room": "room:a"})] == ["w1", "r1"]
    assert [job.key for job in jobs.pending("work", {"room": "room:a", "reply": "r1"})] == ["w1"]
    assert (jobs.state_of("r1"), jobs.state_of("nothing")) == ("leased", None)
    await store.jobs.fail(leased, "it broke", fatal=True)
    assert jobs.count_by_state() == {"dead": 1, "ready": 2}
    assert [(job.key, job.error) for job in jobs.find(state="dead")] == [("r1", "it broke")]
    assert [job.key for job in jobs.pending()] == ["w1", "w2"]
