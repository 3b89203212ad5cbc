"""The copies that are kept of a house, as a person looks them over: backups and snapshots, and one more on request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from coterie.base.errors import CoterieError
from coterie.base.home import Home
from coterie.kernel import Draft, Store
from coterie.kernel.backup import check_backup
from coterie.ops.backups import Backups, BackupTaken, newest_first
from coterie.ops.errors import NoSuchBackup, UnsoundBackup


@dataclass(frozen=True)
class Copy:
    file: str
    bytes: int
    taken: datetime


@dataclass(frozen=True)
class PutBack:
    """How it ended when a backup was last asked for."""

    what: str
    more: str
    ok: bool


class Copies:
    def __init__(self, home: Home, store: Store, backups: Backups) -> None:
        self._home = home
        self._store = store
        self._backups = backups
        self.wanted: Path | None = None
        """The backup that is to take the place of this house when it next stops."""
        self.put_back: PutBack | None = None

    @property
    def folder(self) -> Path:
        return self._home.backups

    def backups(self) -> list[Copy]:
        """Newest first."""
        return _seen(newest_first(self._home.backups))

    def snapshots(self) -> list[Copy]:
        """Those from which the next start goes on, newest first."""
        return _seen(sorted(self._home.periodic_snapshots.glob("*.snapshot"), reverse=True))

    async def want(self, file: str) -> None:
        """Have a backup take the place of what is there: it is looked over first, and nothing happens yet."""
        path = next((path for path in newest_first(self._home.backups) if path.name == file), None)
        if path is None:
            raise NoSuchBackup(f"There is no backup {file}.", "Choose one of those that are listed.")
        try:
            problems = (await asyncio.to_thread(check_backup, path, self._store.views)).problems
        except CoterieError as error:
            problems = [error.what]
        if problems:
            raise UnsoundBackup(
                f"{file} is not sound: {' '.join(problems)}", "Choose another one; nothing was changed."
            )
        self.wanted = path

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
