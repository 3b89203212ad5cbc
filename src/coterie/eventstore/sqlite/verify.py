"""Verification: the file is intact, the log has no gaps, and every projection equals a replay of the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from coterie.eventstore.events import COLUMNS, CONTROL_KINDS, Forked, decode, unknown_kinds
from coterie.eventstore.projection import Projection
from coterie.eventstore.sqlite.database import ReadConnections, Rows, translate_errors
from coterie.eventstore.sqlite.interning import check_shared_texts
from coterie.eventstore.sqlite.lineage import StreamLineage
from coterie.eventstore.sqlite.reader import LogReader
from coterie.eventstore.sqlite.replay import ReplayedTables, projection_hash, replayed_tables

_PAGE = 2_000


@dataclass
class VerifyReport:
    events: int = 0
    projections: dict[str, bool] = field(default_factory=dict)
    """Projection → whether its tables equal a replay of the log."""
    problems: list[str] = field(default_factory=list)
    problems_of_log: list[str] = field(default_factory=list)
    """Those of the events themselves; if there are any, projections are not compared."""

    @property
    def clean(self) -> bool:
        return not self.problems


def verify(
    reader: LogReader, projections: Sequence[Projection], progress: Callable[[str], None] = lambda _: None
) -> VerifyReport:
    """Check one consistent state of the database, without disturbing the process that owns it."""
    report = VerifyReport()
    # Its own connection: one that searched before compares full-text tables with what it remembers of them.
    connections = ReadConnections(reader.path)
    try:
        with translate_errors(reader.path), connections.read_transaction() as rows:
            progress("the file")
            for (line,) in rows.run("PRAGMA integrity_check"):
                if line != "ok":
                    report.problems.append(f"The file is damaged: {line}.")
            if report.problems:
                return report
            progress("the log")
            built = [projection for projection in projections if _is_built(rows, projection, report)]
            with replayed_tables(built, rows) as tables:
                _check_log(rows, tables, report)
                if report.problems_of_log:
                    report.problems, report.projections = report.problems_of_log, {}
                    return report
                for projection in built:
                    progress(f"the projection {projection.name}")
                    same = projection_hash(rows, projection) == projection_hash(tables.rows, projection)
                    report.projections[projection.name] = same
                    if not same:
                        report.problems.append(f"The projection {projection.name} differs from a replay of the log.")
    finally:
        connections.close()
    return report


def _check_log(rows: Rows, tables: ReplayedTables, report: VerifyReport) -> None:
    """Check every event, and replay the active ones in the same pass as long as there is no problem."""
    problems = report.problems_of_log
    if unknown := unknown_kinds(rows.all("SELECT kind, version FROM event_kind ORDER BY kind, version")):
        problems.extend(
            f"The log holds {kind} (version {version}), which this version does not know." for kind, version in unknown
        )
        return
    lineage = StreamLineage(rows)
    heads: dict[str, int] = {}
    after = 0
    while page := rows.all(f"SELECT {COLUMNS} FROM event WHERE id > ? ORDER BY id LIMIT {_PAGE}", (after,)):
        for record in page:
            event = decode(record)
            report.events += 1
            first = event.payload.at + 1 if isinstance(event.payload, Forked) else 1
            expected = heads.get(event.stream, first - 1) + 1
            if event.seq != expected and not _is_purged(rows, event.stream, expected, event.seq - 1):
                problems.append(f"{event.stream} jumps from {expected - 1} to {event.seq}.")
            heads[event.stream] = event.seq
            if event.kind in CONTROL_KINDS and not lineage.is_recorded(event):
                problems.append(f"The active events of {event.stream} after {event.seq} differ from the log.")
            if not problems:
                tables.apply(event)
        after = page[-1][0]
    ((stored,),) = rows.all("SELECT count(*) FROM log")
    if stored != report.events:
        problems.append(f"{stored - report.events} events refer to a stream, an actor or a kind that is missing.")
    problems.extend(check_shared_texts(rows))


def _is_purged(rows: Rows, stream: str, first: int, last: int) -> bool:
    """Whether a gap was made by a recorded purge."""
    covered = rows.one(
        "SELECT 1 FROM event WHERE kind = 'purged' AND json_extract(payload, '$.stream') = ?"
        " AND json_extract(payload, '$.first_seq') <= ? AND json_extract(payload, '$.last_seq') >= ?",
        (stream, first, last),
    )
    return covered is not None


def _is_built(rows: Rows, projection: Projection, report: VerifyReport) -> bool:
    row = rows.one("SELECT fingerprint FROM projection WHERE name = ?", (projection.name,))
    if row is not None and row[0] == projection.fingerprint:
        return True
    report.problems.append(f"The projection {projection.name} was not built by this version yet.")
    report.projections[projection.name] = False
    return False
