from __future__ import annotations

import asyncio
import random
from pathlib import Path

import apsw
import pytest

from bench.lib.sample_events import sample_event, sample_projections
from coterie.base.errors import BackupError
from coterie.eventstore import Store
from coterie.eventstore.sqlite.backup import check_backup, take_backup


async def fill_store(path: Path, events: int = 40) -> dict[str, str]:
    store = Store.open(path, projections=sample_projections())
    chance = random.Random(5)
    await store.append([sample_event(chance, "room:a", n) for n in range(events)])
    hashes = store.hashes()
    store.close()
    return hashes


async def test_s28_a_backup_taken_during_writes_is_consistent(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "coterie.db", projections=sample_projections())
    chance = random.Random(6)
    stop = False

    async def play() -> int:
        number = 0
        while not stop:
            await store.append([sample_event(chance, f"room:{n}", number) for n in range(20)])
            number += 1
        return number

    playing = asyncio.ensure_future(play())
    await asyncio.sleep(0.05)
    for number in range(3):
        backup = await asyncio.to_thread(take_backup, store.path, tmp_path / f"{number}.db")
        findings = check_backup(backup, sample_projections())
        assert findings.clean, findings.problems
        assert findings.events % 20 == 0
        assert set(findings.projections.values()) == {True}
    stop = True
    assert await playing > 0
    store.close()


def test_a_backup_without_a_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="no database"):
        take_backup(tmp_path / "none.db", tmp_path / "backup.db")


async def test_a_failed_backup_leaves_no_file(tmp_path: Path) -> None:
    await fill_store(tmp_path / "coterie.db")
    target = tmp_path / "folder" / "backup.db"
    (target.parent / "backup.db.partial").mkdir(parents=True)
    with pytest.raises((BackupError, OSError)):
        take_backup(tmp_path / "coterie.db", target)
    assert not target.exists()


TRIGGER = "CREATE TRIGGER evil AFTER INSERT ON log BEGIN DELETE FROM job; END"


def change(database: Path, *statements: str) -> None:
    connection = apsw.Connection(str(database))
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        TRIGGER,
        "CREATE TRIGGER evil AFTER INSERT ON sample_room BEGIN DELETE FROM event; END",
        "CREATE VIEW evil AS SELECT * FROM event",
        "CREATE TABLE evil(x)",
        "CREATE INDEX evil ON log(actor)",
        "CREATE VIRTUAL TABLE evil USING fts5(x)",
        "DROP INDEX log_key",
        "ALTER TABLE job ADD COLUMN evil",
    ],
)
async def test_s28_a_backup_with_another_schema_is_refused(tmp_path: Path, statement: str) -> None:
    await fill_store(tmp_path / "coterie.db")
    backup = take_backup(tmp_path / "coterie.db", tmp_path / "backup.db")
    assert check_backup(backup, sample_projections()).clean
    change(backup, statement)
    problems = " ".join(check_backup(backup, sample_projections()).problems)
    assert any(name in problems for name in ("evil", "log_key", "table job"))


@pytest.mark.parametrize("statement", [TRIGGER, "CREATE VIEW evil AS SELECT 1"])
async def test_s28_code_in_a_backup_of_another_version_is_refused(tmp_path: Path, statement: str) -> None:
    """The tables of its projections are not known, but no version has triggers or views."""
    await fill_store(tmp_path / "coterie.db")
    backup = take_backup(tmp_path / "coterie.db", tmp_path / "backup.db")
    change(backup, "UPDATE projection SET fingerprint = 'older'")
    assert check_backup(backup, sample_projections()).clean
    change(backup, statement)
    assert "evil" in check_backup(backup, sample_projections()).problems[0]
