"""Backups of the whole instance and snapshots of its projections: when they are taken, listed and pruned.

A backup holds the database, the documents with their Git repositories, the files of the characters, the keys of the
messengers, and the settings without secrets. It is taken while the server runs: the database first, then the rest, so
that what the database refers to is there.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from pathlib import Path

from pydantic import Field, field_validator
from tzlocal import get_localzone_name

from coterie import __version__
from coterie.base.clock import Clock
from coterie.base.config import PageSetting, Section
from coterie.base.errors import BackupError, CoterieError, JobError, StorageError
from coterie.base.logging import get_logger
from coterie.base.paths import Paths, publish_file
from coterie.eventstore import (
    Job,
    JobResult,
    LogReader,
    NewEvent,
    Payload,
    Projection,
    Schedule,
    StepProgress,
    Store,
    check_backup,
    prune_snapshots,
    rescued_databases,
    take_backup,
    write_snapshot,
)
from coterie.ops.archive import (
    FORMAT,
    Adopted,
    ArchiveWriter,
    Manifest,
    extract_archive,
    is_archive,
    read_manifest,
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

    snapshot_every_events: PageSetting[int] = Field(default=100, ge=1)
    """A snapshot is taken after this many events."""
    snapshot_every_minutes: PageSetting[float] = Field(default=30.0, gt=0)
    """… or after this many minutes, if there were new events."""
    keep_snapshots: PageSetting[int] = Field(default=5, ge=1)
    """How many snapshots are kept."""
    backup_at: PageSetting[str] = Field(default="0 3 * * *")
    """When the nightly backup is taken: a cron expression, in this machine's time zone."""
    keep_backups: PageSetting[int] = Field(default=14, ge=1)
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


WITH_DATABASES = ("mem0",)
"""Folders with SQLite databases of other programs, which change while the server runs."""
CONTENT = ("drafts", "workspaces", "shared", "configs", *WITH_DATABASES)
"""Folders of the instance that belong to the database: a restore replaces them together with it."""
CREDENTIALS = ("config.toml", "secrets.json", "crowd.key", "agents.yaml", "matrix")
"""Settings and keys of the instance: a restore writes those that are missing, and keeps those that are there."""
DATABASE = "coterie.db"
ADOPTED = "adopted"
"""The folder in a backup with copies of repositories that are outside the data folder."""
NOT_BACKED_UP = (
    "backups",
    "snapshots",
    "*.lock",
    "*.before-restore-*",
    "rescued-*",
    ".restoring",
    "restore.json",
    ".*",
)
"""What is no part of an instance: copies of it, and files of running processes."""
_SQLITE = b"SQLite format 3\0"
_JOURNALS = ("-wal", "-shm", "-journal")
_STALE_AFTER = timedelta(days=1)


@dataclass(frozen=True)
class BackupSources:
    """What other packages contribute to a backup."""

    settings: Callable[[Path], tuple[bytes, list[str]]] = lambda file: (file.read_bytes(), [])
    """The text of a settings file without secrets, and the keys that were removed."""
    adopted: Callable[[Path, Path], list[Adopted]] = lambda _database, _target: []
    """Copies the repositories outside the data folder that a database refers to into a folder."""


