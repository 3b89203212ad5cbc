from __future__ import annotations

from pathlib import Path

import pytest

from bench.lib.sample_events import SampleTurn, sample_projections
from coterie.base.errors import BadPoint
from coterie.eventstore import NewEvent, NewJob, Purged, Store
from coterie.eventstore.sqlite.verify import verify

SECRET = "the-key-is-under-the-third-stone"


def turn_event(room: str, turn: str, text: str) -> NewEvent:
    return NewEvent(room, SampleTurn(turn=turn, speaker="mara", text=text), turn=turn)


def everything_on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_a_purge_erases_text_everywhere_and_is_recorded(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "coterie.db", projections=sample_projections())
    await store.append(
        [turn_event("room:a", f"t{n}", SECRET) for n in range(30)], jobs=[NewJob("x", "x", {"t": SECRET})]
    )
    await store.rewind("room:a", 20)
    await store.fork("room:a", 10, "room:b")
    await store.append([turn_event("room:c", "t", "harmless")])
    assert SECRET.encode() in everything_on_disk(tmp_path)
    event = await store.purge("room:a", reason="asked to")
    assert event.payload == Purged(stream="room:a", events=31, first_seq=1, last_seq=31, reason="asked to")
    assert store.query("SELECT room FROM sample_turn") == [("room:c",)]
    assert SECRET.encode() not in everything_on_disk(tmp_path)
    assert await store.jobs.find() == []
    findings = verify(store.reader, store.projections)
    assert findings.clean, findings.problems
    store.close()


async def test_a_range_can_be_purged_and_its_numbers_are_not_reused(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "coterie.db", projections=sample_projections())
    await store.append([turn_event("room:a", f"t{n}", f"text {n}") for n in range(6)])
    await store.purge("room:a", first=5, last=6)
    (event,) = await store.append([turn_event("room:a", "t7", "after")])
    assert event.seq == 7
    assert [e.seq for e in await store.history("room:a")] == [1, 2, 3, 4, 7]
    assert verify(store.reader, store.projections).clean
    store.close()
    store = Store.open(tmp_path / "coterie.db", projections=sample_projections())
    await store.rewind("room:a", 3)
    assert [e.seq for e in await store.history("room:a", before=8)] == [1, 2, 3]
    assert verify(store.reader, store.projections).clean
    store.close()


async def test_purging_nothing_is_refused(store: Store) -> None:
    with pytest.raises(BadPoint, match="no events"):
        await store.purge("room:nowhere")
