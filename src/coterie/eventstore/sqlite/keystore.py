"""A file for what may not stand in the log: keys that must be kept, changed and forgotten, all or nothing at a time.

Drawers hold texts under names. Everything handed to `put` is durable together before it returns, so that a step of a
cipher and what came of it cannot be torn apart by a crash.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from coterie.eventstore.sqlite.database import connect, translating_errors

KeyPath = tuple[str, str]
"""A drawer and the name in it."""


class KeyStore:
    def __init__(self, path: Path) -> None:
        """Made if it is not there, for its owner's eyes only."""
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        self._rows = connect(path, writable=True)
        with translating_errors(path):
            self._rows.execute(
                "CREATE TABLE IF NOT EXISTS kept(drawer TEXT, name TEXT, told TEXT NOT NULL,"
                " PRIMARY KEY(drawer, name)) WITHOUT ROWID"
            )

    def get(self, namespace: str, name: str) -> str | None:
        with translating_errors(self._path):
            row = self._rows.execute(
                "SELECT told FROM kept WHERE drawer = ? AND name = ?", (namespace, name)
            ).fetchone()
        return None if row is None else str(row[0])

    def entries(self, namespace: str, prefix: str = "") -> dict[str, str]:
        """Everything in it whose name begins so."""
        with translating_errors(self._path):
            rows = self._rows.execute(
                "SELECT name, told FROM kept WHERE drawer = ? AND substr(name, 1, ?) = ? ORDER BY name",
                (namespace, len(prefix), prefix),
            ).fetchall()
        return {str(name): str(told) for name, told in rows}

    def put(self, changes: Mapping[KeyPath, str | None]) -> None:
        """All of it or nothing; None removes."""
        if not changes:
            return
        with translating_errors(self._path), self._rows:
            for (drawer, name), told in changes.items():
                if told is None:
                    self._rows.execute("DELETE FROM kept WHERE drawer = ? AND name = ?", (drawer, name))
                else:
                    self._rows.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", (drawer, name, told))

    def close(self) -> None:
        self._rows.close()
