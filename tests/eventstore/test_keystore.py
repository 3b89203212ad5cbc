"""What is kept beside the log: all or nothing, for its owner only."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from coterie.base.errors import StorageError
from coterie.eventstore.sqlite.keystore import KeyStore


def test_what_was_put_is_there_after_reopening(tmp_path: Path) -> None:
    file = tmp_path / "new" / "keys.db"
    cabinet = KeyStore(file)
    cabinet.put({("a", "x/1"): "one", ("a", "x/2"): "two", ("b", "x/1"): "other"})
    cabinet.put({("a", "x/2"): None, ("a", "y"): "three"})
    cabinet.close()
    cabinet = KeyStore(file)
    assert cabinet.entries("a") == {"x/1": "one", "y": "three"}
    assert cabinet.entries("a", "x/") == {"x/1": "one"}
    assert cabinet.get("b", "x/1") == "other" and cabinet.get("b", "y") is None
    cabinet.close()
    assert file.stat().st_mode & 0o077 == 0


def test_a_change_that_fails_halfway_leaves_everything_as_it_was(tmp_path: Path) -> None:
    cabinet = KeyStore(tmp_path / "keys.db")
    cabinet.put({("a", "x"): "before"})
    with pytest.raises((StorageError, TypeError)):
        cabinet.put({("a", "x"): "after", ("a", "y"): object()})  # type: ignore[dict-item]
    assert cabinet.entries("a") == {"x": "before"}
    cabinet.close()


def test_a_file_with_the_first_table_names_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.db"
    connection = apsw.Connection(str(path))
    connection.execute(
        "CREATE TABLE kept(drawer TEXT, name TEXT, told TEXT NOT NULL, PRIMARY KEY(drawer, name)) WITHOUT ROWID;"
        " INSERT INTO kept VALUES ('account', 'main', 'sealed')"
    )
    connection.close()
    for _ in range(2):
        store = KeyStore(path)
        assert store.entries("account") == {"main": "sealed"}
        store.close()
