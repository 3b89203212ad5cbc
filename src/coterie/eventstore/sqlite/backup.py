"""Copies of the whole database: taken while it is in use, and checked before they are restored."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import apsw

from coterie.base.errors import BackupError, CoterieError
from coterie.base.paths import publish_file
from coterie.eventstore.projection import Projection
from coterie.eventstore.sqlite.database import Row, Rows, connect, translate_errors
from coterie.eventstore.sqlite.file_guard import copy_database
from coterie.eventstore.sqlite.migrations import create_tables
from coterie.eventstore.sqlite.reader import LogReader
from coterie.eventstore.sqlite.replay import UndoJournal
from coterie.eventstore.sqlite.verify import VerifyReport, verify

_STEPS_BEFORE_PROJECTIONS = 2
"""Steps of a check before the projections."""

StepProgress = Callable[[str, int, int], None]
"""Called with the current step, how much of it is done, and its total."""


def _no_progress(_what: str, _done: int, _total: int) -> None:
    pass


def take_backup(database: Path, target: Path) -> Path:
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
            copy_database(source, partial)
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
            tables = {name for (name,) in reader.query("SELECT name FROM sqlite_schema")}
            if not {"event", "migration"} <= tables:
                raise BackupError(f"{backup} is not a Coterie backup.", "Choose a file from the folder `backups`.")
            fingerprints = reader.projection_fingerprints()
            if problems := _schema_problems(reader.query, projections, fingerprints, reader.migrations()):
                return VerifyReport(problems=problems)
            # Projections of another version are rebuilt when the backup is opened, so there is nothing to compare.
            comparable = [item for item in projections if fingerprints.get(item.name) == item.fingerprint]
            step, total = itertools.count(), len(comparable) + _STEPS_BEFORE_PROJECTIONS
            return verify(reader, comparable, lambda _: progress("Checking the backup", next(step), total))
    finally:
        reader.close()


def _schema_problems(
    query: Callable[[str], list[Row]],
    projections: Sequence[Projection],
    fingerprints: Mapping[str, str],
    migrations: Collection[str],
) -> list[str]:
    """Differences from the schema of a new database of the same version: code in a backup must not run.

    Tables of projections of another version are not known here; they are dropped when the database is opened. Triggers
    and views are in no version.
    """
    expected = _expected_schema(
        [one for one in projections if fingerprints.get(one.name) == one.fingerprint], migrations
    )
    names = {one.name for one in projections}
    complete = bool(projections) and all(fingerprints.get(one.name) == one.fingerprint for one in projections)
    complete = complete and not set(fingerprints) - names
    problems = []
    found = {(kind, name): sql for kind, name, sql in query("SELECT type, name, sql FROM main.sqlite_schema")}
    for (kind, name), sql in found.items():
        if (kind, name) in expected:
            if expected[kind, name] != sql:
                problems.append(f"Its {kind} {name} is not that of this version.")
        elif kind not in ("table", "index") or complete or _is_foreign_module(sql):
            problems.append(f"It has a {kind} {name} that Coterie does not create.")
    problems += [f"Its {kind} {name} is missing." for kind, name in expected.keys() - found.keys()]
    return problems


def _is_foreign_module(sql: str | None) -> bool:
    text = (sql or "").upper()
    return text.startswith("CREATE VIRTUAL") and "USING FTS5" not in text


def _expected_schema(projections: Sequence[Projection], migrations: Collection[str]) -> dict[tuple[str, str], str]:
    connection = apsw.Connection(":memory:")
    try:
        rows = Rows(connection)
        create_tables(rows, migrations)
        for projection in projections:
            rows.run(projection.schema)
            for table in projection.tables if projection.journaled else ():
                UndoJournal(rows, table).create()
            if projection.derived:
                rows.run(projection.derived)
        return {(kind, name): sql for kind, name, sql in rows.all("SELECT type, name, sql FROM sqlite_schema")}
    finally:
        connection.close()
