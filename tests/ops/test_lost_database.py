"""Snapshots that remain after their database was lost are named once, correctly, and set aside."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import structlog

from coterie.app import App, open_store
from coterie.base.paths import Paths
from coterie.characters.identity import Identity
from coterie.eventstore.sqlite.snapshots import list_snapshots, prune_snapshots
from coterie.ops.backups import DatabaseMissing, SnapshotTaker
from coterie.settings import Settings


@pytest.fixture
def home(tmp_path: Path) -> Paths:
    return Paths.locate({"COTERIE_HOME": str(tmp_path / "home")})


def fill(home: Paths, characters: int, snapshots: int) -> None:
    """Add characters to the database, and take snapshots of it."""

    async def run() -> None:
        with open_store(home, new=True) as store:
            app = App(home, Settings(), store)
            for number in range(characters):
                await app.characters.save(Identity(name=f"Character {number}", persona="One of many."))
            taker: SnapshotTaker = app._snapshots
            for _ in range(snapshots):
                assert await taker.take() is not None
            await app.models.close()

    asyncio.run(run())


def lose_database(home: Paths) -> None:
    for file in home.database.parent.glob(f"{home.database.name}*"):
        file.unlink()


def warnings_at_start(home: Paths) -> list[str]:
    with structlog.testing.capture_logs() as logs, open_store(home, new=True):
        pass
    return [str(line.get("why")) for line in logs if line["event"] == "snapshot skipped"]


def test_snapshots_of_a_lost_database_are_named_once_and_set_aside(home: Paths) -> None:
    fill(home, characters=3, snapshots=3)
    lose_database(home)
    (warning,) = warnings_at_start(home)
    assert "3 snapshots" in warning and "another database" in warning and "damaged" not in warning
    assert list_snapshots(home.periodic_snapshots) == []
    assert warnings_at_start(home) == []


def test_snapshots_of_a_lost_database_are_not_used_by_a_longer_log(home: Paths) -> None:
    fill(home, characters=3, snapshots=1)
    lose_database(home)
    snapshots = {path.name: path.read_bytes() for path in list_snapshots(home.periodic_snapshots)}
    fill(home, characters=9, snapshots=0)
    for name, content in snapshots.items():
        (home.periodic_snapshots / name).write_bytes(content)
    with open_store(home) as store:
        expected = store.hashes()
        store.transact(lambda rows: rows.run("DELETE FROM projection"))
    assert len(warnings_at_start(home)) == 1
    with open_store(home) as store:
        assert store.hashes() == expected


def test_snapshots_of_a_log_that_lost_its_end_are_set_aside(home: Paths) -> None:
    fill(home, characters=1, snapshots=0)
    earlier = home.database.read_bytes()
    fill(home, characters=3, snapshots=2)
    lose_database(home)
    home.database.write_bytes(earlier)
    with open_store(home) as store:
        store.transact(lambda rows: rows.run("DELETE FROM projection"))
    (warning,) = warnings_at_start(home)
    assert "2 snapshots" in warning and "events that the log does not have" in warning
    assert list_snapshots(home.periodic_snapshots) == []


def test_a_purge_removes_snapshots_that_were_set_aside(home: Paths) -> None:
    fill(home, characters=1, snapshots=2)
    lose_database(home)
    warnings_at_start(home)
    assert [path for path in home.periodic_snapshots.rglob("*") if path.is_file()]
    prune_snapshots(home.periodic_snapshots, keep=0)
    assert not [path for path in home.periodic_snapshots.rglob("*") if path.is_file()]


@pytest.mark.parametrize("remains", ["backup", "snapshot", "workspace", "drafts", "rescued", "replaced"])
@pytest.mark.parametrize("emptied", [False, True])
def test_s28_an_empty_database_does_not_hide_a_lost_one(home: Paths, remains: str, emptied: bool) -> None:
    fill(home, characters=1, snapshots=0)
    kept = home.database.read_bytes()
    lose_database(home)
    path = {
        "backup": home.backups / "coterie-20260101T000000000000.zip",
        "snapshot": home.periodic_snapshots / "20260101T000000000000.snapshot",
        "workspace": home.root / "workspaces" / "mara" / "SOUL.md",
        "drafts": home.root / "drafts" / "text-abc123" / "HEAD",
        "rescued": home.root / "rescued-20260101T000000000000.db",
        "replaced": home.root / "coterie.db.before-restore-20260101T000000000000",
    }[remains]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(kept)
    if emptied:
        home.database.touch()
    with pytest.raises(DatabaseMissing) as refused, open_store(home):
        pass
    assert "coterie serve --new" in refused.value.fix
    if remains in ("backup", "rescued"):
        assert f"coterie restore {path}" in refused.value.fix
    assert not home.database.exists() or not home.database.stat().st_size
    path.unlink()
    with open_store(home, new=True) as store:
        assert store.reader.last_id() == 0


def test_s28_a_first_start_needs_no_flag(home: Paths) -> None:
    home.prepare()
    home.config.write_text("")
    home.secrets.write_text("{}")
    with open_store(home):
        pass


def test_s28_a_rescued_database_with_more_events_is_not_ignored(home: Paths) -> None:
    fill(home, characters=1, snapshots=0)
    older = home.database.read_bytes()
    fill(home, characters=2, snapshots=0)
    rescued = home.root / "rescued-20260101T000000000000.db"
    home.database.rename(rescued)
    lose_database(home)
    home.database.write_bytes(older)
    with pytest.raises(DatabaseMissing) as refused, open_store(home):
        pass
    assert f"coterie restore {rescued}" in refused.value.fix
    rescued.replace(home.database)
    with open_store(home):
        pass
