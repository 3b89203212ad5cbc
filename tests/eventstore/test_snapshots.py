from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.lib.sample_events import sample_event, sample_projections
from coterie.eventstore import LogReader, Store
from coterie.eventstore.sqlite.replay import replayed_hash
from coterie.eventstore.sqlite.snapshots import list_snapshots, prune_snapshots, seed_from_snapshots, write_snapshot


async def play(store: Store, chance: random.Random, steps: int, *, reach_back: bool) -> None:
    for number in range(steps):
        await store.append([sample_event(chance, "room:a", chance.randint(0, 10_000)) for _ in range(3)])
        head = await store.head("room:a")
        if reach_back and number % 3 == 2:
            await store.rewind("room:a", chance.randint(0, head))


def forget_projections(path: Path) -> None:
    """Make the store rebuild its projections at the next start."""
    store = Store.open(path)
    store.transact(lambda rows: rows.run("DELETE FROM projection"))
    store.close()


@settings(max_examples=25)
@given(st.integers(0, 8), st.integers(0, 8), st.integers(0, 10_000), st.booleans())
def test_s27_a_snapshot_plus_later_events_equals_a_full_replay(
    before: int, after: int, seed: int, reach_back: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, snapshots = Path(folder) / "coterie.db", Path(folder) / "snapshots"
        chance = random.Random(seed)
        store = Store.open(path, projections=sample_projections())
        asyncio.run(play(store, chance, before, reach_back=reach_back))
        write_snapshot(store.reader.connections, store.projections, snapshots / "1.snapshot")
        asyncio.run(play(store, chance, after, reach_back=reach_back))
        live = store.hashes()
        store.close()
        forget_projections(path)
        warnings: list[str] = []
        store = Store.open(path, projections=sample_projections(), seed=seed_from_snapshots(snapshots, warnings.append))
        try:
            assert store.hashes() == live
            assert warnings == []
            # further changes, before and after the position of the snapshot
            asyncio.run(play(store, chance, 4, reach_back=True))
            with store.reader.connections.read_transaction() as rows:
                assert store.hashes() == {
                    projection.name: replayed_hash(projection, rows) for projection in store.projections
                }
        finally:
            store.close()


async def test_s27_a_rebuild_starts_from_a_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "coterie.db"
    store = Store.open(path, projections=sample_projections())
    await play(store, random.Random(1), 10, reach_back=False)
    position = write_snapshot(store.reader.connections, store.projections, tmp_path / "1.snapshot")
    store.close()
    forget_projections(path)
    store = Store.open(path, projections=sample_projections(), seed=seed_from_snapshots(tmp_path, print))
    assert store.query("SELECT DISTINCT floor FROM projection WHERE name LIKE 'sample%'") == [(position,)]
    store.close()


@pytest.mark.parametrize("harm", ["cut", "garbage", "rows", "empty", "from the future"])
async def test_s27_a_corrupt_snapshot_is_skipped_with_a_warning(tmp_path: Path, harm: str) -> None:
    path, snapshots = tmp_path / "coterie.db", tmp_path / "snapshots"
    store = Store.open(path, projections=sample_projections())
    await play(store, random.Random(2), 10, reach_back=False)
    write_snapshot(store.reader.connections, store.projections, snapshots / "1.snapshot")
    newest = snapshots / "2.snapshot"
    write_snapshot(store.reader.connections, store.projections, newest)
    live = store.hashes()
    store.close()
    content = newest.read_bytes()
    match harm:
        case "cut":
            newest.write_bytes(content[: len(content) // 2])
        case "garbage":
            newest.write_bytes(content[:200] + b"\xff" * (len(content) - 200))
        case "empty":
            newest.write_bytes(b"")
        case "rows":
            other = Store.open(newest)
            other.transact(lambda rows: rows.run("UPDATE sample_turn SET text = 'never said'"))
            other.close()
        case _:
            other = Store.open(newest)
            other.transact(lambda rows: rows.run("UPDATE contents SET position = 999999"))
            other.close()
    forget_projections(path)
    warnings: list[str] = []
    store = Store.open(path, projections=sample_projections(), seed=seed_from_snapshots(snapshots, warnings.append))
    assert store.hashes() == live
    expected = "with events that the log does not have" if harm == "from the future" else "2.snapshot is damaged"
    assert len(warnings) == 1
    assert expected in warnings[0]
    store.close()


async def test_a_snapshot_is_written_during_appends(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "coterie.db", projections=sample_projections())
    stop = False

    async def write() -> None:
        chance, number = random.Random(4), 0
        while not stop:
            await store.append([sample_event(chance, "room:a", number)])
            number += 1

    writing = asyncio.ensure_future(write())
    for number in range(5):
        await asyncio.to_thread(
            write_snapshot, store.reader.connections, store.projections, tmp_path / "s" / f"{number}.snapshot"
        )
    stop = True
    await writing
    store.close()
    forget_projections(tmp_path / "coterie.db")
    warnings: list[str] = []
    store = Store.open(
        tmp_path / "coterie.db",
        projections=sample_projections(),
        seed=seed_from_snapshots(tmp_path / "s", warnings.append),
    )
    with store.reader.connections.read_transaction() as rows:
        assert store.hashes() == {projection.name: replayed_hash(projection, rows) for projection in store.projections}
    assert warnings == []
    store.close()


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.snapshot").touch()
    assert [path.stem for path in prune_snapshots(tmp_path, 5)] == ["2", "1", "0"]
    assert [path.stem for path in list_snapshots(tmp_path)] == ["7", "6", "5", "4", "3"]


def test_reading_a_missing_database_is_refused(tmp_path: Path) -> None:
    from coterie.base.errors import StorageError

    with pytest.raises(StorageError, match="There is no database"):
        LogReader(tmp_path / "nothing.db")
