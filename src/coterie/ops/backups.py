"""Backups: nightly by a durable timer (S28), and by hand."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

from tzlocal import get_localzone_name

from coterie.base.clock import Clock
from coterie.base.home import Paths
from coterie.base.logging import get_logger
from coterie.kernel import Job, Payload, Schedule
from coterie.kernel.backup import take_backup
from coterie.kernel.events import NewEvent
from coterie.kernel.worker import JobResult
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
