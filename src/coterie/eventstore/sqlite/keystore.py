"""A small transactional key-value file for secrets that must not be in the event log, such as encryption keys.

Values are texts, addressed by a namespace and a name. Everything handed to one `put` becomes durable together, so a
crash cannot separate a step of a cipher from its result.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from coterie.eventstore.sqlite.database import connect, translate_errors

KeyPath = tuple[str, str]
"""A namespace and the name in it."""


class KeyStore:
    def __init__(self, path: Path) -> None:
        """Open the file; create it, readable by its owner only, if it does not exist."""
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        self._connection = connect(path, writable=True)
        with translate_errors(path), self._connection:
            if self._connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'kept'").fetchone():
                self._connection.execute(
                    "ALTER TABLE kept RENAME TO entry; ALTER TABLE entry RENAME COLUMN drawer TO namespace;"
                    " ALTER TABLE entry RENAME COLUMN told TO value"
                )
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS entry(namespace TEXT, name TEXT, value TEXT NOT NULL,"
                " PRIMARY KEY(namespace, name)) WITHOUT ROWID"
            )

    def get(self, namespace: str, name: str) -> str | None:
        with translate_errors(self._path):
            row = self._connection.execute(
                "SELECT value FROM entry WHERE namespace = ? AND name = ?", (namespace, name)
            ).fetchone()
        return None if row is None else str(row[0])

    def entries(self, namespace: str, prefix: str = "") -> dict[str, str]:
        """Name → value of every entry in a namespace whose name starts with `prefix`."""
        with translate_errors(self._path):
            rows = self._connection.execute(
                "SELECT name, value FROM entry WHERE namespace = ? AND substr(name, 1, ?) = ? ORDER BY name",
                (namespace, len(prefix), prefix),
            ).fetchall()
        return {str(name): str(value) for name, value in rows}

    def put(self, changes: Mapping[KeyPath, str | None]) -> None:
        """Write all changes in one transaction; None removes an entry."""
        if not changes:
            return
        with translate_errors(self._path), self._connection:
            for (namespace, name), value in changes.items():
                if value is None:
                    self._connection.execute("DELETE FROM entry WHERE namespace = ? AND name = ?", (namespace, name))
                else:
                    self._connection.execute("INSERT OR REPLACE INTO entry VALUES (?, ?, ?)", (namespace, name, value))

    def close(self) -> None:
        self._connection.close()
