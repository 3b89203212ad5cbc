"""Backups of the whole database: taken while it is in use, checked, and restored."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import apsw

from coterie.base.errors import BackupError, CoterieError
from coterie.base.paths import publish_file
from coterie.eventstore.projection import Projection
from coterie.eventstore.sqlite.database import ProcessLock, connect, translate_errors
from coterie.eventstore.sqlite.reader import LogReader
from coterie.eventstore.sqlite.verify import VerifyReport, verify

_PAGES_PER_STEP = 2_000
_STEPS_BEFORE_PROJECTIONS = 2
"""Steps of a check before the projections."""

_CHOOSE_ANOTHER = "Choose another one; the database was not changed."

Progress = Callable[[int, int], None]
StepProgress = Callable[[str, int, int], None]
"""Called with the current step, how much of it is done, and its total."""


def _no_progress(_what: str, _done: int, _total: int) -> None:
    pass


def take_backup(database: Path, target: Path, progress: Progress | None = None) -> Path:
    """Copy a database with SQLite's online backup, as of one moment. The owning process may keep writing."""
    if not database.exists():
        raise BackupError(f"There is no database at {database}.", "Point COTERIE_HOME at your data folder.")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    source = connect(database, writable=False)
    try:
        # An open read transaction fixes the moment; without it every commit would restart the copy.
        source.execute("BEGIN; SELECT count(*) FROM sqlite_schema").fetchall()
        with translate_errors(partial):
            copy = apsw.Connection(str(partial))
            try:
                with copy.backup("main", source, "main") as backup:
                    while not backup.done:
                        backup.step(_PAGES_PER_STEP)
                        if progress:
                            progress(backup.page_count - backup.remaining, backup.page_count)
                copy.execute("PRAGMA journal_mode = DELETE").fetchall()
            finally:
                copy.close()
            partial.chmod(0o600)
            publish_file(partial, target)
    except (OSError, CoterieError) as error:
        partial.unlink(missing_ok=True)
        reason = error.what if isinstance(error, CoterieError) else f"{error}."
        raise BackupError(
            f"The backup could not be taken: {reason}", "Free some space or check permissions."
        ) from error
    finally:
        source.close()
    return target


def check_backup(
    backup: Path, projections: Sequence[Projection] = (), progress: StepProgress = _no_progress
) -> VerifyReport:
    """Check the file, the log, and the projections that this version can compare."""
    if not backup.is_file():
        raise BackupError(f"There is no backup at {backup}.", "List them in the folder `backups`.")
    reader = LogReader(backup)
    try:
        with translate_errors(backup):
            tables = {name for (name,) in reader.query("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            if not {"event", "migration"} <= tables:
                raise BackupError(f"{backup} is not a Coterie backup.", "Choose a file from the folder `backups`.")
            fingerprints = reader.projection_fingerprints()
            # Projections of another version are rebuilt when the backup is opened, so there is nothing to compare.
            comparable = [item for item in projections if fingerprints.get(item.name) == item.fingerprint]
            step, total = itertools.count(), len(comparable) + _STEPS_BEFORE_PROJECTIONS
            return verify(reader, comparable, lambda _: progress("Checking the backup", next(step), total))
    finally:
        reader.close()


def restore(
    backup: Path,
    database: Path,
    now: datetime,
    projections: Sequence[Projection] = (),
    confirm: Callable[[], object] = lambda: None,
    progress: StepProgress = _no_progress,
) -> Path | None:
    """Check a backup and replace the database with it. Returns the path of the replaced one, if there was one.

    `confirm` is called just before an existing database is replaced; it raises to cancel.
    """
    lock = ProcessLock(database)
    lock.acquire()
    try:
        try:
            report = check_backup(backup, projections, progress)
        except BackupError:
            raise
        except CoterieError as error:
            raise BackupError(f"{backup} is damaged: {error.what}", _CHOOSE_ANOTHER) from error
        if not report.clean:
            raise BackupError(f"{backup} is damaged: {' '.join(report.problems)}", _CHOOSE_ANOTHER)
        if database.exists():
            confirm()
        partial = database.with_name(database.name + ".restoring")
        partial.unlink(missing_ok=True)
        partial.write_bytes(b"")
        partial.chmod(0o600)
        _copy_file(backup, partial, progress)
        replaced: Path | None = None
        if database.exists():
            replaced = database.with_name(f"{database.name}.before-restore-{now:%Y%m%dT%H%M%S%f}")
            _move_aside(database, replaced)
        publish_file(partial, database)
        return replaced
    finally:
        lock.release()


def _move_aside(database: Path, target: Path) -> None:
    """Keep the database under another name, if possible by a hard link, so that a crash leaves it in place."""
    journal, shared = (database.with_name(database.name + suffix) for suffix in ("-wal", "-shm"))
    if not journal.exists() or not journal.stat().st_size:  # everything is checkpointed into the database
        with suppress(OSError):  # not every file system has hard links
            target.hardlink_to(database)
            journal.unlink(missing_ok=True)
            shared.unlink(missing_ok=True)
            return
    for file in (database, journal, shared):
        if file.exists():
            file.replace(target.with_name(target.name + file.name.removeprefix(database.name)))


def _copy_file(source: Path, target: Path, progress: StepProgress) -> None:
    size, done = source.stat().st_size, 0
    with source.open("rb") as reader, target.open("wb") as writer:
        while block := reader.read(1 << 20):
            writer.write(block)
            done += len(block)
            progress("Copying the backup", done, size)
