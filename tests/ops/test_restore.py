"""S28: restoring a backup, whole or of the database only, changes everything or nothing."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.lib.sample_events import sample_event, sample_projections
from coterie.base.clock import ManualClock
from coterie.base.errors import BackupError, InUse
from coterie.base.paths import Paths
from coterie.eventstore import KeyStore, Store, take_backup
from coterie.ops.archive import MANIFEST, read_manifest
from coterie.ops.backups import CONTENT, CREDENTIALS, BackupTaker, StorageSettings, list_backups
from coterie.ops.restore import finish_restore, restore_backup

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def make_home(folder: Path, text: str = "first") -> Paths:
    """An instance with every kind of file."""
    paths = Paths.locate({"COTERIE_HOME": str(folder)})
    paths.prepare()
    fill_database(paths, text)
    files = {
        "config.toml": "[server]\nport = 8123\n",
        "secrets.json": "{}",
        "crowd.key": text,
        "agents.yaml": "agents: []",
        "drafts/a-1/HEAD": "ref: refs/heads/main\n",
        "drafts/a-1/objects/ab/cdef": text,
        "drafts/a-1/refs/heads/main": text,
        "workspaces/mara/SOUL.md": text,
        "workspaces/mara/files/room/note with spaces.txt": "kept",
        "workspaces/mara/files/run.sh": "#!/bin/sh\n",
        "shared/USER.md": "shared",
        "configs/crowd.toml": "personas = []",
        "matrix/login.json": "{}",
        "matrix/identity.json": "{}",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "workspaces/mara/files/run.sh").chmod(0o755)
    (folder / "workspaces/mara/files/empty").mkdir(exist_ok=True)
    (folder / "drafts/a-1/refs/tags").mkdir(parents=True, exist_ok=True)
    link = folder / "workspaces/mara/files/link"
    if not link.is_symlink():
        link.symlink_to("/etc/passwd")
    keys = KeyStore(folder / "matrix/keys.db")
    keys.put({("session", "a"): text})
    keys.close()
    return paths


def fill_database(paths: Paths, stream: str) -> None:
    store = Store.open(paths.database, projections=sample_projections())
    store.append_blocking([sample_event(random.Random(5), f"room:{stream}", n) for n in range(40)])
    store.close()


def take(paths: Paths) -> Path:
    return BackupTaker(paths, StorageSettings(), ManualClock(NOW)).take()


def contents(paths: Paths) -> dict[str, str]:
    """Path → kind, permissions and hash, of everything that a backup holds."""
    found: dict[str, str] = {}
    for name in (*CONTENT, *CREDENTIALS, "coterie.db"):
        top = paths.root / name
        for path in [top, *sorted(top.rglob("*"))] if top.is_dir() else [top] if top.exists() else []:
            key = path.relative_to(paths.root).as_posix()
            if path.is_symlink():
                found[key] = f"link {path.readlink()}"
            elif path.is_dir():
                found[key] = "folder"
            elif not key.endswith(("-wal", "-shm")):
                found[key] = f"{path.stat().st_mode & 0o777:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return found


def everything(folder: Path) -> dict[str, tuple[int, str]]:
    """Path → time of change and hash, of everything in a folder."""
    return {
        path.relative_to(folder).as_posix(): (
            path.lstat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else "",
        )
        for path in sorted(folder.rglob("*"))
    }


def logical(paths: Paths) -> dict[str, str]:
    """The contents, with the hashes of the projections in place of the database file."""
    store = Store.open(paths.database, projections=sample_projections())
    hashes = json.dumps(store.hashes())
    store.close()
    return contents(paths) | {"coterie.db": hashes, "matrix/keys.db": key_of(paths)}


def key_of(paths: Paths) -> str:
    keys = KeyStore(paths.root / "matrix/keys.db")
    value = keys.get("session", "a")
    keys.close()
    return value or ""


def test_s28_a_backup_restored_elsewhere_is_equal_and_the_original_untouched(tmp_path: Path) -> None:
    original = make_home(tmp_path / "original")
    backup = take(original)
    before = everything(original.root)
    elsewhere = Paths.locate({"COTERIE_HOME": str(tmp_path / "elsewhere")})
    elsewhere.prepare()
    report = restore_backup(elsewhere, backup, NOW, sample_projections())
    assert report.replaced is None
    assert everything(original.root) == before
    assert logical(elsewhere) == logical(original)
    names = {path.name for path in elsewhere.root.iterdir()}
    assert not names & {".restoring", "restore.json", "adopted"}


def test_s28_databases_of_other_programs_are_copied_whole_while_they_are_in_use(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    file = home.root / "mem0/vectors/collection/crowd/storage.sqlite"
    file.parent.mkdir(parents=True)
    (home.root / "mem0/vectors/meta.json").write_text("{}")
    (home.root / "mem0/empty.db").touch()
    with closing(sqlite3.connect(file, isolation_level=None)) as writing:
        writing.execute("PRAGMA journal_mode=WAL")
        writing.execute("CREATE TABLE points(id, point)")
        writing.execute("INSERT INTO points VALUES (1, 'what Ana said')")
        assert file.with_name("storage.sqlite-wal").stat().st_size
        backup = take(home)
        writing.execute("INSERT INTO points VALUES (2, 'later')")
    elsewhere = Paths.locate({"COTERIE_HOME": str(tmp_path / "elsewhere")})
    elsewhere.prepare()
    restore_backup(elsewhere, backup, NOW, sample_projections())
    restored = elsewhere.root / "mem0/vectors/collection/crowd"
    assert [path.name for path in restored.iterdir()] == ["storage.sqlite"]
    with closing(sqlite3.connect(restored / "storage.sqlite")) as reading:
        assert reading.execute("SELECT * FROM points").fetchall() == [(1, "what Ana said")]
    assert (elsewhere.root / "mem0/empty.db").exists() and (elsewhere.root / "mem0/vectors/meta.json").exists()


def test_s28_a_restore_in_place_replaces_content_and_keeps_credentials(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    backup, expected = take(home), logical(home)
    make_home(home.root, "second")
    (home.root / "workspaces" / "io").mkdir()
    (home.root / "configs" / "later.toml").write_text("")
    replaced = restore_backup(home, backup, NOW, sample_projections()).replaced
    restored = logical(home)
    assert {name: restored[name] for name in restored if name.split("/")[0] in CONTENT} == {
        name: expected[name] for name in expected if name.split("/")[0] in CONTENT
    }
    assert restored["coterie.db"] == expected["coterie.db"]
    assert key_of(home) == "second"  # an older state of a cipher must not return
    assert (home.root / "crowd.key").read_text() == "second"
    assert replaced == home.root / "coterie.db.before-restore-20260102T030405000000"
    aside = home.root / "workspaces.before-restore-20260102T030405000000"
    assert (aside / "mara" / "SOUL.md").read_text() == "second"
    assert (aside / "io").is_dir()


def test_s28_folders_that_a_backup_does_not_have_are_moved_aside(tmp_path: Path) -> None:
    home = Paths.locate({"COTERIE_HOME": str(tmp_path / "home")})
    home.prepare()
    fill_database(home, "first")
    backup = take(home)
    make_home(home.root, "second")
    restore_backup(home, backup, NOW, sample_projections())
    assert not (home.root / "workspaces").exists()
    assert (home.root / "workspaces.before-restore-20260102T030405000000").is_dir()


def test_s28_a_backup_of_the_database_only_still_restores(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    backup = take_backup(home.database, home.backups / "coterie-20260101T000000000000.db")
    expected = logical(home)
    fill_database(home, "second")
    restore_backup(home, backup, NOW, sample_projections())
    assert logical(home) == expected
    assert [path.suffix for path in list_backups(home.backups)] == [".db"]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 500)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(len(data) // 4, len(data) // 2, 997):
        data[at] ^= 0xFF
    path.write_bytes(data)


def not_a_backup(path: Path) -> None:
    path.write_text("Dear diary")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def rewrite(path: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def in_manifest(path: Path, change: Callable[[list[dict[str, object]]], None]) -> None:
    def edit(members: dict[str, bytes]) -> None:
        manifest = json.loads(members[MANIFEST])
        change(manifest["members"])
        members[MANIFEST] = json.dumps(manifest).encode()

    rewrite(path, edit)


def other_content(path: Path) -> None:
    rewrite(path, lambda members: members.update({"workspaces/mara/SOUL.md": b"other"}))


def added_member(path: Path) -> None:
    rewrite(path, lambda members: members.update({"workspaces/evil": b"evil"}))


def removed_member(path: Path) -> None:
    def remove(members: dict[str, bytes]) -> None:
        del members["workspaces/mara/SOUL.md"]

    rewrite(path, remove)


def no_manifest(path: Path) -> None:
    def remove(members: dict[str, bytes]) -> None:
        del members[MANIFEST]

    rewrite(path, remove)


def evil_member(path: str, **values: object) -> Callable[[Path], None]:
    def harm(backup: Path) -> None:
        digest = hashlib.sha256(b"evil").hexdigest()
        member = {"path": path, "kind": "file", "mode": 0o600, "bytes": 4, "sha256": digest} | values

        def edit(members: dict[str, bytes]) -> None:
            manifest = json.loads(members[MANIFEST])
            manifest["members"].append(member)
            members[MANIFEST] = json.dumps(manifest).encode()
            if member["kind"] == "file":
                members[path] = b"evil"

        rewrite(backup, edit)

    return harm


def too_large(path: Path) -> None:
    def grow(members: list[dict[str, object]]) -> None:
        members[0]["bytes"] = 1 << 60

    in_manifest(path, grow)


def trigger_in_database(path: Path) -> None:
    import apsw

    def edit(members: dict[str, bytes]) -> None:
        file = path.with_name("scratch.db")
        file.write_bytes(members["coterie.db"])
        connection = apsw.Connection(str(file))
        connection.execute("CREATE TRIGGER evil AFTER INSERT ON log BEGIN DELETE FROM job; END").fetchall()
        connection.close()
        members["coterie.db"] = file.read_bytes()
        file.unlink()
        manifest = json.loads(members[MANIFEST])
        for member in manifest["members"]:
            if member["path"] == "coterie.db":
                member |= {"bytes": len(members["coterie.db"])}
                member |= {"sha256": hashlib.sha256(members["coterie.db"]).hexdigest()}
        members[MANIFEST] = json.dumps(manifest).encode()

    rewrite(path, edit)


@pytest.mark.parametrize(
    "harm",
    [
        cut,
        flip,
        not_a_backup,
        empty,
        other_content,
        added_member,
        removed_member,
        no_manifest,
        too_large,
        trigger_in_database,
        evil_member("../outside"),
        evil_member("/tmp/outside"),
        evil_member("workspaces/../../outside"),
        evil_member("workspaces//double"),
        evil_member("workspaces/mara/files/link/below"),
        evil_member("workspaces/mara/SOUL.md"),
        evil_member("workspaces/set-uid", mode=0o4755),
        evil_member("workspaces/no-target", kind="link"),
    ],
    ids=lambda harm: harm.__name__,
)
def test_s28_a_backup_that_was_changed_is_refused_and_nothing_changes(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    home = make_home(tmp_path / "home")
    backup = take(home)
    harm(backup)
    before = everything(tmp_path)
    with pytest.raises(BackupError) as refused:
        restore_backup(home, backup, NOW, sample_projections())
    assert refused.value.fix
    assert contents(home) and {name: value[1] for name, value in everything(tmp_path).items()} == {
        name: value[1] for name, value in before.items()
    }


def test_s28_a_restore_is_refused_while_a_server_runs(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    backup = take(home)
    store = Store.open(home.database)
    with pytest.raises(InUse):
        restore_backup(home, backup, NOW, sample_projections())
    store.close()


def test_s28_a_restore_reports_progress(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    steps: list[tuple[str, int, int]] = []
    restore_backup(home, take(home), NOW, sample_projections(), progress=lambda *step: steps.append(step))
    assert {what for what, _, _ in steps} == {"Checking and copying the backup", "Checking the backup"}
    assert all(done <= total for _, done, total in steps)


def test_s28_the_manifest_names_everything_and_what_is_left_out(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    (home.root / "model.gguf").write_bytes(b"large")
    manifest = read_manifest(take(home))
    paths = {member.path for member in manifest.members}
    assert paths == contents(home).keys()
    assert manifest.left_out == ("file: model.gguf",)
    assert manifest.home == str(home.root.resolve())


_KILLED_AT = """
    import os, signal, sys
    from pathlib import Path
    sys.path.insert(0, os.getcwd())
    from bench.lib.sample_events import sample_projections
    from coterie.base.paths import Paths
    from coterie.ops import restore
    from tests.ops.test_restore import NOW
    calls, limit = 0, int(sys.argv[3])

    def counted(function):
        def call(*args, **kwargs):
            global calls
            calls += 1
            if calls > limit:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)
        return call

    for owner, name in ((os, "rename"), (os, "fsync"), (os, "mkdir"), (os, "unlink"), (os, "replace")):
        setattr(owner, name, counted(getattr(owner, name)))
    paths = Paths.locate({"COTERIE_HOME": sys.argv[1]})
    restore.restore_backup(paths, Path(sys.argv[2]), NOW, sample_projections())
    print(calls)
