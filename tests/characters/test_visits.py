from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.base.clock import ManualClock
from coterie.characters.people import VISIT_GAP, Visits, VisitsProjection
from coterie.eventstore import Store
from coterie.eventstore.sqlite.replay import replayed_hash

MINUTE = 60
LONG = VISIT_GAP.total_seconds() + MINUTE


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    opened = Store.open(tmp_path / "coterie.db", projections=[VisitsProjection()], clock=clock)
    yield opened
    with opened.reader.connections.read_transaction() as rows:
        assert opened.hashes() == {view.name: replayed_hash(view, rows) for view in opened.projections}
    opened.close()


async def test_there_is_no_previous_visit_during_the_first(store: Store, clock: ManualClock) -> None:
    visits = Visits(store, clock)
    assert visits.previous_visit_end("you") is None
    await visits.record("you")
    clock.advance(10 * MINUTE)
    await visits.record("you")
    assert visits.previous_visit_end("you") is None


async def test_the_previous_visit_end_stays_until_the_current_visit_is_over(store: Store, clock: ManualClock) -> None:
    visits = Visits(store, clock)
    await visits.record("you")
    left = clock.now()
    clock.advance(LONG)
    there = visits.previous_visit_end("you")
    assert there is not None
    assert there.at == left
    for _ in range(3):  # coming in, reloading and walking about make no news old
        await visits.record("you")
        assert visits.previous_visit_end("you") == there
        clock.advance(10 * MINUTE)
    back = clock.now()
    await visits.record("you")
    clock.advance(LONG)
    again = visits.previous_visit_end("you")
    assert again is not None
    assert again.at == back
    assert again.event > there.event


async def test_many_pages_at_once_are_one_visit(store: Store, clock: ManualClock) -> None:
    visits = Visits(store, clock)
    for _ in range(5):
        await visits.record("you")
    assert len(await store.read("visits")) == 1


async def test_visits_are_per_person(store: Store, clock: ManualClock) -> None:
    visits = Visits(store, clock)
    await visits.record("you")
    clock.advance(LONG)
    await visits.record("bo")
    assert visits.previous_visit_end("bo") is None
    assert visits.previous_visit_end("you") is not None
