"""Migrations of the event store's own tables: ordered functions, each run once and recorded.

Projections are not migrated: one whose schema changed is rebuilt from the log. Payloads are converted by upcasters when
they are read; those with a rewriter are replaced by a smaller form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import groupby

import apsw

from coterie.base.clock import to_micros
from coterie.base.errors import SchemaTooNew, StorageError
from coterie.eventstore.events import StoredPayload, declared_rewriters, encode
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


def rewrite_payloads(rows: Rows) -> int:
    """Replace the payloads that have a rewriter, in one transaction. Returns how many events were rewritten."""
    stored = set(rows.all("SELECT kind, version FROM event_kind"))
    pending = {pair: rewrite for pair, rewrite in declared_rewriters().items() if pair in stored}
    if not pending:
        return 0
    rewritten = 0
    rows.run("BEGIN IMMEDIATE")
    try:
        for (kind, version), rewrite in pending.items():
            events = rows.all(
                "SELECT coalesce(root, event.stream), id FROM event LEFT JOIN stream_lineage USING (stream)"
                " WHERE kind = ? AND version = ? ORDER BY 1, event.stream, seq",
                (kind, version),
            )
            for _, group in groupby(events, key=lambda row: row[0]):
                ids = [event for _, event in group]
                for event, payload in rewrite(lambda ids=ids: _stored_payloads(rows, ids)):  # type: ignore[misc]
                    rows.run(
                        "UPDATE event SET payload = ?, version = ? WHERE id = ?",
                        (encode(payload), payload.version, event),
                    )
                    rows.run("INSERT OR IGNORE INTO event_kind VALUES (?, ?)", (kind, payload.version))
                    rewritten += 1
            rows.run("DELETE FROM event_kind WHERE kind = ? AND version = ?", (kind, version))
    except BaseException:
        rows.run("ROLLBACK")
        raise
    rows.run("COMMIT")
    return rewritten


def _stored_payloads(rows: Rows, ids: list[int]) -> Iterator[StoredPayload]:
    for event in ids:
        ((stream, seq, payload),) = rows.all("SELECT stream, seq, payload FROM event WHERE id = ?", (event,))
        yield StoredPayload(event, stream, seq, json.loads(payload))


def release_free_pages(rows: Rows) -> None:
    """Shrink the file if a quarter of it is free. It needs space for a copy; without it the file stays as it is."""
    ((pages,),) = rows.all("PRAGMA page_count")
    ((free,),) = rows.all("PRAGMA freelist_count")
    if free * 4 > pages:
        try:
            rows.run("VACUUM")
        except (apsw.FullError, apsw.IOError):
            return
