"""Backups: nightly by a durable timer (S28), and by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tzlocal import get_localzone_name

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.paths import Paths
from coterie.eventstore import Job, NewEvent, Payload, Schedule, Store
from coterie.eventstore.projection import Projection
from coterie.eventstore.sqlite.backup import StepProgress, check_backup, restore, take_backup
from coterie.eventstore.sqlite.snapshots import prune_snapshots
from coterie.eventstore.worker import JobResult
from coterie.ops.errors import NoSuchBackup, UnsoundBackup
from coterie.ops.settings import StorageSettings

BACKUP_JOB = "backup"
_log = get_logger(__name__)


class BackupTaken(Payload, kind="backup_taken"):
    """A copy of the whole database was put aside."""

    file: str
    """Its name in the folder of backups."""
    bytes: int
    """How large it is."""


class Backups:
    def __init__(self, home: Paths, settings: StorageSettings, clock: Clock) -> None:
        self._home = home
        self._settings = settings
        self._clock = clock

    @property
    def schedule(self) -> Schedule:
        return Schedule("nightly backup", BACKUP_JOB, cron=self._settings.backup_at, zone=get_localzone_name() or "UTC")

    async def run_job(self, _: Job) -> JobResult:
        path = await asyncio.to_thread(self.take)
        return JobResult([NewEvent("instance", BackupTaken(file=path.name, bytes=path.stat().st_size))])

    def take(self) -> Path:
        path = take_backup(self._home.database, self._home.backups / backup_name(self._clock.now()))
        for old in list_backups(self._home.backups)[self._settings.keep_backups :]:
            old.unlink(missing_ok=True)
        _log.info("backup taken", file=path.name)
        return path


def backup_name(moment: datetime) -> str:
    return f"coterie-{moment:%Y%m%dT%H%M%S%f}.db"


def list_backups(folder: Path) -> list[Path]:
    return sorted(folder.glob("coterie-*.db"), reverse=True)


def database_copies(paths: Paths) -> list[Path]:
    """Every copy of the database in the data folder: backups, and what a restore put aside with its journal."""
    aside = paths.database.parent.glob(f"{paths.database.name}.before-restore-*")
    unfinished = paths.backups.glob("*.partial")
    return [*list_backups(paths.backups), *sorted(aside), *sorted(unfinished)]


# The copies that are kept of a house, as a person looks them over: backups and snapshots, and one more on request.


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


# Putting a backup back: it takes the place of the database, and what was there is kept beside it. S28


def restore_backup(
    paths: Paths,
    backup: Path,
    now: datetime,
    projections: Sequence[Projection],
    *,
    confirm: Callable[[], object] = lambda: None,
    progress: StepProgress = lambda _what, _done, _most: None,
) -> Path | None:
    """Nothing may have the database open. Returns where the replaced one is kept, if there was one."""
    kept = restore(backup, paths.database, now, projections, confirm, progress)
    for folder in (paths.periodic_snapshots, paths.rewind_snapshots):
        prune_snapshots(folder, keep=0)  # they tell of a life that the restored log may never have
    return kept