"""


def restore_in_process(home: Paths, backup: Path, limit: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(_KILLED_AT), str(home.root), str(backup), str(limit)]
    return subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)


def test_s28_a_kill_during_a_restore_leaves_the_old_or_the_new_instance(tmp_path: Path) -> None:
    """Killed before each of several system calls that change a name or reach the disk."""
    first = make_home(tmp_path / "first", "first")
    backup = take(first)
    new = {name: value for name, value in logical(first).items() if name.split("/")[0] in (*CONTENT, "coterie.db")}
    make_home(first.root, "second")
    old = {name: value for name, value in logical(first).items() if name.split("/")[0] in (*CONTENT, "coterie.db")}
    assert old != new
    whole = tmp_path / "whole"
    subprocess.run(["cp", "-a", str(first.root), str(whole)], check=True)
    done = restore_in_process(Paths.locate({"COTERIE_HOME": str(whole)}), backup, 10_000)
    assert done.returncode == 0, done.stderr
    calls = int(done.stdout.split()[-1])
    outcomes = set()
    for limit in sorted({*range(0, calls, max(1, calls // 10)), *range(max(0, calls - 9), calls)}):
        home = Paths.locate({"COTERIE_HOME": str(tmp_path / f"killed-{limit}")})
        subprocess.run(["cp", "-a", str(first.root), str(home.root)], check=True)
        assert restore_in_process(home, backup, limit).returncode == -signal.SIGKILL
        finish_restore(home)
        found = {name: value for name, value in logical(home).items() if name.split("/")[0] in (*CONTENT, "coterie.db")}
        assert found in (old, new), limit
        outcomes.add("old" if found == old else "new")
        assert not (home.root / ".restoring").exists() and not (home.root / "restore.json").exists()
    assert outcomes == {"old", "new"}


def test_s28_a_kill_during_a_backup_leaves_no_backup(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    before = contents(home)
    script = """
        import os, signal, sys
        sys.path.insert(0, os.getcwd())
        from coterie.base.clock import SystemClock
        from coterie.base.paths import Paths
        from coterie.ops import backups
        backups.publish_file = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        paths = Paths.locate({"COTERIE_HOME": sys.argv[1]})
        backups.BackupTaker(paths, backups.StorageSettings(), SystemClock()).take()
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(home.root)]
    assert subprocess.run(command, cwd=Path(__file__).parents[2]).returncode == -signal.SIGKILL
    assert list_backups(home.backups) == []
    assert contents(home) == before
    for left in home.backups.iterdir():
        os.utime(left, (0, 0))
    taken = take(home)
    assert list(home.backups.iterdir()) == [taken]
