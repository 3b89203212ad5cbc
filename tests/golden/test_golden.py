"""Databases of every schema that was ever released must still open, and say what they said then.

A golden file is an SQL dump; the line after the dump holds the hash of each projection. To add one for a new schema:
`python -m tests.golden.test_golden NAME`.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import sys
import tempfile
from pathlib import Path

import apsw
import apsw.shell
import pytest

from bench.lib.sample_events import sample_event, sample_projections
from coterie.base.clock import ManualClock
from coterie.base.paths import Paths
from coterie.eventstore import NewJob, Store
from coterie.eventstore.sqlite.backup import check_backup
from coterie.eventstore.sqlite.verify import verify
from coterie.ops import restore_backup

FOLDER = Path(__file__).parent
MARK = "-- views: "


@pytest.mark.parametrize("golden", sorted(FOLDER.glob("*.sql")), ids=lambda path: path.stem)
def test_an_old_database_still_opens_and_says_the_same(golden: Path, tmp_path: Path) -> None:
    text = golden.read_text(encoding="utf-8")
    path = tmp_path / "coterie.db"
    connection = apsw.Connection(str(path))
    connection.execute(text)
    connection.close()
    expected = json.loads(text.rsplit(MARK, 1)[1])
    store = Store.open(path, projections=sample_projections())
    assert store.hashes() == expected
    findings = verify(store.reader, store.projections)
    assert findings.clean, findings.problems
    store.rebuild()
    assert store.hashes() == expected
    assert [job.key for job in asyncio.run(store.jobs.find())] == ["golden"]
    store.close()


@pytest.mark.parametrize("golden", sorted(FOLDER.glob("*.sql")), ids=lambda path: path.stem)
def test_a_backup_of_an_old_version_can_be_checked_and_restored(golden: Path, tmp_path: Path) -> None:
    text = golden.read_text(encoding="utf-8")
    backup, database = tmp_path / "backup.db", tmp_path / "coterie.db"
    connection = apsw.Connection(str(backup))
    connection.execute(text)
    connection.close()
    report = check_backup(backup, sample_projections())
    assert report.clean, report.problems
    home = Paths.locate({"COTERIE_HOME": str(tmp_path), "COTERIE_DB_PATH": str(database)})
    restore_backup(home, backup, ManualClock().now(), sample_projections())
    store = Store.open(database, projections=sample_projections())
    assert store.hashes() == json.loads(text.rsplit(MARK, 1)[1])
    store.close()


def test_there_is_a_golden_database() -> None:
    assert list(FOLDER.glob("*.sql"))


async def make(path: Path) -> dict[str, str]:
    store = Store.open(path, projections=sample_projections(), clock=ManualClock())
    chance = random.Random(2026)
    await store.append([sample_event(chance, "room:a", n) for n in range(25)], jobs=[NewJob("work", key="golden")])
    await store.rewind("room:a", 18)
    await store.append([sample_event(chance, "room:a", n) for n in range(25, 30)])
    await store.fork("room:a", 22, "room:b")
    await store.supersede("room:b", drop=[20, 21])
    await store.append([sample_event(chance, "room:b", n) for n in range(30, 35)])
    await store.append([sample_event(chance, "room:c", n) for n in range(35, 40)])
    await store.purge("room:c", first=2, last=3)
    await store.reset("room:c")
    await store.redo("room:c")
    hashes = store.hashes()
    store.close()
    return hashes


def main(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coterie.db"
        hashes = asyncio.run(make(path))
        out = io.StringIO()
        shell = apsw.shell.Shell(stdout=out, db=apsw.Connection(str(path)))
        shell.process_command(".dump")  # type: ignore[no-untyped-call]
        dump = "\n".join(line for line in out.getvalue().splitlines() if not line.startswith("--"))
        (FOLDER / f"{name}.sql").write_text(f"{dump}\n{MARK}{json.dumps(hashes)}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
