"""S27: snapshots every 100 events or 30 minutes, five kept; a failure is harmless."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import structlog

from bench.lib.sample_events import sample_projections
from coterie.base.clock import ManualClock
from coterie.base.errors import StorageError
from coterie.base.paths import Paths
from coterie.eventstore import Store
from coterie.eventstore.sqlite.snapshots import list_snapshots, seed_from_snapshots, write_snapshot
from coterie.ops import backups as module
from coterie.ops.backups import SnapshotTaker, StorageSettings, log_snapshot_warning, snapshot_name
from tests.ops.conftest import AppendSample


@pytest.fixture
def snapshots(store: Store, home: Paths, clock: ManualClock) -> SnapshotTaker:
    return SnapshotTaker(store, home, StorageSettings(), clock)


def test_s27_no_snapshot_is_due_without_new_events(snapshots: SnapshotTaker, clock: ManualClock) -> None:
    clock.advance(100_000)
    assert not snapshots.is_due()


def test_s27_due_after_100_events(snapshots: SnapshotTaker, append_sample: AppendSample) -> None:
    append_sample(99)
    assert not snapshots.is_due()
    append_sample(1)
    assert snapshots.is_due()


def test_s27_due_after_30_minutes_with_new_events(
    snapshots: SnapshotTaker, append_sample: AppendSample, clock: ManualClock
) -> None:
    append_sample(1)
    clock.advance(30 * 60 - 1)
    assert not snapshots.is_due()
    clock.advance(1)
    assert snapshots.is_due()


async def test_s27_a_snapshot_restarts_the_count(
    snapshots: SnapshotTaker, append_sample: AppendSample, clock: ManualClock
) -> None:
    append_sample(100)
    assert await snapshots.take() is not None
    assert not snapshots.is_due()
    append_sample(99)
    clock.advance(29 * 60)
    assert not snapshots.is_due()
    append_sample(1)
    assert snapshots.is_due()


async def test_s27_the_five_newest_are_kept(
    snapshots: SnapshotTaker, append_sample: AppendSample, clock: ManualClock, home: Paths
) -> None:
    taken: list[Path] = []
    for _ in range(7):
        append_sample(1)
        clock.advance(1)
        path = await snapshots.take()
        assert path is not None
        taken.append(path)
    assert list_snapshots(home.periodic_snapshots) == taken[:1:-1]


async def test_s27_a_snapshot_holds_the_contents_of_the_projections(
    snapshots: SnapshotTaker, append_sample: AppendSample, store: Store, home: Paths
) -> None:
    append_sample(120)
    assert await snapshots.take() is not None
    append_sample(30)
    warnings: list[str] = []
    expected = store.hashes()
    store.transact(lambda rows: rows.run("DELETE FROM projection"))
    store.close()
    reopened = Store.open(
        store.path, projections=sample_projections(), seed=seed_from_snapshots(home.periodic_snapshots, warnings.append)
    )
    try:
        assert reopened.hashes() == expected
        assert warnings == []
    finally:
        reopened.close()


async def test_a_slow_snapshot_is_followed_by_a_pause(
    snapshots: SnapshotTaker, append_sample: AppendSample, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> int:
        clock.advance(3)
        return 0

    monkeypatch.setattr(module, "write_snapshot", slow)
    append_sample(100)
    await snapshots.take()
    append_sample(100)
    clock.advance(20 * 3 - 0.5)
    assert not snapshots.is_due()
    clock.advance(0.5)
    assert snapshots.is_due()


@pytest.mark.parametrize("error", [StorageError("No room.", "Make some."), OSError(28, "No space left on device")])
async def test_a_failed_snapshot_is_logged(
    snapshots: SnapshotTaker,
    append_sample: AppendSample,
    home: Paths,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    def fail(*_: object) -> int:
        raise error

    append_sample(100)
    with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
        patch.setattr(module, "write_snapshot", fail)
        assert await snapshots.take() is None
    assert [(line["event"], line["log_level"]) for line in logs] == [("snapshot failed", "warning")]
    assert list(home.periodic_snapshots.iterdir()) == []
    append_sample(100)
    assert await snapshots.take() is not None
    assert store.reader.last_id() == 200


async def test_a_failed_snapshot_leaves_no_file(store: Store, home: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("coterie.eventstore.sqlite.snapshots.publish_file", fail)
    with pytest.raises(OSError, match="No space"):
        write_snapshot(store.reader.connections, store.projections, home.periodic_snapshots / "x.snapshot")
    assert list(home.periodic_snapshots.iterdir()) == []


async def test_the_loop_continues_after_an_error_and_stops_on_request(
    snapshots: SnapshotTaker, append_sample: AppendSample, home: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHECK_INTERVAL_S", 0.001)
    really_due = snapshots.is_due
    looks = 0

    def due() -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise StorageError("The disk is gone.", "Plug it in.")
        return really_due()

    monkeypatch.setattr(snapshots, "is_due", due)
    append_sample(100)
    stop = asyncio.Event()
    with structlog.testing.capture_logs() as logs:
        watch = asyncio.create_task(snapshots.run(stop))
        while not list_snapshots(home.periodic_snapshots):
            assert not watch.done()
            await asyncio.sleep(0.005)
        stop.set()
        await watch
    assert logs[0]["event"] == "snapshot postponed"


async def test_s23_snapshots_before_a_rewind_are_kept_separately(
    snapshots: SnapshotTaker, append_sample: AppendSample, home: Paths, clock: ManualClock
) -> None:
    append_sample(10)
    for _ in range(6):
        clock.advance(1)
        last = await snapshots.before_rewind()
    files = list_snapshots(home.rewind_snapshots)
    assert files[0] == last
    assert len(files) == 5
    assert list_snapshots(home.periodic_snapshots) == []


def test_names_sort_by_time(clock: ManualClock) -> None:
    first = snapshot_name(clock.now())
    clock.advance(0.000001)
    assert first < snapshot_name(clock.now())


def test_a_skipped_snapshot_is_logged() -> None:
    with structlog.testing.capture_logs() as logs:
        log_snapshot_warning("The snapshot x is damaged.")
    assert logs == [
        {"event": "snapshot skipped", "why": "The snapshot x is damaged.", "log_level": "warning"},
    ]
