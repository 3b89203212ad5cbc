from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.base.clock import HeldClock
from coterie.cast.visits import GAP, VisitBook, Visits
from coterie.kernel import Store
from coterie.kernel.fold import fold_aside

MINUTE = 60
LONG = GAP.total_seconds() + MINUTE


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def store(tmp_path: Path, clock: HeldClock) -> Iterator[Store]:
    opened = Store.open(tmp_path / "coterie.db", views=[Visits()], clock=clock)
    yield opened
    with opened.reader.readers.snapshot() as rows:
        assert opened.hashes() == {view.name: fold_aside(view, rows) for view in opened.views}
    opened.close()


async def test_who_is_here_for_the_first_time_was_never_away(store: Store, clock: HeldClock) -> None:
    visits = VisitBook(store, clock)
    assert visits.last_there("you") is None
    await visits.note("you")
    clock.advance(10 * MINUTE)
    await visits.note("you")
    assert visits.last_there("you") is None


async def test_what_comes_after_a_visit_is_news_until_the_next_one_is_over(store: Store, clock: HeldClock) -> None:
    visits = VisitBook(store, clock)
    await visits.note("you")
    left = clock.now()
    clock.advance(LONG)
    there = visits.last_there("you")
    assert there is not None
    assert there.at == left
    for _ in range(3):  # coming in, reloading and walking about make no news old
        await visits.note("you")
        assert visits.last_there("you") == there
        clock.advance(10 * MINUTE)
    back = clock.now()
    await visits.note("you")
    clock.advance(LONG)
    again = visits.last_there("you")
    assert again is not None
    assert again.at == back
    assert again.event > there.event


async def test_many_pages_at_once_are_one_visit(store: Store, clock: HeldClock) -> None:
    visits = VisitBook(store, clock)
    for _ in range(5):
        await visits.note("you")
    assert len(await store.read("visits")) == 1


async def test_everybody_has_visits_of_their_own(store: Store, clock: HeldClock) -> None:
    visits = VisitBook(store, clock)
    await visits.note("you")
    clock.advance(LONG)
    await visits.note("bo")
    assert visits.last_there("bo") is None
    assert visits.last_there("you") is not None
