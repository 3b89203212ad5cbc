"""Holding the database to its word: the file is sound, the log has no holes, every view is the fold of the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from coterie.eventstore.events import COLUMNS, CONTROL_KINDS, Forked, decode, unknown_kinds
from coterie.eventstore.projection import Projection
from coterie.eventstore.sqlite.database import Rows, translating_errors
from coterie.eventstore.sqlite.lineage import StreamLineage
from coterie.eventstore.sqlite.reader import LogReader
from coterie.eventstore.sqlite.replay import projection_hash, replayed_hash

_PAGE = 2_000


@dataclass
class VerifyReport:
    events: int = 0
    projections: dict[str, bool] = field(default_factory=dict)
    """View → whether its tables equal a fresh fold of the log."""
    problems: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.problems


def verify(
    reader: LogReader, projections: Sequence[Projection], progress: Callable[[str], None] = lambda _: None
) -> VerifyReport:
    """Check everything at one moment, without disturbing whoever owns the file."""
    findings = VerifyReport()
    with translating_errors(reader.path), reader.connections.snapshot() as rows:
        progress("the file")
        for (line,) in rows.run("PRAGMA integrity_check"):
            if line != "ok":
                findings.problems.append(f"The file is damaged: {line}.")
        if findings.problems:
            return findings
        progress("the log")
        _check_log(rows, findings)
        if findings.problems:
            return findings
        for view in projections:
            progress(f"the view {view.name}")
            _check_view(rows, view, findings)
    return findings


def _check_log(rows: Rows, findings: VerifyReport) -> None:
    if strange := unknown_kinds(rows.all("SELECT DISTINCT kind, version FROM event")):
        findings.problems.extend(
            f"The log holds {kind} (version {version}), unknown here." for kind, version in strange
        )
        return
    lines = StreamLineage(rows)
    heads: dict[str, int] = {}
    after = 0
    while page := rows.all(f"SELECT {COLUMNS} FROM event WHERE id > ? ORDER BY id LIMIT {_PAGE}", (after,)):
        for record in page:
            event = decode(record)
            findings.events += 1
            first = event.payload.at + 1 if isinstance(event.payload, Forked) else 1
            expected = heads.get(event.stream, first - 1) + 1
            if event.seq != expected and not _purged(rows, event.stream, expected, event.seq - 1):
                findings.problems.append(f"{event.stream} jumps from {expected - 1} to {event.seq}.")
            heads[event.stream] = event.seq
            if event.kind in CONTROL_KINDS and not lines.is_recorded(event):
                findings.problems.append(f"What counts in {event.stream} after {event.seq} is not what the log says.")
        after = page[-1][0]


def _purged(rows: Rows, stream: str, first: int, last: int) -> bool:
    """Whether a gap was made by a purge, and said so."""
    covered = rows.one(
        "SELECT 1 FROM event WHERE kind = 'purged' AND json_extract(payload, '$.stream') = ?"
        " AND json_extract(payload, '$.first_seq') <= ? AND json_extract(payload, '$.last_seq') >= ?",
        (stream, first, last),
    )
    return covered is not None


def _check_view(rows: Rows, view: Projection, findings: VerifyReport) -> None:
    row = rows.one("SELECT fingerprint FROM projection WHERE name = ?", (view.name,))
    if row is None or row[0] != view.fingerprint:
        findings.problems.append(f"The view {view.name} has not been folded by this version yet.")
        findings.projections[view.name] = False
        return
    same = projection_hash(rows, view) == replayed_hash(view, rows)
    findings.projections[view.name] = same
    if not same:
        findings.problems.append(f"The view {view.name} is not what the log says.")
