from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from coterie.base.paths import open_atomic, write_atomic


def test_a_file_keeps_its_permissions_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "note.txt"
    file.write_bytes(b"old")
    file.chmod(0o640)
    write_atomic(file, b"new")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"new", 0o640)
    write_atomic(file, b"private", mode=0o600, durable=False)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["note.txt"]


def test_a_failed_write_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "note.txt"
    file.write_bytes(b"old")

    def fail(self: Path, target: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(file, b"new")
    assert file.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["note.txt"]


def test_a_file_that_is_not_finished_leaves_the_old_content(tmp_path: Path) -> None:
    file = tmp_path / "note.txt"
    file.write_bytes(b"old")
    with pytest.raises(RuntimeError), open_atomic(file) as opened:
        opened.write(b"ne")
        raise RuntimeError
    assert file.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["note.txt"]


def test_a_durable_write_syncs_the_file_before_its_name_and_then_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    replace = Path.replace

    def record_sync(path: Path) -> None:
        calls.append("folder" if path.is_dir() else "file")

    def record_rename(self: Path, target: Path) -> Path:
        calls.append("rename")
        return replace(self, target)

    monkeypatch.setattr("coterie.base.paths.fsync_path", record_sync)
    monkeypatch.setattr(Path, "replace", record_rename)
    write_atomic(tmp_path / "note.txt", b"new")
    assert calls == ["file", "rename", "folder"]


def test_a_file_with_the_longest_possible_name_is_written(tmp_path: Path) -> None:
    write_atomic(tmp_path / ("n" * 255), b"new")
    assert (tmp_path / ("n" * 255)).read_bytes() == b"new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomic(pipe, b"new")
        assert os.read(reader, 10) == b"new"
        assert stat.S_ISFIFO(pipe.stat().st_mode)
    finally:
        os.close(reader)
