"""`coterie backup` and `coterie restore` (S28)."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bench.lib.sample_events import SampleTurn, sample_projections
from coterie.base.paths import Paths
from coterie.cli.server import restore_before_start
from coterie.eventstore import LogReader, NewEvent, Store, take_backup
from coterie.eventstore.sqlite.database import ProcessLock
from coterie.ops.backups import list_backups
from tests.cli.conftest import Call, everything_in


def append_turn(home: Paths) -> None:
    store = Store.open(home.database, projections=sample_projections())
    store.append_blocking([NewEvent("room:a", SampleTurn(turn="later", speaker="you", text="after the backup"))])
    store.close()


def replaced_databases(home: Paths) -> list[Path]:
    return [path for path in home.root.glob("*.before-restore-*") if not path.name.endswith(("-wal", "-shm"))]


def events_in(home: Paths) -> int:
    with closing(LogReader(home.database)) as reader:
        return reader.last_id()


def test_s28_a_backup_is_taken_and_restored(sample_home: Paths, process: Call, call: Call) -> None:
    before = process("backup")
    assert before.code == 0
    (path,) = list_backups(sample_home.backups)
    assert before.out.startswith(str(path))
    assert "62 events, checked" in before.out
    append_turn(sample_home)
    assert events_in(sample_home) == 63
    (sample_home.periodic_snapshots / "20260101T000000000000.snapshot").write_bytes(b"of the other life")
    answer = process("restore", str(path), "--yes")
    assert answer.code == 0, answer.err
    assert events_in(sample_home) == 62
    assert list(sample_home.periodic_snapshots.iterdir()) == []
    (kept,) = replaced_databases(sample_home)
    assert str(kept) in answer.out
    reader = LogReader(kept)
    assert reader.last_id() == 63
    reader.close()
    assert call("verify").code == 0


def test_a_backup_does_not_interrupt_a_running_server(sample_home: Paths, call: Call) -> None:
    store = Store.open(sample_home.database, projections=sample_projections())
    assert call("backup").code == 0
    (path,) = list_backups(sample_home.backups)
    answer = call("restore", str(path), "--yes")
    store.close()
    assert answer.code == 4
    assert "Another Coterie" in answer.err


def test_a_backup_to_a_given_file_never_overwrites(sample_home: Paths, call: Call, tmp_path: Path) -> None:
    target = tmp_path / "mine" / "copy.db"
    assert call("backup", "--to", str(target)).code == 0
    content = target.read_bytes()
    answer = call("backup", "--to", str(target))
    assert answer.code == 9
    assert "exists already" in answer.err
    assert target.read_bytes() == content


def test_a_backup_without_a_database_is_refused(call: Call) -> None:
    answer = call("backup")
    assert answer.code == 9
    assert "There is no database" in answer.err


def test_a_target_that_cannot_be_created_is_reported(sample_home: Paths, process: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = process("backup", "--to", str(tmp_path / "file" / "copy.db"))
    assert answer.code == 5
    assert str(tmp_path / "file") in answer.err


def test_a_restore_asks_for_confirmation(sample_home: Paths, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    call("backup")
    (path,) = list_backups(sample_home.backups)
    before = everything_in(sample_home.root)
    monkeypatch.setattr("typer.confirm", _decline)
    assert call("restore", str(path)).code == 1
    assert everything_in(sample_home.root) == before


def test_a_bad_backup_is_refused_before_the_confirmation(
    sample_home: Paths, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("backup")
    (path,) = list_backups(sample_home.backups)
    monkeypatch.setattr("typer.confirm", _fail_if_asked)
    lock = ProcessLock(sample_home.database)
    lock.acquire()
    answer = call("restore", str(path))
    lock.release()
    assert (answer.code, "Another Coterie" in answer.err) == (4, True)
    empty(path)
    assert call("restore", str(path)).code == 9


def _fail_if_asked(*_: object, abort: bool) -> None:
    raise AssertionError("asked in vain")


def test_a_restore_without_a_database_needs_no_confirmation(
    sample_home: Paths, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    call("backup")
    (path,) = list_backups(sample_home.backups)
    monkeypatch.setattr("typer.confirm", _decline)
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "new"))
    assert call("restore", str(path)).code == 0
    assert (tmp_path / "new" / "coterie.db").exists()


def _decline(*_: object, abort: bool) -> None:
    import typer

    assert abort
    raise typer.Abort


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def truncate_to_header(path: Path) -> None:
    os.truncate(path, 60)


def overwrite_a_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(data)


def change_a_projection(path: Path) -> None:
    store = Store.open(path, projections=sample_projections())
    store.transact(lambda rows: rows.run("UPDATE sample_edge SET affinity = 1"))
    store.close()


def delete_an_event(path: Path) -> None:
    store = Store.open(path, projections=sample_projections())
    store.transact(lambda rows: rows.run("DELETE FROM log WHERE id = 20"))
    store.close()


def replace_by_json(path: Path) -> None:
    path.write_text("milk, eggs")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    "harm",
    [
        truncate,
        truncate_to_header,
        overwrite_a_page,
        change_a_projection,
        delete_an_event,
        replace_by_json,
        empty,
        remove,
    ],
)
def test_s28_a_bad_backup_is_refused_and_the_database_stays(
    sample_home: Paths, call: Call, harm: Callable[[Path], None]
) -> None:
    """Here one of an earlier version, which is a database; tests/ops/test_restore.py damages archives."""
    path = take_backup(sample_home.database, sample_home.backups / "coterie-20260101T000000000000.db")
    harm(path)
    append_turn(sample_home)
    database = sample_home.database.read_bytes()
    answer = call("restore", str(path), "--yes")
    assert answer.code == 9
    assert "→" in answer.err
    assert sample_home.database.read_bytes() == database
    assert not list(sample_home.root.glob("*before-restore*"))
    assert not list(sample_home.root.glob("*.restoring*"))
    assert call("verify").code == 0


def test_two_restores_keep_two_copies(sample_home: Paths, call: Call) -> None:
    call("backup")
    (path,) = list_backups(sample_home.backups)
    for _ in range(2):
        assert call("restore", str(path), "--yes").code == 0
    assert len(replaced_databases(sample_home)) == 2


def test_a_damaged_database_can_be_replaced(sample_home: Paths, call: Call) -> None:
    call("backup")
    (path,) = list_backups(sample_home.backups)
    truncate(sample_home.database)
    assert call("verify").code == 7
    assert call("restore", str(path), "--yes").code == 0
    assert call("verify").code == 0


def test_s28_a_failed_restore_by_the_server_changes_nothing_and_is_explained(sample_home: Paths, call: Call) -> None:
    assert call("backup").code == 0
    (path,) = list_backups(sample_home.backups)
    path.write_bytes(b"damaged meanwhile")
    ended = restore_before_start(sample_home, path, lambda *_: None)
    assert not ended.ok
    assert ended.what.startswith(f"{path.name} was not restored: ")
    assert events_in(sample_home) == 62
    assert replaced_databases(sample_home) == []
