"""The copies that are kept of a house, as a person looks them over: backups and snapshots, and one more on request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from coterie.base.errors import CoterieError
from coterie.base.home import Paths
from coterie.kernel import NewEvent, Store
from coterie.kernel.backup import check_backup
from coterie.ops.backups import Backups, BackupTaken, list_backups
from coterie.ops.errors import NoSuchBackup, UnsoundBackup


@dataclass(frozen=True)
class StoredCopy:
    file: str
    bytes: int
    taken: datetime


@dataclass(frozen=True)
class RestoreResult:
    """How it ended when a backup was last asked for."""

    what: str
    detail: str
    ok: bool


class BackupService:
    def __init__(self, home: Paths, store: Store, backups: Backups) -> None:
        self._home = home
        self._store = store
        self._backups = backups
        self.restore_requested: Path | None = None
        """The backup that is to take the place of this house when it next stops."""
        self.last_restore: RestoreResult | None = None

    @property
    def folder(self) -> Path:
        return self._home.backups

    def backups(self) -> list[StoredCopy]:
        """Newest first."""
        return _seen(list_backups(self._home.backups))

    def snapshots(self) -> list[StoredCopy]:
        """Those from which the next start goes on, newest first."""
        return _seen(sorted(self._home.periodic_snapshots.glob("*.snapshot"), reverse=True))

    async def request_restore(self, file: str) -> None:
        """Have a backup take the place of what is there: it is looked over first, and nothing happens yet."""
        path = next((path for path in list_backups(self._home.backups) if path.name == file), None)
        if path is None:
            raise NoSuchBackup(f"There is no backup {file}.", "Choose one of those that are listed.")
        try:
            problems = (await asyncio.to_thread(check_backup, path, self._store.projections)).problems
        except CoterieError as error:
            problems = [error.what]
        if problems:
            raise UnsoundBackup(
                f"{file} is not sound: {' '.join(problems)}", "Choose another one; nothing was changed."
            )
        self.restore_requested = path

    async def take_backup(self) -> StoredCopy:
        path = await asyncio.to_thread(self._backups.take)
        (made,) = _seen([path])
        await self._store.append([NewEvent("instance", BackupTaken(file=made.file, bytes=made.bytes), "person")])
        return made


def _seen(paths: Iterable[Path]) -> list[StoredCopy]:
    found = []
    for path in paths:
        try:
            told = path.stat()
        except OSError:
            continue  # made room for a newer one just now
        found.append(StoredCopy(path.name, told.st_size, datetime.fromtimestamp(told.st_mtime, UTC)))
    return found
