"""Backups of the database and snapshots of its projections: when they are taken, listed, pruned and restored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field, field_validator
from tzlocal import get_localzone_name

from coterie.base.clock import Clock
from coterie.base.config import Section
from coterie.base.errors import BackupError, CoterieError, JobError
from coterie.base.logging import get_logger
from coterie.base.paths import Paths
from coterie.eventstore import (
    Job,
    JobResult,
    NewEvent,
    Payload,
    Projection,
    Schedule,
    StepProgress,
    Store,
    check_backup,
    prune_snapshots,
    restore,
    take_backup,
    write_snapshot,
)

BACKUP_JOB = "backup"
_CHECK_INTERVAL_S = 2.0
_PAUSE_FACTOR = 20
"""After a snapshot, none is taken for this many times its duration: large databases take a while."""
_log = get_logger(__name__)


class NoSuchBackup(BackupError):
    http_status = 404


class DamagedBackup(BackupError):
    """The backup cannot be opened, or does not verify."""

    http_status = 422


class RestoreUnavailable(BackupError):
    """The process that runs this server does not restart it, so a backup cannot be restored from the page."""

    http_status = 409


class StorageSettings(Section):
    """Snapshots and backups. They live beside the database, in `snapshots` and `backups`."""

    snapshot_every_events: int = Field(default=100, ge=1)
    """A snapshot is taken after this many events."""
    snapshot_every_minutes: float = Field(default=30.0, gt=0)
    """… or after this many minutes, if there were new events."""
    keep_snapshots: int = Field(default=5, ge=1)
    """How many snapshots are kept."""
    backup_at: str = Field(default="0 3 * * *")
    """When the nightly backup is taken: a cron expression, in this machine's time zone."""
    keep_backups: int = Field(default=14, ge=1)
    """How many backups are kept."""

    @field_validator("backup_at")
    @classmethod
    def _is_cron(cls, value: str) -> str:
        try:
            Schedule("nightly backup", BACKUP_JOB, cron=value).validate()
        except JobError as error:
            raise ValueError(f'should be a cron expression such as "0 3 * * *" ({error.what})') from None
        return value


class BackupTaken(Payload, kind="backup_taken"):
    """A backup of the database was written."""

    file: str
    """Its name in the folder of backups."""
    bytes: int
    """Its size."""


class BackupTaker:
    """Takes backups, by a nightly job or on request, and removes old ones."""

    def __init__(self, paths: Paths, settings: StorageSettings, clock: Clock) -> None:
        self._paths = paths
        self._settings = settings
        self._clock = clock

    @property
    def schedule(self) -> Schedule:
        return Schedule("nightly backup", BACKUP_JOB, cron=self._settings.backup_at, zone=get_localzone_name() or "UTC")

    async def run_job(self, _: Job) -> JobResult:
        path = await asyncio.to_thread(self.take)
        return JobResult([NewEvent("instance", BackupTaken(file=path.name, bytes=path.stat().st_size))])

    def take(self) -> Path:
        path = take_backup(self._paths.database, self._paths.backups / backup_name(self._clock.now()))
        for old in list_backups(self._paths.backups)[self._settings.keep_backups :]:
            old.unlink(missing_ok=True)
        _log.info("backup taken", file=path.name)
        return path


def backup_name(moment: datetime) -> str:
    return f"coterie-{moment:%Y%m%dT%H%M%S%f}.db"


def list_backups(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob("coterie-*.db"), reverse=True)


def database_copies(paths: Paths) -> list[Path]:
    """Every copy of the database in the data folder: backups, unfinished ones, and databases replaced by a restore."""
    replaced = paths.database.parent.glob(f"{paths.database.name}.before-restore-*")
    unfinished = paths.backups.glob("*.partial")
    return [*list_backups(paths.backups), *sorted(replaced), *sorted(unfinished)]


@dataclass(frozen=True)
class StoredCopy:
    file: str
    bytes: int
    taken: datetime


@dataclass(frozen=True)
class RestoreResult:
    """The outcome of the last request to restore a backup."""

    what: str
    detail: str
    ok: bool


