"""Migrations of the event store's own tables: ordered functions, each run once and recorded.

Projections are not migrated: one whose schema changed is rebuilt from the log.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import apsw

from coterie.base.clock import to_micros
from coterie.base.errors import SchemaTooNew, StorageError
from coterie.eventstore.sqlite.database import Rows

Migration = Callable[[Rows], None]


def m001_log(rows: Rows) -> None:
    rows.run(
        """
        CREATE TABLE event(
            id INTEGER PRIMARY KEY, stream TEXT NOT NULL, seq INTEGER NOT NULL,
            kind TEXT NOT NULL, version INTEGER NOT NULL, payload TEXT NOT NULL, ts INTEGER NOT NULL,
            actor TEXT NOT NULL, cause INTEGER, key TEXT, turn TEXT,
            UNIQUE(stream, seq));
        CREATE UNIQUE INDEX event_key ON event(key) WHERE key IS NOT NULL;
        CREATE INDEX event_turn ON event(turn) WHERE turn IS NOT NULL;
        CREATE TABLE event_kind(kind TEXT, version INTEGER, PRIMARY KEY(kind, version)) WITHOUT ROWID;
        CREATE TABLE line(
            stream TEXT PRIMARY KEY, parent TEXT, at INTEGER, root TEXT NOT NULL, head INTEGER NOT NULL) WITHOUT ROWID;
        CREATE TABLE counting(
            stream TEXT NOT NULL, seq INTEGER NOT NULL, ranges TEXT NOT NULL, PRIMARY KEY(stream, seq)) WITHOUT ROWID;
        CREATE TABLE view(name TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, position INTEGER NOT NULL,
            floor INTEGER NOT NULL) WITHOUT ROWID;
        """
    )


def m002_jobs(rows: Rows) -> None:
    rows.run(
        """
        CREATE TABLE job(
            id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL UNIQUE, payload TEXT NOT NULL,
            state TEXT NOT NULL CHECK(state IN ('ready', 'leased', 'done', 'dead', 'withdrawn')),
            priority INTEGER NOT NULL, run_at INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
            max_attempts INTEGER NOT NULL, lease_until INTEGER, holder TEXT, error TEXT,
            cause INTEGER, created INTEGER NOT NULL, finished INTEGER);
        CREATE INDEX job_due ON job(state, run_at) WHERE state IN ('ready', 'leased');
        CREATE INDEX job_cause ON job(cause) WHERE cause IS NOT NULL;
        CREATE TABLE schedule(
            name TEXT PRIMARY KEY, cron TEXT, every_s REAL, zone TEXT NOT NULL, kind TEXT NOT NULL,
            payload TEXT NOT NULL, next_at INTEGER NOT NULL, last_at INTEGER) WITHOUT ROWID;
        """
    )


def m003_table_names(rows: Rows) -> None:
    """Name the tables after what they hold. `database.alias_old_tables` lets readers open files from before this."""
    rows.run(
        """
        ALTER TABLE line RENAME TO stream_lineage;
        ALTER TABLE counting RENAME TO active_ranges;
        ALTER TABLE view RENAME TO projection;
        """
    )


MIGRATIONS: tuple[Migration, ...] = (m001_log, m002_jobs, m003_table_names)


def migrate(rows: Rows, now: datetime, migrations: tuple[Migration, ...] = MIGRATIONS) -> list[str]:
    """Run the missing migrations in one transaction. Returns their names."""
    rows.run("BEGIN IMMEDIATE")
    try:
        rows.run("CREATE TABLE IF NOT EXISTS migration(name TEXT PRIMARY KEY, applied INTEGER NOT NULL) WITHOUT ROWID")
        applied = {name for (name,) in rows.run("SELECT name FROM migration")}
        names = [migration.__name__ for migration in migrations]
        if newer := sorted(applied - set(names)):
            raise SchemaTooNew(
                f"This database was written by a newer Coterie (it has {', '.join(newer)}).",
                "Upgrade Coterie, or open it with the version that wrote it. Nothing was changed.",
            )
        ran: list[str] = []
        for migration in migrations:
            if migration.__name__ not in applied:
                _run(migration, rows)
                rows.run("INSERT INTO migration VALUES (?, ?)", (migration.__name__, to_micros(now)))
                ran.append(migration.__name__)
    except BaseException:
        rows.run("ROLLBACK")
        raise
    rows.run("COMMIT")
    return ran


def _run(migration: Migration, rows: Rows) -> None:
    try:
        migration(rows)
    except (apsw.FullError, apsw.IOError, apsw.CorruptError):
        raise  # not the migration's fault: translated by the caller
    except Exception as error:
        raise StorageError(
            f"The migration {migration.__name__} failed: {error}.",
            "Nothing was changed. Report this with the line above, and keep using the version you had.",
        ) from error
