"""`coterie backup` and `coterie restore` (S28)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.lib.sample_events import SampleTurn, sample_projections
from coterie.base.paths import Paths
from coterie.cli.server import restore_before_start
from coterie.eventstore import LogReader, NewEvent, Store
from coterie.eventstore.sqlite.database import ProcessLock
from coterie.ops.backups import list_backups
from tests.cli.conftest import Call, everything_in


def say_more(home: Paths) -> None:
    store = Store.open(home.database, projections=sample_projections())
    store.append_blocking([NewEvent("room:a", SampleTurn(turn="later", speaker="you", text="after the backup"))])
    store.close()


def kept_in(home: Paths) -> list[Path]:
    return [path for path in home.root.glob("*.before-restore-*") if not path.name.endswith(("-wal", "-shm"))]


def events_in(home: Paths) -> int:
    reader = LogReader(home.database)
    try:
        return reader.last_id()
    finally:
        reader.close()


def test_s28_there_and_back(lived_in: Paths, process: Call, call: Call) -> None:
    before = process("backup")
    assert before.code == 0
    (path,) = list_backups(lived_in.backups)
    assert before.out.startswith(str(path))
    assert "62 events, checked" in before.out
    say_more(lived_in)
    assert events_in(lived_in) == 63
    (lived_in.periodic_snapshots / "20260101T000000000000.snapshot").write_bytes(b"of the other life")
    answer = process("restore", str(path), "--yes")
    assert answer.code == 0, answer.err
    assert events_in(lived_in) == 62
    assert list(lived_in.periodic_snapshots.iterdir()) == []
    (kept,) = kept_in(lived_in)
    assert str(kept) in answer.out
    reader = LogReader(kept)
    assert reader.last_id() == 63
    reader.close()
    assert call("verify").code == 0


def test_a_running_server_goes_on(lived_in: Paths, call: Call) -> None:
    store = Store.open(lived_in.database, projections=sample_projections())
    assert call("backup").code == 0
    (path,) = list_backups(lived_in.backups)
    answer = call("restore", str(path), "--yes")
    store.close()
    assert answer.code == 4
    assert "Another Coterie" in answer.err


def test_a_backup_to_a_place_of_ones_own_never_overwrites(lived_in: Paths, call: Call, tmp_path: Path) -> None:
    target = tmp_path / "mine" / "copy.db"
    assert call("backup", "--to", str(target)).code == 0
    content = target.read_bytes()
    answer = call("backup", "--to", str(target))
    assert answer.code == 9
    assert "exists already" in answer.err
    assert target.read_bytes() == content


def test_a_backup_of_nothing_is_told(call: Call) -> None:
    answer = call("backup")
    assert answer.code == 9
    assert "There is no database" in answer.err


def test_a_place_that_cannot_be_made_is_told(lived_in: Paths, process: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = process("backup", "--to", str(tmp_path / "file" / "copy.db"))
    assert answer.code == 5
    assert str(tmp_path / "file") in answer.err


def test_restoring_asks_first(lived_in: Paths, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    call("backup")
    (path,) = list_backups(lived_in.backups)
    before = everything_in(lived_in.root)
    monkeypatch.setattr("typer.confirm", _no)
    assert call("restore", str(path)).code == 1
    assert everything_in(lived_in.root) == before


def test_what_cannot_be_restored_is_told_before_anything_is_asked(
    lived_in: Paths, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("backup")
    (path,) = list_backups(lived_in.backups)
    monkeypatch.setattr("typer.confirm", _not_asked)
    lock = ProcessLock(lived_in.database)
    lock.acquire()
    answer = call("restore", str(path))
    lock.release()
    assert (answer.code, "Another Coterie" in answer.err) == (4, True)
    empty(path)
    assert call("restore", str(path)).code == 9


def _not_asked(*_: object, abort: bool) -> None:
    raise AssertionError("asked in vain")


def test_restoring_where_nothing_is_asks_nothing(
    lived_in: Paths, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    call("backup")
    (path,) = list_backups(lived_in.backups)
    monkeypatch.setattr("typer.confirm", _no)
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "new"))
    assert call("restore", str(path)).code == 0
    assert (tmp_path / "new" / "coterie.db").exists()


def _no(*_: object, abort: bool) -> None:
    import typer

    assert abort
    raise typer.Abort


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_to_the_header(path: Path) -> None:
    os.truncate(path, 60)


def scribble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(data)


def lie(path: Path) -> None:
    store = Store.open(path, projections=sample_projections())
    store.transact(lambda rows: rows.run("UPDATE sample_edge SET affinity = 1"))
    store.close()


def lose_an_event(path: Path) -> None:
    store = Store.open(path, projections=sample_projections())
    store.transact(lambda rows: rows.run("DELETE FROM event WHERE id = 20"))
    store.close()


def become_a_list(path: Path) -> None:
    path.write_text("milk, eggs")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def vanish(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    "harm", [cut_short, cut_to_the_header, scribble, lie, lose_an_event, become_a_list, empty, vanish]
)
def test_s28_a_bad_backup_is_refused_and_the_database_stays(
    lived_in: Paths, call: Call, harm: Callable[[Path], None]
) -> None:
    call("backup")
    (path,) = list_backups(lived_in.backups)
    harm(path)
    say_more(lived_in)
    database = lived_in.database.read_bytes()
    answer = call("restore", str(path), "--yes")
    assert answer.code == 9
    assert "→" in answer.err
    assert lived_in.database.read_bytes() == database
    assert not list(lived_in.root.glob("*before-restore*"))
    assert not list(lived_in.root.glob("*.restoring"))
    assert call("verify").code == 0


def test_two_restores_keep_two_copies(lived_in: Paths, call: Call) -> None:
    call("backup")
    (path,) = list_backups(lived_in.backups)
    for _ in range(2):
        assert call("restore", str(path), "--yes").code == 0
    assert len(kept_in(lived_in)) == 2


def test_a_damaged_database_can_be_replaced(lived_in: Paths, call: Call) -> None:
    call("backup")
    (path,) = list_backups(lived_in.backups)
    cut_short(lived_in.database)
    assert call("verify").code == 7
    assert call("restore", str(path), "--yes").code == 0
    assert call("verify").code == 0


def test_s28_what_cannot_be_put_back_by_a_server_leaves_everything_and_says_why(lived_in: Paths, call: Call) -> None:
    assert call("backup").code == 0
    (path,) = list_backups(lived_in.backups)
    path.write_bytes(b"damaged meanwhile")
    ended = restore_before_start(lived_in, path, lambda *_: None)
    assert not ended.ok
    assert ended.what.startswith(f"{path.name} was not restored: ")
    assert events_in(lived_in) == 62
    assert kept_in(lived_in) == []