class BackupService:
    """Lists backups and snapshots, takes a backup, and accepts a request to restore one at the next restart."""

    def __init__(self, paths: Paths, store: Store, backups: BackupTaker) -> None:
        self._paths = paths
        self._store = store
        self._backups = backups
        self.restore_requested: Path | None = None
        """The backup that replaces the database when the server next stops."""
        self.last_restore: RestoreResult | None = None

    @property
    def folder(self) -> Path:
        return self._paths.backups

    def backups(self) -> list[StoredCopy]:
        """Newest first."""
        return _stored_copies(list_backups(self._paths.backups))

    def snapshots(self) -> list[StoredCopy]:
        """The periodic snapshots, newest first. The next start begins from the newest that is usable."""
        return _stored_copies(sorted(self._paths.periodic_snapshots.glob("*.snapshot"), reverse=True))

    async def request_restore(self, file: str) -> None:
        """Check a backup and remember that it is to be restored. Nothing is replaced yet."""
        path = next((path for path in list_backups(self._paths.backups) if path.name == file), None)
        if path is None:
            raise NoSuchBackup(f"There is no backup {file}.", "Choose one of those that are listed.")
        try:
            problems = (await asyncio.to_thread(check_backup, path, self._store.projections)).problems
        except CoterieError as error:
            problems = [error.what]
        if problems:
            raise DamagedBackup(f"{file} is damaged: {' '.join(problems)}", "Choose another one; nothing was changed.")
        self.restore_requested = path

    async def take_backup(self) -> StoredCopy:
        path = await asyncio.to_thread(self._backups.take)
        (taken,) = _stored_copies([path])
        await self._store.append([NewEvent("instance", BackupTaken(file=taken.file, bytes=taken.bytes), "person")])
        return taken


def _stored_copies(paths: Iterable[Path]) -> list[StoredCopy]:
    copies = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue  # pruned since it was listed
        copies.append(StoredCopy(path.name, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC)))
    return copies


def restore_backup(
    paths: Paths,
    backup: Path,
    now: datetime,
    projections: Sequence[Projection],
    *,
    confirm: Callable[[], object] = lambda: None,
    progress: StepProgress = lambda _what, _done, _total: None,
) -> Path | None:
    """Replace the database, which no process may have open. Returns the path of the replaced one, if there was one."""
    replaced = restore(backup, paths.database, now, projections, confirm, progress)
    for folder in (paths.periodic_snapshots, paths.rewind_snapshots):
        prune_snapshots(folder, keep=0)  # they may hold events that the restored log does not have
    return replaced


class SnapshotTaker:
    """Takes snapshots after a number of events or minutes, and before every rewind."""

    def __init__(self, store: Store, paths: Paths, settings: StorageSettings, clock: Clock) -> None:
        self._store = store
        self._paths = paths
        self._settings = settings
        self._clock = clock
        self._last_id = store.reader.last_id()
        self._last_at = clock.monotonic()
        self._paused_until = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                if self.is_due():
                    await self.take()
            except CoterieError as error:
                _log.warning("snapshot postponed", error=str(error))
            try:
                await asyncio.wait_for(stop.wait(), _CHECK_INTERVAL_S)
            except TimeoutError:
                continue

    def is_due(self) -> bool:
        new_events = self._store.reader.last_id() - self._last_id
        now = self._clock.monotonic()
        if not new_events or now < self._paused_until:
            return False
        minutes = (now - self._last_at) / 60
        return new_events >= self._settings.snapshot_every_events or minutes >= self._settings.snapshot_every_minutes

    async def take(self) -> Path | None:
        """Take a periodic snapshot and prune old ones. A failure is logged and changes nothing."""
        path = self._paths.periodic_snapshots / snapshot_name(self._clock.now())
        started = self._clock.monotonic()
        self._last_id, self._last_at = self._store.reader.last_id(), started
        try:
            await asyncio.to_thread(write_snapshot, self._store.reader.connections, self._store.projections, path)
            prune_snapshots(self._paths.periodic_snapshots, self._settings.keep_snapshots)
        except (CoterieError, OSError) as error:
            _log.warning("snapshot failed", error=str(error))
            return None
        finally:
            self._paused_until = self._clock.monotonic() + _PAUSE_FACTOR * (self._clock.monotonic() - started)
        return path

    async def before_rewind(self) -> Path:
        """Snapshot the projections as they are before a rewind."""
        path = self._paths.rewind_snapshots / snapshot_name(self._clock.now())
        await asyncio.to_thread(write_snapshot, self._store.reader.connections, self._store.projections, path)
        prune_snapshots(self._paths.rewind_snapshots, self._settings.keep_snapshots)
        return path


def snapshot_name(moment: datetime) -> str:
    return f"{moment:%Y%m%dT%H%M%S%f}.snapshot"


def log_snapshot_warning(text: str) -> None:
    _log.warning("snapshot skipped", why=text)
