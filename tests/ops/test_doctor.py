"""The checks of the doctor: each reports a state and, for a problem, what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.lib.sample_events import sample_projections
from coterie.base.clock import ManualClock, SystemClock
from coterie.base.errors import MissingExtra
from coterie.base.paths import Paths
from coterie.eventstore import NewJob, Store
from coterie.ops import doctor as module
from coterie.ops.backups import BackupTaker, StorageSettings
from coterie.ops.doctor import CheckResult, Doctor
from tests.ops.conftest import Live


def examine(home: Paths) -> dict[str, CheckResult]:
    return {finding.about: finding for finding in Doctor(home, sample_projections(), SystemClock()).run()}


def bad(home: Paths) -> list[CheckResult]:
    found = [finding for finding in examine(home).values() if finding.state == "bad"]
    assert all(finding.fix for finding in found)
    return found


def test_a_missing_data_folder_is_only_noted(tmp_path: Path) -> None:
    found = examine(Paths.locate({"COTERIE_HOME": str(tmp_path / "none")}))
    assert {about: finding.state for about, finding in found.items()} == {
        "Python": "ok",
        "SQLite": "ok",
        "Data folder": "note",
        "Database": "note",
        "Backups": "note",
    }
    assert not (tmp_path / "none").exists()


def test_a_healthy_installation(store: Store, live: Live, home: Paths) -> None:
    home.root.chmod(0o700)
    live(5)
    store.close()
    BackupTaker(home, StorageSettings(), SystemClock()).take()
    found = examine(home)
    assert {finding.state for finding in found.values()} == {"ok"}
    assert found["Database"].what == "5 events"
    assert found["Projections"].what == "3 current"
    assert found["Jobs"].what == "none failed"
    assert found["Server"].what == "not running"
    assert found["Backups"].what.startswith("1, the newest of ")


def test_a_running_server_is_reported_and_not_disturbed(store: Store, live: Live, home: Paths) -> None:
    found = examine(home)
    assert found["Server"].state == "ok"
    assert str(os.getpid()) in found["Server"].what
    live(1)


def test_a_damaged_file_is_bad(store: Store, live: Live, home: Paths) -> None:
    live(300)
    store.close()
    data = bytearray(home.database.read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    home.database.write_bytes(data)
    (found,) = bad(home)
    assert found.about == "Database"
    assert "damaged" in found.what
    assert "coterie restore" in found.fix


def test_a_truncated_file_is_bad(store: Store, live: Live, home: Paths) -> None:
    live(300)
    store.close()
    os.truncate(home.database, home.database.stat().st_size // 2)
    (found,) = bad(home)
    assert "cut short" in found.what


def test_a_file_that_is_not_a_database_is_bad(home: Paths) -> None:
    home.database.write_text("this is a shopping list")
    (found,) = bad(home)
    assert "not a Coterie database" in found.what


def test_an_empty_file_is_reported(home: Paths) -> None:
    home.database.write_bytes(b"")
    (found,) = bad(home)
    assert found.about == "Database"


def test_a_newer_schema_and_unknown_events_are_bad(store: Store, home: Paths) -> None:
    store.transact(lambda rows: rows.run("INSERT INTO migration VALUES ('m999_future', 0)"))
    store.transact(lambda rows: rows.run("INSERT INTO event_kind VALUES ('telepathy', 1), ('sample_said', 9)"))
    store.close()
    found = [finding for finding in Doctor(home, [], SystemClock()).run() if finding.state == "bad"]
    assert [finding.about for finding in found] == ["Schema", "Events", "Events"]
    assert "m999_future" in found[0].what
    assert "sample_said (version 9)" in found[1].what
    assert "telepathy (version 1)" in found[2].what


async def test_a_dead_job_is_bad(store: Store, home: Paths) -> None:
    await store.jobs.enqueue([NewJob("embed", "embed:1")])
    (job,) = await store.jobs.lease(["embed"], holder="me")
    await store.jobs.fail(job, "the model is gone", fatal=True)
    (found,) = bad(home)
    assert found.about == "Job embed"
    assert "embed:1 failed: the model is gone" in found.what


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_low_disk_space_is_bad(home: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(1 << 40, 1 << 40, 5 << 20))
    (found,) = bad(home)
    assert found == CheckResult("Disk", "bad", "only 5 MB are free", "Free some space, or move COTERIE_HOME.")


def test_an_old_sqlite_is_bad(home: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "sqlite_version", lambda: "3.46.1")
    (found,) = bad(home)
    assert "3.46.1" in found.what
    assert "apsw" in found.fix


def test_an_old_backup_is_noted(store: Store, home: Paths) -> None:
    BackupTaker(home, StorageSettings(), ManualClock()).take()
    clock = SystemClock()
    (path,) = home.backups.iterdir()
    os.utime(path, (clock.now().timestamp() - 5 * 86_400 - 60,) * 2)
    found = examine(home)["Backups"]
    assert (found.state, found.what) == ("note", "the newest is 5 days old")


def test_a_folder_readable_by_others_is_noted(home: Paths) -> None:
    home.root.chmod(0o755)
    assert examine(home)["Privacy"].fix == f"chmod 700 {home.root}"
    home.root.chmod(0o700)
    assert "Privacy" not in examine(home)


def test_projections_of_another_version_are_noted(store: Store, home: Paths) -> None:
    store.transact(lambda rows: rows.run("UPDATE projection SET fingerprint = 'old' WHERE name = 'sample_edges'"))
    found = examine(home)["Projections"]
    assert (found.state, found.what) == ("note", "sample_edges will be rebuilt at the next start")


def test_a_failing_check_becomes_a_result(home: Paths) -> None:
    def _matrix() -> Iterator[CheckResult]:
        raise MissingExtra("matrix", "Matrix")

    def _voices() -> Iterator[CheckResult]:
        raise PermissionError(13, "Permission denied", "/voices")

    def _last() -> Iterator[CheckResult]:
        yield CheckResult("Last", "ok", "here")

    found = list(Doctor(home, [], SystemClock(), [_matrix, _voices, _last]).run())[-3:]
    assert [(finding.about, finding.state) for finding in found] == [
        ("Matrix", "bad"),
        ("Voices", "bad"),
        ("Last", "ok"),
    ]
    assert "coterie[matrix]" in found[0].fix
    assert "/voices" in found[1].what
