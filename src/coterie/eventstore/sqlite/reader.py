"""Read access to the log: for the store itself, and for commands that run beside a server."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from coterie.base.clock import from_micros
from coterie.base.errors import BadPoint, StorageError
from coterie.eventstore.events import COLUMNS, AnyEvent, decode
from coterie.eventstore.log import RewindImpact
from coterie.eventstore.sqlite.database import Params, ReadConnections, Row, Rows, translate_errors
from coterie.eventstore.sqlite.interning import read_shared_texts
from coterie.eventstore.sqlite.jobs import JobQueries
from coterie.eventstore.sqlite.lineage import Ranges, StreamLineage
from coterie.eventstore.sqlite.migrations import creation

_SEQ_AT = "coalesce((SELECT seq FROM event WHERE stream = ? AND id <= ? ORDER BY seq DESC LIMIT 1), 0)"
"""The head of a stream as of an event id. Searched from the end of the stream, where readers usually are: a search by
id would scan the whole stream each time."""


class LogReader:
    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise StorageError(
                f"There is no database at {path}.",
                "Start Coterie once with `coterie serve`, or point COTERIE_HOME at your data folder.",
            )
        self.path = path
        self.connections = ReadConnections(path)
        self.jobs = JobQueries(self.connections)

    def query(self, sql: str, params: Params = ()) -> list[Row]:
        """Rows of projections, as of the last commit. The store's own tables are read by the methods below."""
        with translate_errors(self.path):
            return self.connections.rows().all(sql, params)

    @contextmanager
    def _read_transaction(self) -> Iterator[tuple[Rows, StreamLineage]]:
        with translate_errors(self.path), self.connections.read_transaction() as rows:
            yield rows, StreamLineage(rows)

    def last_id(self) -> int:
        return int(self.query("SELECT coalesce(max(id), 0) FROM log")[0][0])

    def last_time(self) -> datetime | None:
        """The time of the newest event."""
        rows = self.query("SELECT ts FROM log ORDER BY id DESC LIMIT 1")
        return from_micros(rows[0][0]) if rows else None

    def count(self) -> int:
        """How many events the log holds."""
        return int(self.query("SELECT count(*) FROM log")[0][0])

    def times(self, ids: Collection[int]) -> dict[int, datetime]:
        """Event id → its time, for those of the ids that exist."""
        rows = self.query("SELECT id, ts FROM log WHERE id IN (SELECT value FROM json_each(?))", (json.dumps([*ids]),))
        return {event: from_micros(ts) for event, ts in rows}

    def id_by_key(self, key: str) -> int | None:
        """The id of the event that was appended with an idempotency key."""
        rows = self.query("SELECT id FROM log WHERE key = ?", (key,))
        return int(rows[0][0]) if rows else None

    def turn_by_key(self, key: str) -> str | None:
        """The turn of the event that was appended with an idempotency key."""
        rows = self.query("SELECT turn FROM event WHERE key = ?", (key,))
        return str(rows[0][0]) if rows else None

    def by_key_prefix(self, prefix: str) -> list[AnyEvent]:
        """The events whose idempotency keys begin with `prefix`, ordered by stream and seq."""
        records = self.query(
            f"SELECT {COLUMNS} FROM event WHERE key >= ? AND key < ? ORDER BY stream, seq",
            (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)),
        )
        return [decode(record) for record in records]

    def distinct_payload_fields(self, kind: str, fields: Sequence[str]) -> list[Row]:
        """The distinct combinations of some payload fields over all events of a kind, active or not."""
        columns = ", ".join("payload ->> ?" for _ in fields)
        return self.query(f"SELECT DISTINCT {columns} FROM event WHERE kind = ?", (*fields, kind))

    def sum_payload_field(
        self, stream: str, kind: str, field: str, *, after: int, unless: tuple[str, str]
    ) -> tuple[int, int]:
        """Number of a stream's events of a kind after an event id, and the sum of a payload field over them.

        `unless` is a payload field and the value of it that excludes an event.
        """
        ((count, total),) = self.query(
            "SELECT count(*), coalesce(sum(payload ->> ?), 0) FROM event"
            f" WHERE stream = ? AND kind = ? AND payload ->> ? <> ? AND seq > {_SEQ_AT}",
            (field, stream, kind, *unless, stream, after),
        )
        return int(count), int(total)

    def roots(self) -> dict[str, str]:
        """Stream → the stream that its forks descend from, for every stream that takes part in a fork."""
        return dict(self.query("SELECT stream, root FROM stream_lineage"))

    def forks(self) -> set[str]:
        """The streams that are forks of another."""
        return {stream for (stream,) in self.query("SELECT stream FROM stream_lineage WHERE parent IS NOT NULL")}

    def projection_fingerprints(self) -> dict[str, str]:
        """Projection → the fingerprint of the version that wrote its tables."""
        return dict(self.query("SELECT name, fingerprint FROM projection"))

    def migrations(self) -> list[str]:
        """The names of the schema migrations that were applied."""
        return [name for (name,) in self.query("SELECT name FROM migration ORDER BY name")]

    def created(self) -> int | None:
        """When the database was created, which tells databases apart; copies of it are the same database."""
        return creation(self.connections.rows())

    def event_kinds(self) -> list[tuple[str, int]]:
        """Every kind and version of event that was ever appended."""
        rows = self.query("SELECT kind, version FROM event_kind ORDER BY kind, version")
        return [(kind, version) for kind, version in rows]

    def head(self, stream: str) -> int:
        return StreamLineage(self.connections.rows()).head(stream)

    def read(
        self,
        stream: str | None = None,
        *,
        after: int = 0,
        limit: int = 1_000,
        kinds: Collection[str] | None = None,
        newest_first: bool = False,
        only_stream: str | None = None,
    ) -> list[AnyEvent]:
        """As `Log.read`; `only_stream` filters by stream while `after` stays an event id."""
        position = "id" if stream is None and only_stream is None else "seq"
        where = [f"{position} > {_SEQ_AT if only_stream is not None else '?'}"]
        params: list[int | str] = [after] if only_stream is None else [only_stream, after]
        for name in (stream, only_stream):
            if name is not None:
                where.append("stream = ?")
                params.append(name)
        if kinds is not None:
            where.append(f"kind IN ({', '.join('?' * len(kinds))})")
            params.extend(kinds)
        direction = "DESC" if newest_first else "ASC"
        records = self.query(
            f"SELECT {COLUMNS} FROM event WHERE {' AND '.join(where)} ORDER BY {position} {direction} LIMIT ?",
            (*params, limit),
        )
        return [decode(record) for record in records]

    def history(
        self, stream: str, *, after: int = 0, before: int | None = None, limit: int | None = None
    ) -> list[AnyEvent]:
        with self._read_transaction() as (rows, lineage):
            seqs = lineage.active(stream).after(after)
            if before is not None:
                seqs = seqs.up_to(before - 1)
            events: list[AnyEvent] = []
            for owner, low, high in reversed(lineage.segments(stream, seqs)):
                left = -1 if limit is None else limit - len(events)
                if left == 0:
                    break
                records = rows.all(
                    f"SELECT {COLUMNS} FROM event WHERE stream = ? AND seq BETWEEN ? AND ? ORDER BY seq DESC LIMIT ?",
                    (owner, low, high, left),
                )
                events.extend(decode(record)._replace(stream=stream) for record in records)
        events.reverse()
        return events

    def active(self, stream: str, at: int | None = None) -> Ranges:
        """The active numbers of a stream, now or when `at` was its last event."""
        with self._read_transaction() as (_, lineage):
            return lineage.active(stream) if at is None else lineage.active_at(stream, at)

    def shared_texts(self, numbers: Collection[int]) -> dict[int, str]:
        """Number → shared text, for those of the numbers that exist."""
        with translate_errors(self.path):
            return read_shared_texts(self.connections.rows(), numbers)

    def events_at(self, stream: str, seqs: Ranges) -> list[AnyEvent]:
        """The events of a stream with these numbers, inherited ones included, active or not."""
        with self._read_transaction() as (_, lineage):
            return list(lineage.events(stream, seqs))

    def fork_origin(self, stream: str) -> tuple[str, int] | None:
        """The parent of a fork and the position it was forked at; None for other streams."""
        return StreamLineage(self.connections.rows()).parent(stream)

    def preview_rewind(self, stream: str, to: int) -> RewindImpact:
        with self._read_transaction() as (_, lineage):
            head = lineage.head(stream)
            if not 0 <= to <= head:
                raise BadPoint(
                    f"{stream} cannot be rewound to {to}: it has events 1 to {head}.",
                    "Choose a number in that range.",
                )
            now, then = lineage.active(stream), lineage.active_at(stream, to)
            dropped, restored = list(lineage.events(stream, now - then)), list(lineage.events(stream, then - now))
        return RewindImpact(dropped, restored)

    def seqs_of_other_turns(self, stream: str, turns: Collection[str], *, after: int) -> list[int]:
        """The active numbers after a position whose events belong to a turn that is not among these turns."""
        with self._read_transaction() as (rows, lineage):
            return [
                seq
                for owner, low, high in lineage.segments(stream, lineage.active(stream).after(after))
                for seq, turn in rows.run(
                    "SELECT seq, turn FROM event WHERE stream = ? AND seq BETWEEN ? AND ? AND turn IS NOT NULL"
                    " ORDER BY seq",
                    (owner, low, high),
                )
                if turn not in turns
            ]

    def turn_seqs(self, stream: str, turn: str) -> list[int]:
        with self._read_transaction() as (rows, lineage):
            segments = lineage.segments(stream, Ranges([(1, lineage.head(stream))]))
            stored = rows.all("SELECT stream, seq FROM event WHERE turn = ?", (turn,))
        return sorted(
            seq for owner, seq in stored if any(owner == name and low <= seq <= high for name, low, high in segments)
        )

    def close(self) -> None:
        self.connections.close()
