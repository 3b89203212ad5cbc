from __future__ import annotations

from pathlib import Path

import pytest

from coterie.base.errors import ReadOnly
from coterie.base.paths import Paths


def test_all_paths_are_in_one_folder(tmp_path: Path) -> None:
    home = Paths.locate({"COTERIE_HOME": str(tmp_path)})
    assert home.root == tmp_path
    assert home.config == tmp_path / "config.toml"
    assert home.database == tmp_path / "coterie.db"
    assert (
        home.backups.parent == home.periodic_snapshots.parent.parent == home.rewind_snapshots.parent.parent == tmp_path
    )
    assert home.workspace("mara").is_relative_to(tmp_path)


def test_config_and_database_can_be_elsewhere(tmp_path: Path) -> None:
    home = Paths.locate(
        {
            "COTERIE_HOME": str(tmp_path / "a"),
            "COTERIE_CONFIG": str(tmp_path / "b" / "my.toml"),
            "COTERIE_DB_PATH": str(tmp_path / "c" / "my.db"),
        }
    )
    assert (home.root, home.config, home.database) == (
        tmp_path / "a",
        tmp_path / "b" / "my.toml",
        tmp_path / "c" / "my.db",
    )


def test_paths_are_always_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Paths.locate({"COTERIE_HOME": "here"}).root == tmp_path / "here"
    assert Paths.locate({"COTERIE_HOME": "~/there"}).root == tmp_path / "there"


@pytest.mark.parametrize("environ", [{}, {"COTERIE_HOME": "", "COTERIE_CONFIG": "", "COTERIE_DB_PATH": ""}])
def test_the_default_is_the_platforms_data_folder(environ: dict[str, str]) -> None:
    home = Paths.locate(environ)
    assert home.root.name == "coterie"
    assert home.database == home.root / "coterie.db"
    assert home.config == home.root / "config.toml"


def test_folders_are_readable_by_the_owner_only(tmp_path: Path) -> None:
    home = Paths.locate({"COTERIE_HOME": str(tmp_path / "new"), "COTERIE_DB_PATH": str(tmp_path / "db" / "x.db")})
    home.prepare()
    home.prepare()
    for folder in (home.root, home.database.parent, home.backups, home.periodic_snapshots, home.rewind_snapshots):
        assert folder.is_dir()
        assert folder.stat().st_mode & 0o077 == 0


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    home = Paths.locate({"COTERIE_HOME": str(tmp_path / "file" / "home")})
    with pytest.raises(ReadOnly, match="cannot be created") as caught:
        home.prepare()
    assert str(home.root) in caught.value.what
    assert "COTERIE_HOME" in caught.value.fix


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Paths.locate({"COTERIE_HOME": str(tmp_path)})
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(ReadOnly, match="cannot be written to"):
        home.prepare()
