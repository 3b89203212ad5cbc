"""S28: nightly backups at 03:00 local time, fourteen kept, taken while the server runs."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coterie.base.clock import ManualClock
from coterie.base.paths import Paths
from coterie.eventstore import Store
from coterie.eventstore.worker import Worker
from coterie.ops import backups as module
from coterie.ops.backups import BACKUP_JOB, BackupTaken, BackupTaker, StorageSettings, database_copies, list_backups
from tests.ops.conftest import AppendSample


@pytest.fixture
def backups(home: Paths, clock: ManualClock) -> BackupTaker:
    return BackupTaker(home, StorageSettings(), clock)


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("Asia/Tokyo", datetime(2026, 1, 1, 18, tzinfo=UTC)),
        ("America/New_York", datetime(2026, 1, 1, 8, tzinfo=UTC)),
        ("UTC", datetime(2026, 1, 1, 3, tzinfo=UTC)),
    ],
)
def test_s28_the_nightly_backup_is_at_three_local_time(
    backups: BackupTaker, monkeypatch: pytest.MonkeyPatch, zone: str, expected: datetime
) -> None:
    monkeypatch.setattr(module, "get_localzone_name", lambda: zone)
    schedule = backups.schedule
    schedule.validate()
    assert schedule.next_after(datetime(2026, 1, 1, tzinfo=UTC)) == expected


def test_s28_a_machine_without_a_named_zone_uses_utc(backups: BackupTaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "get_localzone_name", lambda: None)
    assert backups.schedule.zone == "UTC"


async def test_s28_a_nightly_backup_is_recorded_in_the_log(
    backups: BackupTaker,
    store: Store,
    append_sample: AppendSample,
    clock: ManualClock,
    home: Paths,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "get_localzone_name", lambda: "UTC")
    append_sample(20)
    worker = Worker(store.jobs, {BACKUP_JOB: backups.run_job}, clock=clock, bus=store.bus, schedules=store.schedules)
    await store.schedules.put(backups.schedule)
    assert await worker.drain() == 0
    clock.advance(3 * 3600)
    assert await worker.drain() == 1
    (event,) = store.reader.read("instance")
    (taken,) = list_backups(home.backups)
    assert event.payload == BackupTaken(file=taken.name, bytes=taken.stat().st_size)
    assert module.check_backup_file(taken, store.projections).events
    assert await worker.drain() == 0
    clock.advance(24 * 3600)
    assert await worker.drain() == 1
    assert len(list_backups(home.backups)) == 2


def test_s28_the_fourteen_newest_are_kept(
    backups: BackupTaker, append_sample: AppendSample, clock: ManualClock, home: Paths
) -> None:
    append_sample(3)
    taken: list[Path] = []
    for _ in range(16):
        clock.advance(86_400)
        taken.append(backups.take())
    assert list_backups(home.backups) == taken[:1:-1]


def test_s28_writes_continue_during_a_backup(
    backups: BackupTaker, store: Store, append_sample: AppendSample, home: Paths, clock: ManualClock
) -> None:
    append_sample(500)
    writing, enough = threading.Event(), threading.Event()

    def go_on() -> None:
        while not enough.is_set():
            append_sample(20)
            writing.set()

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        writing.wait()
        taken = []
        for _ in range(5):
            clock.advance(1)
            taken.append(backups.take())
    finally:
        enough.set()
        writer.join()
    counts = []
    for path in taken:
        findings = module.check_backup_file(path, store.projections)
        counts.append(findings.events)
    assert counts == sorted(counts)
    assert 500 < counts[0] <= store.reader.last_id()


def test_a_backup_is_readable_by_the_owner_only(backups: BackupTaker, append_sample: AppendSample) -> None:
    append_sample(1)
    assert backups.take().stat().st_mode & 0o077 == 0


def test_database_copies_are_backups_and_replaced_databases(
    backups: BackupTaker, append_sample: AppendSample, home: Paths
) -> None:
    append_sample(1)
    aside = home.database.with_name("coterie.db.before-restore-20260101T000000000000")
    unfinished = home.backups / "coterie-x.db.partial"
    for path in (aside, unfinished):
        path.write_bytes(b"")
    taken = backups.take()
    assert database_copies(home) == [taken, aside, unfinished]
