from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.lib.sample_events import SampleTurn, sample_projections
from coterie.base.errors import (
    Corrupt,
    CoterieError,
    DiskFull,
    InUse,
    ReadOnly,
    SchemaTooNew,
    StorageError,
    UnknownEvent,
)
from coterie.eventstore import NewEvent, Store
from coterie.eventstore.sqlite.database import ProcessLock, Rows, connect
from coterie.eventstore.sqlite.migrations import MIGRATIONS, migrate

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def turn_event(text: str) -> NewEvent:
    return NewEvent("room:a", SampleTurn(turn=text[:20], speaker="mara", text=text))


def write_database(path: Path, events: int = 200) -> bytes:
    store = Store.open(path, projections=sample_projections())
    store.append_blocking([turn_event(f"{n} {'word ' * 20}") for n in range(events)])
    store.close()
    return path.read_bytes()


def open_error(path: Path, error: type[CoterieError]) -> CoterieError:
    with pytest.raises(error) as caught:
        Store.open(path, projections=sample_projections())
    assert caught.value.what and caught.value.fix
    return caught.value


@pytest.mark.parametrize("keep", [0.3, 0.7, 0.95])
def test_a_truncated_database_is_reported_and_not_changed(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "coterie.db"
    content = write_database(path)
    path.write_bytes(content[: int(len(content) * keep)])
    assert "cut short" in open_error(path, Corrupt).what
    assert path.read_bytes() == content[: int(len(content) * keep)]


def test_a_file_that_is_not_a_database_is_reported_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "coterie.db"
    path.write_text("Dear diary, " * 100)
    assert "not a Coterie database" in open_error(path, Corrupt).what
    assert path.read_text() == "Dear diary, " * 100
    path.unlink()
    path.mkdir()
    open_error(path, StorageError)


def test_a_damaged_page_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "coterie.db"
    content = bytearray(write_database(path))
    for at in range(4096, len(content)):
        content[at] = 0xAB
    path.write_bytes(content)
    open_error(path, Corrupt)


def test_a_full_disk_refuses_the_append_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "coterie.db"
    write_database(path, 20)
    store = Store.open(path, projections=sample_projections())
    (pages,) = store.query("PRAGMA page_count")[0]
    store.transact(lambda rows: rows.run(f"PRAGMA max_page_count = {pages + 2}"))
    accepted = 20
    with pytest.raises(DiskFull, match="nothing was changed"):
        for n in range(500):
            store.append_blocking([turn_event(f"more {n} {'x' * 500}")])
            accepted += 1
    assert store.reader.head("room:a") == accepted
    store.transact(lambda rows: rows.run(f"PRAGMA max_page_count = {pages + 500}"))
    store.append_blocking([turn_event("room again")])
    hashes = store.hashes()
    store.rebuild()
    assert store.hashes() == hashes
    store.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    write_database(tmp_path / "coterie.db")
    tmp_path.chmod(0o555)
    for parent in tmp_path.parents:
        if parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    script = (
        "import os, sys\nfrom coterie.base.errors import ReadOnly\nfrom coterie.eventstore import Store\n"
        "os.setgid(65534)\nos.setuid(65534)\n"
        "try:\n    Store.open(sys.argv[1])\nexcept ReadOnly as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "coterie.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "cannot be written" in done.stdout, done.stderr


def test_a_database_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ReadOnly, match="COTERIE_HOME"):
        Store.open(tmp_path / "no" / "such" / "folder" / "coterie.db")


@pytest.mark.parametrize(("kind", "version"), [("from_the_future", 1), ("sample_said", 99)])
def test_unknown_events_stop_the_start_and_change_nothing(tmp_path: Path, kind: str, version: int) -> None:
    path = tmp_path / "coterie.db"
    write_database(path)
    store = Store.open(path)
    store.transact(lambda rows: rows.run("INSERT INTO event_kind(kind, version) VALUES (?, ?)", (kind, version)))
    store.close()
    before = path.read_bytes()
    assert kind in open_error(path, UnknownEvent).what
    assert path.read_bytes() == before


def test_a_newer_schema_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "coterie.db"
    write_database(path)
    store = Store.open(path)
    store.transact(lambda rows: rows.run("INSERT INTO migration VALUES ('m999_wonders', 0)"))
    store.close()
    assert "m999_wonders" in open_error(path, SchemaTooNew).what


def test_migrations_run_once_in_order_and_all_or_nothing(tmp_path: Path) -> None:
    rows = Rows(connect(tmp_path / "coterie.db", writable=True))
    assert migrate(rows, NOW) == [migration.__name__ for migration in MIGRATIONS]
    assert migrate(rows, NOW) == []

    def m998_good(rows: Rows) -> None:
        rows.run("CREATE TABLE good(x)")

    def m999_bad(rows: Rows) -> None:
        rows.run("CREATE TABLE good(x)")

    with pytest.raises(StorageError, match=r"m999_bad failed.*Nothing was changed"):
        migrate(rows, NOW, (*MIGRATIONS, m998_good, m999_bad))
    assert rows.one("SELECT count(*) FROM sqlite_schema WHERE name = 'good'") == (0,)
    assert migrate(rows, NOW, (*MIGRATIONS, m998_good)) == ["m998_good"]


def test_migration_names_are_in_order() -> None:
    names = [migration.__name__ for migration in MIGRATIONS]
    assert names == sorted(names)
    assert [int(name[1:4]) for name in names] == list(range(1, len(names) + 1))


def test_the_database_is_private_and_durable(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "coterie.db")
    settings = store.transact(
        lambda rows: [rows.one(f"PRAGMA {name}") for name in ("journal_mode", "synchronous", "secure_delete")]
    )
    assert settings == [("wal",), (2,), (1,)]
    store.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at the open files of the process in /proc")
def test_what_a_long_savepoint_saves_is_not_kept_in_memory(tmp_path: Path) -> None:
    """SQLite walks through the part in memory after each statement: a rewind would be quadratic in its length."""
    rows = Rows(connect(tmp_path / "coterie.db", writable=True))
    rows.run("CREATE TABLE t(n INTEGER PRIMARY KEY, text TEXT)")
    rows.many("INSERT INTO t VALUES (?, ?)", ((n, "x" * 500) for n in range(2_000)))
    before = files_without_a_name()
    rows.run("BEGIN; SAVEPOINT s; UPDATE t SET text = text || 'y'")
    assert files_without_a_name() - before
    rows.run("ROLLBACK TO s; RELEASE s; COMMIT")
    assert rows.one("SELECT max(length(text)) FROM t") == (500,)


def files_without_a_name() -> set[str]:
    links = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return {link for link in links if link.endswith("(deleted)")}


def test_a_released_lock_is_free_although_a_child_process_has_its_file_open(tmp_path: Path) -> None:
    """As one that another thread is just starting has, until it runs its own program."""
    first, second = ProcessLock(tmp_path / "coterie.db"), ProcessLock(tmp_path / "coterie.db")
    first.acquire()
    assert first._file is not None
    inherited = os.dup(first._file.fileno())
    with pytest.raises(InUse):
        second.acquire()
    first.release()
    second.acquire()
    second.release()
    os.close(inherited)
