"""What is kept beside the log: all or nothing, for its owner only."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.base.errors import StorageError
from coterie.kernel.cabinet import Cabinet


def test_what_was_put_is_there_after_reopening(tmp_path: Path) -> None:
    file = tmp_path / "new" / "keys.db"
    cabinet = Cabinet(file)
    cabinet.put({("a", "x/1"): "one", ("a", "x/2"): "two", ("b", "x/1"): "other"})
    cabinet.put({("a", "x/2"): None, ("a", "y"): "three"})
    cabinet.close()
    cabinet = Cabinet(file)
    assert cabinet.drawer("a") == {"x/1": "one", "y": "three"}
    assert cabinet.drawer("a", "x/") == {"x/1": "one"}
    assert cabinet.get("b", "x/1") == "other" and cabinet.get("b", "y") is None
    cabinet.close()
    assert file.stat().st_mode & 0o077 == 0


def test_a_change_that_fails_halfway_leaves_everything_as_it_was(tmp_path: Path) -> None:
    cabinet = Cabinet(tmp_path / "keys.db")
    cabinet.put({("a", "x"): "before"})
    with pytest.raises((StorageError, TypeError)):
        cabinet.put({("a", "x"): "after", ("a", "y"): object()})  # type: ignore[dict-item]
    assert cabinet.drawer("a") == {"x": "before"}
    cabinet.close()
