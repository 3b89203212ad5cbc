from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.lib.sample_events import sample_event, sample_projections
from coterie.base.errors import BackupError, InUse
from coterie.eventstore import Store
from coterie.eventstore.sqlite.backup import check_backup, restore, take_backup

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


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


async def test_s28_a_restored_database_equals_the_original(tmp_path: Path) -> None:
    database = tmp_path / "coterie.db"
    hashes = await fill_store(database)
    backup = take_backup(database, tmp_path / "backup.db")
    store = Store.open(database, projections=sample_projections())
    await store.append([sample_event(random.Random(9), "room:later", 1)])
    store.close()
    replaced = restore(backup, database, NOW, sample_projections())
    store = Store.open(database, projections=sample_projections())
    assert store.hashes() == hashes
    assert await store.head("room:later") == 0
    store.close()
    assert replaced is not None
    before = Store.open(replaced, projections=sample_projections())
    assert await before.head("room:later") == 1
    before.close()


@pytest.mark.parametrize("harm", ["cut", "flipped", "not a database", "another program's", "missing"])
async def test_s28_restore_checks_before_it_replaces(tmp_path: Path, harm: str) -> None:
    database = tmp_path / "coterie.db"
    await fill_store(database, 400)
    backup = take_backup(database, tmp_path / "backup.db")
    content = bytearray(backup.read_bytes())
    match harm:
        case "cut":
            backup.write_bytes(content[:-5000])
        case "flipped":
            for at in range(8192, len(content), 97):
                content[at] ^= 0xFF
            backup.write_bytes(content)
        case "not a database":
            backup.write_text("Dear diary")
        case "another program's":
            backup.unlink()
            import apsw

            apsw.Connection(str(backup)).execute("CREATE TABLE bookmarks(url)")
        case _:
            backup.unlink()
    before = database.read_bytes()
    with pytest.raises(BackupError) as refused:
        restore(backup, database, NOW, sample_projections())
    assert refused.value.fix
    assert database.read_bytes() == before
    assert not [path.name for path in tmp_path.iterdir() if "restor" in path.name]


async def test_a_changed_projection_in_a_backup_is_detected(tmp_path: Path) -> None:
    await fill_store(tmp_path / "coterie.db")
    backup = take_backup(tmp_path / "coterie.db", tmp_path / "backup.db")
    store = Store.open(backup)
    store.transact(lambda rows: rows.run("UPDATE sample_room SET turns = turns + 1"))
    store.close()
    with pytest.raises(BackupError, match="sample_turns differs from a replay of the log"):
        restore(backup, tmp_path / "coterie.db", NOW, sample_projections())


async def test_restore_refuses_while_a_server_owns_the_database(tmp_path: Path) -> None:
    database = tmp_path / "coterie.db"
    await fill_store(database)
    backup = take_backup(database, tmp_path / "backup.db")
    store = Store.open(database)
    with pytest.raises(InUse):
        restore(backup, database, NOW)
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


async def test_s28_a_crash_during_a_restore_leaves_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "coterie.db"
    hashes = await fill_store(database)
    backup = take_backup(database, tmp_path / "backup.db")

    def killed(draft: Path, path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("coterie.eventstore.sqlite.backup.publish_file", killed)
    with pytest.raises(KeyboardInterrupt):
        restore(backup, database, NOW, sample_projections())
    store = Store.open(database, projections=sample_projections())
    assert store.hashes() == hashes
    store.close()


async def test_s28_a_restore_reports_progress(tmp_path: Path) -> None:
    database = tmp_path / "coterie.db"
    await fill_store(database)
    backup = take_backup(database, tmp_path / "backup.db")
    steps: list[tuple[str, int, int]] = []
    restore(backup, database, NOW, sample_projections(), progress=lambda *step: steps.append(step))
    checking = [(done, most) for what, done, most in steps if what == "Checking the backup"]
    most = 2 + len(sample_projections())
    assert checking == [(part, most) for part in range(most)]
    assert steps[-1] == ("Copying the backup", backup.stat().st_size, backup.stat().st_size)
