"""The copies that are kept of a house, as a person looks them over: backups and snapshots, and one more on request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from coterie.base.home import Home
from coterie.kernel import Draft, Store
from coterie.ops.backups import Backups, BackupTaken, newest_first


@dataclass(frozen=True)
class Copy:
    file: str
    bytes: int
    taken: datetime


class Copies:
    def __init__(self, home: Home, store: Store, backups: Backups) -> None:
        self._home = home
        self._store = store
        self._backups = backups

    @property
    def folder(self) -> Path:
        return self._home.backups

    def backups(self) -> list[Copy]:
        """Newest first."""
        return _seen(newest_first(self._home.backups))

    def snapshots(self) -> list[Copy]:
        """Those from which the next start goes on, newest first."""
        return _seen(sorted(self._home.periodic_snapshots.glob("*.snapshot"), reverse=True))

    async def take_backup(self) -> Copy:
        path = await asyncio.to_thread(self._backups.take)
        (made,) = _seen([path])
        await self._store.append([Draft("instance", BackupTaken(file=made.file, bytes=made.bytes), "person")])
        return made


def _seen(paths: Iterable[Path]) -> list[Copy]:
    found = []
    for path in paths:
        try:
            told = path.stat()
        except OSError:
            continue  # made room for a newer one just now
        found.append(Copy(path.name, told.st_size, datetime.fromtimestamp(told.st_mtime, UTC)))
    return found
