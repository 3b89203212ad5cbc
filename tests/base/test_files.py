from __future__ import annotations

import stat
from pathlib import Path

import pytest

from coterie.base.paths import write_atomic


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
