"""Copies of the whole database: taken while it is in use, and checked before they replace anything."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import apsw

from coterie.base.errors import BackupError, CoterieError
from coterie.eventstore.projection import Projection
from coterie.eventstore.sqlite.database import ProcessLock, connect, publish_file, translating_errors
from coterie.eventstore.sqlite.reader import LogReader
from coterie.eventstore.sqlite.verify import VerifyReport, verify

_PAGES_PER_STEP = 2_000
_FILE_AND_LOG = 2
"""Parts of a check, besides the views."""

Progress = Callable[[int, int], None]
StepProgress = Callable[[str, int, int], None]
"""Called with what is being done now, how much of it is, and of how much."""


def _quietly(_what: str, _done: int, _most: int) -> None:
    pass


def take_backup(database: Path, target: Path, progress: Progress | None = None) -> Path:
    """Copy a database with SQLite's online backup. The owner may go on writing; the copy is one moment of it."""
    if not database.exists():
        raise BackupError(f"There is no database at {database}.", "Point COTERIE_HOME at your data folder.")
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(target.name + ".partial")
    draft.unlink(missing_ok=True)
    source = connect(database, writable=False)
    try:
        # An open read pins the moment; without it every commit of the owner would start the copy over.
        source.execute("BEGIN; SELECT count(*) FROM sqlite_schema").fetchall()
        with translating_errors(draft):
            copy = apsw.Connection(str(draft))
            try:
                with copy.backup("main", source, "main") as backup:
                    while not backup.done:
                        backup.step(_PAGES_PER_STEP)
                        if progress:
                            progress(backup.page_count - backup.remaining, backup.page_count)
                copy.execute("PRAGMA journal_mode = DELETE").fetchall()
            finally:
                copy.close()
            draft.chmod(0o600)
            publish_file(draft, target)
    except (OSError, CoterieError) as error:
        draft.unlink(missing_ok=True)
        told = error.what if isinstance(error, CoterieError) else f"{error}."
        raise BackupError(f"The backup could not be taken: {told}", "Free some space or check permissions.") from error
    finally:
        source.close()
    return target


def check_backup(
    backup: Path, projections: Sequence[Projection] = (), progress: StepProgress = _quietly
) -> VerifyReport:
    """Whether a copy would open and hold: the file, the log, and the views this version knows."""
    if not backup.is_file():
        raise BackupError(f"There is no backup at {backup}.", "List them in the folder `backups`.")
    reader = LogReader(backup)
    try:
        with translating_errors(backup):
            tables = {name for (name,) in reader.query("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            if not {"event", "migration"} <= tables:
                raise BackupError(f"{backup} is not a Coterie backup.", "Choose a file from the folder `backups`.")
            known = reader.projection_fingerprints()
            # A view that this version folds differently is rebuilt when the copy is opened: nothing to hold it to.
            held = [view for view in projections if known.get(view.name) == view.fingerprint]
            parts = itertools.count()
            return verify(reader, held, lambda _: progress("Checking the copy", next(parts), len(held) + _FILE_AND_LOG))
    finally:
        reader.close()


def restore(
    backup: Path,
    database: Path,
    now: datetime,
    projections: Sequence[Projection] = (),
    confirm: Callable[[], object] = lambda: None,
    progress: StepProgress = _quietly,
) -> Path | None:
    """Put a checked copy in the place of the database. Returns where the replaced one is kept, if there was one.

    `ask` is called when nothing is left but to replace what is there; it raises to leave everything as it is.
    """
    lock = ProcessLock(database)
    lock.acquire()
    try:
        try:
            findings = check_backup(backup, projections, progress)
        except BackupError:
            raise
        except CoterieError as error:
            raise BackupError(f"{backup} is not sound: {error.what}", _UNTOUCHED) from error
        if not findings.clean:
            raise BackupError(f"{backup} is not sound: {' '.join(findings.problems)}", _UNTOUCHED)
        if database.exists():
            confirm()
        draft = database.with_name(database.name + ".restoring")
        draft.unlink(missing_ok=True)
        draft.write_bytes(b"")
        draft.chmod(0o600)
        _copy(backup, draft, progress)
        kept: Path | None = None
        if database.exists():
            kept = database.with_name(f"{database.name}.before-restore-{now:%Y%m%dT%H%M%S%f}")
            _put_aside(database, kept)
        publish_file(draft, database)
        return kept
    finally:
        lock.release()


_UNTOUCHED = "Choose another one; the database was not touched."


def _put_aside(database: Path, kept: Path) -> None:
    """As a rule the database keeps its name until the copy takes it: whoever is killed in between still has one."""
    journal, shared = (database.with_name(database.name + suffix) for suffix in ("-wal", "-shm"))
    if not journal.exists() or not journal.stat().st_size:  # all that was written is in the database itself
        with suppress(OSError):  # not every file system lets a file have two names
            kept.hardlink_to(database)
            journal.unlink(missing_ok=True)
            shared.unlink(missing_ok=True)
            return
    for part in (database, journal, shared):
        if part.exists():
            part.replace(kept.with_name(kept.name + part.name.removeprefix(database.name)))


def _copy(source: Path, target: Path, tell: StepProgress) -> None:
    size, done = source.stat().st_size, 0
    with source.open("rb") as reading, target.open("wb") as writing:
        while block := reading.read(1 << 20):
            writing.write(block)
            done += len(block)
            tell("Putting it in place", done, size)
