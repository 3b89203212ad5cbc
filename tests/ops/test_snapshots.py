"""S27: snapshots every 100 events or 30 minutes, five kept, and no harm when one fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import structlog

from bench._sample import sample_views
from coterie.base.clock import HeldClock
from coterie.base.errors import StorageError
from coterie.base.home import Home
from coterie.kernel import Store
from coterie.kernel.snapshot import newest_first, seed_from, write_snapshot
from coterie.ops import snapshots as module
from coterie.ops.settings import StorageSettings
from coterie.ops.snapshots import Snapshots, name, warn_in_log
from tests.ops.conftest import Live


@pytest.fixture
def snapshots(store: Store, home: Home, clock: HeldClock) -> Snapshots:
    return Snapshots(store, home, StorageSettings(), clock)


def test_s27_nothing_is_due_while_nothing_happens(snapshots: Snapshots, clock: HeldClock) -> None:
    clock.advance(100_000)
    assert not snapshots.due()


def test_s27_due_after_100_events(snapshots: Snapshots, live: Live) -> None:
    live(99)
    assert not snapshots.due()
    live(1)
    assert snapshots.due()


def test_s27_due_after_30_minutes_in_which_something_happened(
    snapshots: Snapshots, live: Live, clock: HeldClock
) -> None:
    live(1)
    clock.advance(30 * 60 - 1)
    assert not snapshots.due()
    clock.advance(1)
    assert snapshots.due()


async def test_s27_a_snapshot_starts_the_count_anew(snapshots: Snapshots, live: Live, clock: HeldClock) -> None:
    live(100)
    assert await snapshots.take() is not None
    assert not snapshots.due()
    live(99)
    clock.advance(29 * 60)
    assert not snapshots.due()
    live(1)
    assert snapshots.due()


async def test_s27_the_five_newest_are_kept(snapshots: Snapshots, live: Live, clock: HeldClock, home: Home) -> None:
    taken: list[Path] = []
    for _ in range(7):
        live(1)
        clock.advance(1)
        path = await snapshots.take()
        assert path is not None
        taken.append(path)
    assert newest_first(home.periodic_snapshots) == taken[:1:-1]


async def test_s27_a_snapshot_holds_what_the_views_hold(
    snapshots: Snapshots, live: Live, store: Store, home: Home
) -> None:
    live(120)
    assert await snapshots.take() is not None
    live(30)
    told: list[str] = []
    expected = store.hashes()
    store.transact(lambda rows: rows.run("DELETE FROM view"))
    store.close()
    again = Store.open(store.path, views=sample_views(), seed=seed_from(home.periodic_snapshots, told.append))
    try:
        assert again.hashes() == expected
        assert told == []
    finally:
        again.close()


async def test_after_a_slow_one_it_rests(
    snapshots: Snapshots, live: Live, clock: HeldClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> int:
        clock.advance(3)
        return 0

    monkeypatch.setattr(module, "write_snapshot", slow)
    live(100)
    await snapshots.take()
    live(100)
    clock.advance(20 * 3 - 0.5)
    assert not snapshots.due()
    clock.advance(0.5)
    assert snapshots.due()


@pytest.mark.parametrize("error", [StorageError("No room.", "Make some."), OSError(28, "No space left on device")])
async def test_a_failure_is_told_and_harmless(
    snapshots: Snapshots,
    live: Live,
    home: Home,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    def fail(*_: object) -> int:
        raise error

    live(100)
    with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
        patch.setattr(module, "write_snapshot", fail)
        assert await snapshots.take() is None
    assert [(line["event"], line["log_level"]) for line in logs] == [("snapshot failed", "warning")]
    assert list(home.periodic_snapshots.iterdir()) == []
    live(100)
    assert await snapshots.take() is not None
    assert store.reader.last_id() == 200


async def test_a_failed_write_leaves_no_half_file(store: Store, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("coterie.kernel.snapshot.put_in_place", fail)
    with pytest.raises(OSError, match="No space"):
        write_snapshot(store.reader.readers, store.views, home.periodic_snapshots / "x.snapshot")
    assert list(home.periodic_snapshots.iterdir()) == []


async def test_the_watch_goes_on_after_trouble_and_stops_when_told(
    snapshots: Snapshots, live: Live, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.001)
    really_due = snapshots.due
    looks = 0

    def due() -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise StorageError("The disk is gone.", "Plug it in.")
        return really_due()

    monkeypatch.setattr(snapshots, "due", due)
    live(100)
    stop = asyncio.Event()
    with structlog.testing.capture_logs() as logs:
        watch = asyncio.create_task(snapshots.run(stop))
        while not newest_first(home.periodic_snapshots):
            assert not watch.done()
            await asyncio.sleep(0.005)
        stop.set()
        await watch
    assert logs[0]["event"] == "snapshot put off"


async def test_s23_what_was_before_a_rewind_is_kept_apart(
    snapshots: Snapshots, live: Live, home: Home, clock: HeldClock
) -> None:
    live(10)
    for _ in range(6):
        clock.advance(1)
        last = await snapshots.before_rewind()
    found = newest_first(home.rewind_snapshots)
    assert found[0] == last
    assert len(found) == 5
    assert newest_first(home.periodic_snapshots) == []


def test_names_sort_by_time(clock: HeldClock) -> None:
    first = name(clock.now())
    clock.advance(0.000001)
    assert first < name(clock.now())


def test_a_passed_over_snapshot_is_told_in_the_log() -> None:
    with structlog.testing.capture_logs() as logs:
        warn_in_log()("The snapshot x is damaged.")
    assert logs == [
        {"event": "snapshot passed over", "why": "The snapshot x is damaged.", "log_level": "warning"},
    ]
