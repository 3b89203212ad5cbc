"""The key store: transactional and private."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from coterie.base.errors import StorageError
from coterie.eventstore.sqlite.database import KeyStore


def test_entries_are_there_after_reopening(tmp_path: Path) -> None:
    file = tmp_path / "new" / "keys.db"
    store = KeyStore(file)
    store.put({("a", "x/1"): "one", ("a", "x/2"): "two", ("b", "x/1"): "other"})
    store.put({("a", "x/2"): None, ("a", "y"): "three"})
    store.close()
    store = KeyStore(file)
    assert store.entries("a") == {"x/1": "one", "y": "three"}
    assert store.entries("a", "x/") == {"x/1": "one"}
    assert store.get("b", "x/1") == "other" and store.get("b", "y") is None
    store.close()
    assert file.stat().st_mode & 0o077 == 0


def test_a_failed_change_is_rolled_back(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.db")
    store.put({("a", "x"): "before"})
    with pytest.raises((StorageError, TypeError)):
        store.put({("a", "x"): "after", ("a", "y"): object()})  # type: ignore[dict-item]
    assert store.entries("a") == {"x": "before"}
    store.close()


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