class BackupTaker:
    """Takes backups, by a nightly job or on request, and removes old ones."""

    def __init__(
        self, paths: Paths, settings: StorageSettings, clock: Clock, sources: BackupSources | None = None
    ) -> None:
        self._paths = paths
        self._settings = settings
        self._clock = clock
        self._sources = sources or BackupSources()

    @property
    def schedule(self) -> Schedule:
        return Schedule("nightly backup", BACKUP_JOB, cron=self._settings.backup_at, zone=get_localzone_name() or "UTC")

    async def run_job(self, _: Job) -> JobResult:
        path = await asyncio.to_thread(self.take)
        return JobResult([NewEvent("instance", BackupTaken(file=path.name, bytes=path.stat().st_size))])

    def take(self) -> Path:
        path = self.write(self._paths.backups / backup_name(self._clock.now()))
        for old in list_backups(self._paths.backups)[self._settings.keep_backups :]:
            old.unlink(missing_ok=True)
        _remove_stale(self._paths.backups, self._clock.now() - _STALE_AFTER)
        _log.info("backup taken", file=path.name)
        return path

    def write(self, target: Path) -> Path:
        """Write a backup to a file. It appears when it is complete."""
        if not self._paths.database.exists():
            raise BackupError(
                f"There is no database at {self._paths.database}.", "Point COTERIE_HOME at your data folder."
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + ".partial")
        partial.unlink(missing_ok=True)
        try:
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".backup-") as scratch:
                self._write_archive(partial, Path(scratch))
                publish_file(partial, target)
        except (OSError, zipfile.BadZipFile, zipfile.LargeZipFile) as error:
            partial.unlink(missing_ok=True)
            fix = "Free some space or check permissions."
            raise BackupError(f"The backup could not be taken: {error}.", fix) from error
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        return target

    def _write_archive(self, partial: Path, scratch: Path) -> None:
        root = self._paths.root
        archive = ArchiveWriter(partial)
        try:
            database = take_backup(self._paths.database, scratch / DATABASE)
            archive.add_file(DATABASE, database)
            adopted = self._sources.adopted(database, scratch / ADOPTED)
            database.unlink()
            for name in CONTENT:
                if name in WITH_DATABASES:
                    _add_with_databases(archive, name, root / name, scratch)
                else:
                    archive.add_folder(name, root / name)
            archive.add_folder(ADOPTED, scratch / ADOPTED)
            left_out = self._add_credentials(archive, scratch)
            left_out += [f"file: {entry.name}" for entry in unknown_entries(self._paths)]
            manifest = Manifest(
                format=FORMAT,
                coterie=__version__,
                taken=self._clock.now().isoformat(),
                home=str(root.resolve()),
                members=tuple(archive.members),
                adopted=tuple(adopted),
                left_out=tuple(left_out),
            )
            archive.finish(manifest)
        finally:
            archive.close()

    def _add_credentials(self, archive: ArchiveWriter, scratch: Path) -> list[str]:
        """Add settings and keys. Returns the settings that were left out because they are secret."""
        root = self._paths.root
        removed: list[str] = []
        for name in CREDENTIALS:
            path = self._paths.config if name == "config.toml" else root / name
            if path.is_symlink() or not path.exists():
                continue
            if name == "config.toml":
                text, removed = self._sources.settings(path)
                archive.add_bytes(name, text, path.stat().st_mode & 0o777)
            elif path.is_file():
                archive.add_file(name, path)
            else:
                _add_with_databases(archive, name, path, scratch)
        return [f"setting: {key}" for key in removed]


def _add_with_databases(archive: ArchiveWriter, name: str, folder: Path, scratch: Path) -> None:
    """Add a folder whose SQLite databases may be in use, such as the keys of a messenger: they are copied by SQLite."""
    if folder.is_symlink():
        return
    databases = [file for file in folder.rglob("*") if not file.is_symlink() and file.is_file() and _is_sqlite(file)]
    for number, file in enumerate(databases):
        copy = take_backup(file, scratch / f"{number}-{file.name}")
        archive.add_file(f"{name}/{file.relative_to(folder).as_posix()}", copy)
        copy.unlink()
    copied = {f"{name}/{file.relative_to(folder).as_posix()}" for file in databases}
    journals = {f"{path}{suffix}" for path in copied for suffix in _JOURNALS}
    archive.add_folder(name, folder, lambda inside: inside in copied or inside in journals)


def _is_sqlite(file: Path) -> bool:
    try:
        with file.open("rb") as content:
            return content.read(len(_SQLITE)) == _SQLITE
    except OSError:  # removed since it was listed
        return False


def backup_name(moment: datetime) -> str:
    return f"coterie-{moment:%Y%m%dT%H%M%S%f}.zip"


def list_backups(folder: Path) -> list[Path]:
    """Newest first. Backups of earlier versions are databases."""
    found = [path for suffix in ("zip", "db") for path in folder.glob(f"coterie-*.{suffix}")]
    return sorted(found, key=lambda path: path.stem, reverse=True)


def unknown_entries(paths: Paths) -> list[Path]:
    """What is in the data folder and is neither part of the instance nor known to be none."""
    known = (*CONTENT, *CREDENTIALS, *NOT_BACKED_UP, f"{paths.database.name}*", paths.config.name)
    if not paths.root.is_dir():
        return []
    return sorted(path for path in paths.root.iterdir() if not any(fnmatch(path.name, one) for one in known))


