"""Writes stop when the open database file is no longer the one at its path, and what it held is saved."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bench.lib.sample_events import sample_event, sample_projections
from coterie.base.errors import StorageError
from coterie.eventstore import LogReader, Store
from coterie.eventstore.sqlite.file_guard import DatabaseLost, rescued_databases


def unlink_database(path: Path) -> None:
    path.unlink()


def unlink_all(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def rename_database(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def replace_by_copy(path: Path) -> None:
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    copy.replace(path)


def replace_by_empty(path: Path) -> None:
    path.unlink()
    path.touch()


def truncate_to_nothing(path: Path) -> None:
    os.truncate(path, 0)


def truncate_by_a_page(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)


def overwrite_by_older_copy(path: Path) -> None:
    path.write_bytes(path.with_name("older.db").read_bytes())


def overwrite_by_noise(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


def unlink_journal(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink()


def replace_journal(path: Path) -> None:
    journal = path.with_name(path.name + "-wal")
    data = journal.read_bytes()
    journal.unlink()
    journal.write_bytes(data)


def unlink_shared_memory(path: Path) -> None:
    path.with_name(path.name + "-shm").unlink()


def remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


KEEPS_CONTENT = [
    unlink_database,
    unlink_all,
    rename_database,
    replace_by_copy,
    replace_by_empty,
    unlink_journal,
    replace_journal,
    unlink_shared_memory,
    remove_folder,
]
LOSES_CONTENT = [truncate_to_nothing, truncate_by_a_page, overwrite_by_older_copy, overwrite_by_noise]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    folder = tmp_path / "home"
    folder.mkdir()
    path = folder / "coterie.db"
    store = Store.open(path, projections=sample_projections())
    store.append_blocking([sample_event(random.Random(1), "room:a", n) for n in range(100)])
    empty_journal(store)
    # By another process: closing a descriptor of this one would release SQLite's locks on the file.
    subprocess.run(["cp", str(path), str(folder / "older.db")], check=True)
    for _ in range(5):
        store.append_blocking([sample_event(random.Random(2), "room:b", n) for n in range(100)])
    empty_journal(store)
    store.append_blocking([sample_event(random.Random(3), "room:c", n) for n in range(10)])
    return store


def empty_journal(store: Store) -> None:
    """Write everything into the database file itself, as the usual checkpoints do."""
    store._empty_journal()


def append(store: Store) -> None:
    store.append_blocking([sample_event(random.Random(9), "room:after", 1)])


@pytest.mark.parametrize("harm", KEEPS_CONTENT + LOSES_CONTENT)
def test_writes_stop_at_once_and_health_fails(store: Store, harm: Callable[[Path], None]) -> None:
    store.check_file()
    harm(store.path)
    for _ in range(2):
        with pytest.raises(DatabaseLost) as refused:
            append(store)
    assert refused.value.http_status == 503
    assert str(store.path) in refused.value.what
    assert "coterie restore" in refused.value.fix
    with pytest.raises(StorageError):
        store.check_file()
    store.close()


@pytest.mark.parametrize("harm", KEEPS_CONTENT)
def test_everything_acknowledged_is_saved_from_the_open_file(store: Store, harm: Callable[[Path], None]) -> None:
    hashes, last = store.hashes(), store.reader.last_id()
    harm(store.path)
    with pytest.raises(DatabaseLost):
        append(store)
    with pytest.raises(DatabaseLost) as refused:
        append(store)
    folder = store.path.parent
    store.close()
    (rescued,) = rescued_databases(folder)
    assert rescued.name in refused.value.fix
    assert rescued.stat().st_mode & 0o077 == 0
    with closing(LogReader(rescued)) as reader:
        assert reader.last_id() == last
    copy = Store.open(rescued, projections=sample_projections())
    assert copy.hashes() == hashes
    copy.close()


@pytest.mark.parametrize("harm", LOSES_CONTENT)
def test_a_damaged_file_is_not_offered_as_a_rescue(store: Store, harm: Callable[[Path], None]) -> None:
    """What is saved is either everything or nothing: the pages that are still in memory may be enough."""
    last = store.reader.last_id()
    harm(store.path)
    for _ in range(2):
        with pytest.raises(DatabaseLost) as refused:
            append(store)
    folder = store.path.parent
    store.close()
    for rescued in rescued_databases(folder):
        copy = Store.open(rescued, projections=sample_projections())
        assert copy.reader.last_id() == last
        copy.close()
        assert rescued.name in refused.value.fix
    if not rescued_databases(folder):
        assert "rescued" not in refused.value.fix


def test_a_lost_database_leaves_the_files_of_its_successor_alone(store: Store) -> None:
    """Closing must not remove a journal at the path that belongs to another database now."""
    unlink_all(store.path)
    journal = store.path.with_name(store.path.name + "-wal")
    store.path.write_bytes(b"another")
    journal.write_bytes(b"its journal")
    with pytest.raises(DatabaseLost):
        append(store)
    store.close()
    assert journal.read_bytes() == b"its journal"
    assert store.path.read_bytes() == b"another"


def test_a_file_that_returns_is_used_again(store: Store) -> None:
    aside = store.path.with_name("aside.db")
    store.path.rename(aside)
    with pytest.raises(DatabaseLost):
        append(store)
    aside.rename(store.path)
    append(store)
    store.check_file()
    store.close()


def test_usual_work_is_not_mistaken_for_a_loss(store: Store, tmp_path: Path) -> None:
    for round_ in range(20):
        store.append_blocking([sample_event(random.Random(round_), f"room:{round_}", n) for n in range(200)])
        if round_ % 3 == 0:
            empty_journal(store)
        if round_ == 10:
            store.rebuild()
        store.check_file()
    store.transact(lambda rows: rows.run("DELETE FROM log WHERE id > 100"))
    empty_journal(store)
    store._connection.execute("VACUUM").fetchall()
    empty_journal(store)
    store.check_file()
    append(store)
    assert rescued_databases(store.path.parent) == []
    store.close()


@pytest.mark.parametrize("open_a_reader", [False, True])
def test_another_program_that_reads_the_file_does_not_remove_the_journal(store: Store, open_a_reader: bool) -> None:
    """Opening and closing the file in this process would release SQLite's locks on it, and the next program to close
    the database would then take itself for the last one and delete the journal that this process writes to."""
    if open_a_reader:
        with closing(LogReader(store.path)) as reader:
            assert reader.last_id()
        store.check_file()
    script = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM log').fetchall(); c.close()"
    )
    subprocess.run([sys.executable, "-c", script, str(store.path)], check=True)
    append(store)
    last = store.reader.last_id()
    store.close()
    with closing(LogReader(store.path)) as reader:
        assert reader.last_id() == last
