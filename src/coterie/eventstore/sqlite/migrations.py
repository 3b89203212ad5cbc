"""Migrations of the event store's own tables: ordered functions, each run once and recorded.

Projections are not migrated: one whose schema changed is rebuilt from the log. Payloads are converted by upcasters when
they are read; those with a rewriter are replaced by a smaller form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from itertools import groupby

import apsw

from coterie.base.clock import to_micros
from coterie.base.errors import SchemaTooNew, StorageError
from coterie.eventstore.events import StoredPayload, declared_rewriters, encode
from coterie.eventstore.sqlite.compression import compress
from coterie.eventstore.sqlite.database import Rows
from coterie.eventstore.sqlite.interning import SharedTexts
from coterie.eventstore.sqlite.jobs import forget_finished_jobs
from coterie.eventstore.sqlite.lineage import StreamLineage

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


def m004_compact_log(rows: Rows) -> None:
    """Refer to streams, actors, turns and kinds by number, compress payloads, and share texts between them.

    The view `event` shows the log as before.
    """
    rows.run(
        """
        ALTER TABLE event RENAME TO old_event;
        ALTER TABLE event_kind RENAME TO old_kind;
        CREATE TABLE name(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
        CREATE TABLE event_kind(
            id INTEGER PRIMARY KEY, kind TEXT NOT NULL, version INTEGER NOT NULL, UNIQUE(kind, version));
        CREATE TABLE log(
            id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, seq INTEGER NOT NULL, kind INTEGER NOT NULL,
            payload BLOB NOT NULL, ts INTEGER NOT NULL, actor INTEGER NOT NULL, cause INTEGER, key TEXT, turn INTEGER);
        CREATE TABLE shared_text(id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, content BLOB NOT NULL);
        CREATE INDEX shared_text_hash ON shared_text(hash);
        INSERT INTO event_kind(kind, version)
            SELECT kind, version FROM old_kind UNION SELECT kind, version FROM old_event;
        INSERT INTO name(name) SELECT name FROM (
            SELECT stream AS name, min(id) AS first FROM old_event GROUP BY stream
            UNION ALL SELECT actor, min(id) FROM old_event GROUP BY actor
            UNION ALL SELECT turn, min(id) FROM old_event WHERE turn IS NOT NULL GROUP BY turn)
            GROUP BY name ORDER BY min(first);
        """
    )
    after = 0
    sql = (
        "SELECT e.id, s.id, e.seq, k.id, e.payload, e.ts, a.id, e.cause, e.key, t.id FROM old_event e"
        " JOIN name s ON s.name = e.stream JOIN name a ON a.name = e.actor LEFT JOIN name t ON t.name = e.turn"
        " JOIN event_kind k ON k.kind = e.kind AND k.version = e.version WHERE e.id > ? ORDER BY e.id LIMIT ?"
    )
    while page := rows.all(sql, (after, _PAGE)):
        rows.many(
            "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ((*row[:4], compress(row[4]), *row[5:]) for row in page),
        )
        after = page[-1][0]
    rows.run(
        """
        DROP TABLE old_event;
        DROP TABLE old_kind;
        CREATE UNIQUE INDEX log_stream ON log(stream, seq);
        CREATE UNIQUE INDEX log_key ON log(key) WHERE key IS NOT NULL;
        CREATE INDEX log_turn ON log(turn) WHERE turn IS NOT NULL;
        CREATE VIEW event AS
            SELECT log.id, stream.name AS stream, log.seq, event_kind.kind, event_kind.version,
                json_payload(log.payload) AS payload, log.ts, actor.name AS actor, log.cause, log.key,
                turn.name AS turn
            FROM log JOIN name AS stream ON stream.id = log.stream JOIN event_kind ON event_kind.id = log.kind
                JOIN name AS actor ON actor.id = log.actor LEFT JOIN name AS turn ON turn.id = log.turn;
        """
    )


def m005_finished_jobs(rows: Rows) -> None:
    """Keep only the hashed keys of jobs that finished long ago, so that they are not enqueued again."""
    rows.run("CREATE TABLE finished_job(key INTEGER PRIMARY KEY)")
    forget_finished_jobs(rows)


MIGRATIONS: tuple[Migration, ...] = (m001_log, m002_jobs, m003_table_names, m004_compact_log, m005_finished_jobs)
_PAGE = 2_000


_MIGRATION_TABLE = "CREATE TABLE IF NOT EXISTS migration(name TEXT PRIMARY KEY, applied INTEGER NOT NULL) WITHOUT ROWID"


def create_tables(rows: Rows, names: Collection[str]) -> None:
    """Create the tables that a database has after these migrations, in an empty one."""
    rows.run(_MIGRATION_TABLE)
    for migration in MIGRATIONS:
        if migration.__name__ in names:
            migration(rows)


def migrate(rows: Rows, now: datetime, migrations: tuple[Migration, ...] = MIGRATIONS) -> list[str]:
    """Run the missing migrations in one transaction. Returns their names."""
    rows.run("BEGIN IMMEDIATE")
    try:
        rows.run(_MIGRATION_TABLE)
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


def creation(rows: Rows) -> int | None:
    """When the database was created, which tells databases apart; copies of it are the same database."""
    found = rows.one("SELECT min(applied) FROM migration")
    return found[0] if found is not None else None


def rewrite_payloads(rows: Rows) -> int:
    """Replace the payloads that have a rewriter, in one transaction. Returns how many events were rewritten."""
    stored = {(kind, version) for kind, version in rows.run("SELECT kind, version FROM event_kind")}
    pending = {pair: rewrite for pair, rewrite in declared_rewriters().items() if pair in stored}
    if not pending:
        return 0
    rewritten = 0
    lineage, texts = StreamLineage(rows), SharedTexts(rows)
    rows.run("BEGIN IMMEDIATE")
    try:
        for (kind, version), rewrite in pending.items():
            events = rows.all(
                "SELECT coalesce(root, event.stream), id FROM event LEFT JOIN stream_lineage USING (stream)"
                " WHERE kind = ? AND version = ? ORDER BY 1, id",
                (kind, version),
            )
            for _, group in groupby(events, key=lambda row: row[0]):
                ids = [event for _, event in group]
                for event, payload in rewrite(lambda ids=ids: _stored_payloads(rows, ids), lineage.owner):  # type: ignore[misc]
                    shared = payload.share_texts(texts.number)
                    rows.run("INSERT OR IGNORE INTO event_kind(kind, version) VALUES (?, ?)", (kind, payload.version))
                    rows.run(
                        "UPDATE log SET payload = ?, kind = (SELECT id FROM event_kind WHERE kind = ? AND version = ?)"
                        " WHERE id = ?",
                        (compress(encode(shared)), kind, payload.version, event),
                    )
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