def _remove_stale(folder: Path, before: datetime) -> None:
    """Remove what a backup left that was killed."""
    for path in [*folder.glob("*.partial"), *folder.glob(".backup-*")]:
        try:
            if path.stat().st_mtime < before.timestamp():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        except OSError as error:
            _log.warning("an unfinished backup was not removed", file=path.name, error=str(error))


def database_copies(paths: Paths) -> list[Path]:
    """Every copy of the database in the data folder: backups, unfinished ones, and databases replaced by a restore."""
    folder = paths.database.parent
    replaced = folder.glob(f"{paths.database.name}.before-restore-*")
    unfinished = [*paths.backups.glob("*.partial"), *folder.glob("rescued-*.partial")]
    return [*list_backups(paths.backups), *sorted(replaced), *rescued_databases(folder), *sorted(unfinished)]


def remains_of_instance(paths: Paths) -> list[str]:
    """What shows that the data folder held an instance: for each kind, how many and where."""
    kinds = {
        "rescued database": rescued_databases(paths.database.parent),
        "backup": list_backups(paths.backups),
        "replaced database": sorted(paths.database.parent.glob(f"{paths.database.name}.before-restore-*")),
        "snapshot": sorted((paths.root / "snapshots").rglob("*.snapshot")),
        "workspace": sorted(path for name in ("workspaces", "drafts") for path in (paths.root / name).glob("*")),
    }
    return [f"{len(found)} {kind}{'s' if len(found) > 1 else ''}" for kind, found in kinds.items() if found]


class DatabaseMissing(StorageError):
    """The data folder held an instance, but its database is gone."""


def check_database_present(paths: Paths) -> None:
    """Raise if a new, empty database would take the place of one that was lost, or hide one that was rescued."""
    rescued = rescued_databases(paths.database.parent)
    empty = not paths.database.exists() or not paths.database.stat().st_size
    if not empty:
        _check_rescued(paths, rescued)
        return
    remains = remains_of_instance(paths)
    if not remains:
        return
    source = next(iter([*rescued, *list_backups(paths.backups)]), None)
    restore = f"Restore it: coterie restore {source}" if source else "Put the database back"
    raise DatabaseMissing(
        f"There is no database at {paths.database}, but the data folder has the remains of an instance"
        f" ({', '.join(remains)}). No empty one was created.",
        f"{restore} — or, to begin with nothing in spite of them: coterie serve --new",
    )


def _check_rescued(paths: Paths, rescued: Sequence[Path]) -> None:
    for file in rescued:
        with closing(LogReader(paths.database)) as current, closing(LogReader(file)) as saved:
            same = current.created() == saved.created()
            missing = saved.last_id() - current.last_id()
        if same and missing > 0:
            raise DatabaseMissing(
                f"{file} was saved when the database was lost, and has {missing} events that the database at"
                f" {paths.database} does not have.",
                f"Restore it: coterie restore {file} — or move it to another folder to continue without them.",
            )


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


@dataclass(frozen=True)
class BackupCheck:
    events: int
    files: int
    left_out: Sequence[str] = ()


def check_backup_file(
    backup: Path, projections: Sequence[Projection] = (), progress: StepProgress = lambda _what, _done, _total: None
) -> BackupCheck:
    """Check every file of a backup, its log, its projections and its schema. `BackupError` if something is wrong."""
    if not is_archive(backup):
        return BackupCheck(check_database(backup, backup, projections, progress), 1)
    manifest = read_manifest(backup)
    with tempfile.TemporaryDirectory(dir=backup.parent, prefix=".backup-") as scratch:
        extract_archive(backup, manifest, Path(scratch), lambda path: path == DATABASE, progress)
        events = check_database(Path(scratch) / DATABASE, backup, projections, progress)
    return BackupCheck(events, sum(member.kind == "file" for member in manifest.members), manifest.left_out)


def check_database(database: Path, backup: Path, projections: Sequence[Projection], progress: StepProgress) -> int:
    """Check the database of a backup. Returns the number of its events."""
    try:
        report = check_backup(database, projections, progress)
    except CoterieError as error:
        raise BackupError(f"{backup} is damaged: {error.what}", "Choose another one; nothing was changed.") from error
    if not report.clean:
        raise BackupError(
            f"{backup} is damaged: {' '.join(report.problems)}", "Choose another one; nothing was changed."
        )
    return report.events


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
            await asyncio.to_thread(check_backup_file, path, self._store.projections)
        except CoterieError as error:
            raise DamagedBackup(error.what, "Choose another one; nothing was changed.") from None
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
