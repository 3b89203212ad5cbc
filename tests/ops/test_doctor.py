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
from tests.ops.conftest import AppendSample


def run_doctor(home: Paths) -> dict[str, CheckResult]:
    return {result.about: result for result in Doctor(home, sample_projections(), SystemClock()).run()}


def bad_results(home: Paths) -> list[CheckResult]:
    results = [result for result in run_doctor(home).values() if result.state == "bad"]
    assert all(result.fix for result in results)
    return results


def test_a_missing_data_folder_is_only_noted(tmp_path: Path) -> None:
    results = run_doctor(Paths.locate({"COTERIE_HOME": str(tmp_path / "none")}))
    assert {about: result.state for about, result in results.items()} == {
        "Python": "ok",
        "SQLite": "ok",
        "Data folder": "note",
        "Database": "note",
        "Backups": "note",
    }
    assert not (tmp_path / "none").exists()


def test_a_healthy_installation(store: Store, append_sample: AppendSample, home: Paths) -> None:
    home.root.chmod(0o700)
    append_sample(5)
    store.close()
    BackupTaker(home, StorageSettings(), SystemClock()).take()
    results = run_doctor(home)
    assert {result.state for result in results.values()} == {"ok"}
    assert results["Database"].what == "5 events"
    assert results["Projections"].what == "3 current"
    assert results["Jobs"].what == "none failed"
    assert results["Server"].what == "not running"
    assert results["Backups"].what.startswith("1, the newest of ")


def test_a_running_server_is_reported_and_not_disturbed(store: Store, append_sample: AppendSample, home: Paths) -> None:
    results = run_doctor(home)
    assert results["Server"].state == "ok"
    assert str(os.getpid()) in results["Server"].what
    append_sample(1)


def test_a_damaged_file_is_bad(store: Store, append_sample: AppendSample, home: Paths) -> None:
    append_sample(300)
    store.close()
    data = bytearray(home.database.read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    home.database.write_bytes(data)
    (result,) = bad_results(home)
    assert result.about == "Database"
    assert "damaged" in result.what
    assert "coterie restore" in result.fix


def test_a_truncated_file_is_bad(store: Store, append_sample: AppendSample, home: Paths) -> None:
    append_sample(300)
    store.close()
    os.truncate(home.database, home.database.stat().st_size // 2)
    (result,) = bad_results(home)
    assert "cut short" in result.what


def test_a_file_that_is_not_a_database_is_bad(home: Paths) -> None:
    home.database.write_text("this is a shopping list")
    (result,) = bad_results(home)
    assert "not a Coterie database" in result.what


def test_an_empty_file_is_reported(home: Paths) -> None:
    home.database.write_bytes(b"")
    (result,) = bad_results(home)
    assert result.about == "Database"


def test_a_newer_schema_and_unknown_events_are_bad(store: Store, home: Paths) -> None:
    store.transact(lambda rows: rows.run("INSERT INTO migration VALUES ('m999_future', 0)"))
    store.transact(
        lambda rows: rows.run("INSERT INTO event_kind(kind, version) VALUES ('telepathy', 1), ('sample_said', 9)")
    )
    store.close()
    results = [result for result in Doctor(home, [], SystemClock()).run() if result.state == "bad"]
    assert [result.about for result in results] == ["Schema", "Events", "Events"]
    assert "m999_future" in results[0].what
    assert "sample_said (version 9)" in results[1].what
    assert "telepathy (version 1)" in results[2].what


async def test_a_dead_job_is_bad(store: Store, home: Paths) -> None:
    await store.jobs.enqueue([NewJob("embed", "embed:1")])
    (job,) = await store.jobs.lease(["embed"], holder="me")
    await store.jobs.fail(job, "the model is gone", fatal=True)
    (result,) = bad_results(home)
    assert result.about == "Job embed"
    assert "embed:1 failed: the model is gone" in result.what


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_low_disk_space_is_bad(home: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(1 << 40, 1 << 40, 5 << 20))
    (result,) = bad_results(home)
    assert result == CheckResult("Disk", "bad", "only 5 MB are free", "Free some space, or move COTERIE_HOME.")


def test_an_old_sqlite_is_bad(home: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "sqlite_version", lambda: "3.46.1")
    (result,) = bad_results(home)
    assert "3.46.1" in result.what
    assert "apsw" in result.fix


def test_an_old_backup_is_noted(store: Store, home: Paths) -> None:
    BackupTaker(home, StorageSettings(), ManualClock()).take()
    clock = SystemClock()
    (path,) = home.backups.iterdir()
    os.utime(path, (clock.now().timestamp() - 5 * 86_400 - 60,) * 2)
    result = run_doctor(home)["Backups"]
    assert (result.state, result.what) == ("note", "the newest is 5 days old")


def test_a_folder_readable_by_others_is_noted(home: Paths) -> None:
    home.root.chmod(0o755)
    assert run_doctor(home)["Privacy"].fix == f"chmod 700 {home.root}"
    home.root.chmod(0o700)
    assert "Privacy" not in run_doctor(home)


def test_projections_of_another_version_are_noted(store: Store, home: Paths) -> None:
    store.transact(lambda rows: rows.run("UPDATE projection SET fingerprint = 'old' WHERE name = 'sample_edges'"))
    result = run_doctor(home)["Projections"]
    assert (result.state, result.what) == ("note", "sample_edges will be rebuilt at the next start")


def test_a_failing_check_becomes_a_result(home: Paths) -> None:
    def _matrix() -> Iterator[CheckResult]:
        raise MissingExtra("matrix", "Matrix")

    def _voices() -> Iterator[CheckResult]:
        raise PermissionError(13, "Permission denied", "/voices")

    def _last() -> Iterator[CheckResult]:
        yield CheckResult("Last", "ok", "here")

    results = list(Doctor(home, [], SystemClock(), [_matrix, _voices, _last]).run())[-3:]
    assert [(result.about, result.state) for result in results] == [
        ("Matrix", "bad"),
        ("Voices", "bad"),
        ("Last", "ok"),
    ]
    assert "coterie[matrix]" in results[0].fix
    assert "/voices" in results[1].what
