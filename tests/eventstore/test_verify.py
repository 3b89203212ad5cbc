from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench.lib.sample_events import sample_event, sample_projections
from coterie.eventstore import Store
from coterie.eventstore.sqlite.verify import verify


@pytest.fixture
async def filled_store(tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "coterie.db", projections=sample_projections())
    chance = random.Random(7)
    await store.append([sample_event(chance, "room:a", n) for n in range(60)])
    await store.rewind("room:a", 40)
    await store.fork("room:a", 30, "room:b")
    await store.append([sample_event(chance, "room:b", n) for n in range(60, 90)])
    return store


async def test_an_intact_database_is_clean(filled_store: Store) -> None:
    report = verify(filled_store.reader, filled_store.projections)
    assert report.clean, report.problems
    assert report.events == 92
    assert report.projections == {projection.name: True for projection in filled_store.projections}
    filled_store.close()


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        ("UPDATE sample_edge SET affinity = 99 - affinity", "sample_edges differs from a replay of the log"),
        ("DELETE FROM sample_memory WHERE memory IN (SELECT memory FROM sample_memory LIMIT 1)", "sample_memories"),
        (
            "DELETE FROM log WHERE id = (SELECT id FROM event WHERE stream = 'room:a' AND seq = 5)",
            "room:a jumps from 4 to 6",
        ),
        (
            """UPDATE active_ranges SET ranges = '[[1, 41]]' WHERE stream = 'room:a'""",
            "The active events of room:a after 61",
        ),
        (
            "UPDATE event_kind SET kind = 'from_the_future' WHERE id = (SELECT kind FROM log WHERE id = 3)",
            "from_the_future",
        ),
        ("DELETE FROM projection WHERE name = 'sample_turns'", "sample_turns was not built"),
    ],
)
async def test_damage_is_found_and_described(filled_store: Store, harm: str, problem: str) -> None:
    filled_store.transact(lambda rows: rows.run(harm))
    report = verify(filled_store.reader, filled_store.projections)
    assert not report.clean
    assert problem in " ".join(report.problems)
    filled_store.close()


async def test_a_rebuild_repairs_projections(filled_store: Store) -> None:
    filled_store.transact(lambda rows: rows.run("UPDATE sample_edge SET affinity = 0"))
    filled_store.rebuild()
    assert verify(filled_store.reader, filled_store.projections).clean
    filled_store.close()
