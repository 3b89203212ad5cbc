"""Verification: the file is intact, the log has no gaps, and every projection equals a replay of the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from coterie.eventstore.events import COLUMNS, CONTROL_KINDS, Forked, decode, unknown_kinds
from coterie.eventstore.projection import Projection
from coterie.eventstore.sqlite.database import Rows, translate_errors
from coterie.eventstore.sqlite.lineage import StreamLineage
from coterie.eventstore.sqlite.reader import LogReader
from coterie.eventstore.sqlite.replay import projection_hash, replayed_hash

_PAGE = 2_000


@dataclass
class VerifyReport:
    events: int = 0
    projections: dict[str, bool] = field(default_factory=dict)
    """Projection → whether its tables equal a replay of the log."""
    problems: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.problems


def verify(
    reader: LogReader, projections: Sequence[Projection], progress: Callable[[str], None] = lambda _: None
) -> VerifyReport:
    """Check one consistent state of the database, without disturbing the process that owns it."""
    report = VerifyReport()
    with translate_errors(reader.path), reader.connections.read_transaction() as rows:
        progress("the file")
        for (line,) in rows.run("PRAGMA integrity_check"):
            if line != "ok":
                report.problems.append(f"The file is damaged: {line}.")
        if report.problems:
            return report
        progress("the log")
        _check_log(rows, report)
        if report.problems:
            return report
        for projection in projections:
            progress(f"the projection {projection.name}")
            _check_projection(rows, projection, report)
    return report


def _check_log(rows: Rows, report: VerifyReport) -> None:
    if unknown := unknown_kinds(rows.all("SELECT DISTINCT kind, version FROM event")):
        report.problems.extend(
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
                report.problems.append(f"{event.stream} jumps from {expected - 1} to {event.seq}.")
            heads[event.stream] = event.seq
            if event.kind in CONTROL_KINDS and not lineage.is_recorded(event):
                report.problems.append(f"The active events of {event.stream} after {event.seq} differ from the log.")
        after = page[-1][0]


def _is_purged(rows: Rows, stream: str, first: int, last: int) -> bool:
    """Whether a gap was made by a recorded purge."""
    covered = rows.one(
        "SELECT 1 FROM event WHERE kind = 'purged' AND json_extract(payload, '$.stream') = ?"
        " AND json_extract(payload, '$.first_seq') <= ? AND json_extract(payload, '$.last_seq') >= ?",
        (stream, first, last),
    )
    return covered is not None


def _check_projection(rows: Rows, projection: Projection, report: VerifyReport) -> None:
    row = rows.one("SELECT fingerprint FROM projection WHERE name = ?", (projection.name,))
    if row is None or row[0] != projection.fingerprint:
        report.problems.append(f"The projection {projection.name} was not built by this version yet.")
        report.projections[projection.name] = False
        return
    same = projection_hash(rows, projection) == replayed_hash(projection, rows)
    report.projections[projection.name] = same
    if not same:
        report.problems.append(f"The projection {projection.name} differs from a replay of the log.")
