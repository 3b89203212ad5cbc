"""The work inside a write transaction: events are numbered and stored, projections apply them, jobs are queued.

Everything here runs on the writer's thread. State kept between transactions is discarded on a rollback.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from coterie.base.clock import Clock, to_micros
from coterie.base.errors import BadPoint, Conflict
from coterie.eventstore.events import (
    COLUMNS,
    CONTROL_KINDS,
    AnyEvent,
    Event,
    Forked,
    NewEvent,
    Purged,
    decode,
    encode,
    encode_redacted,
)
from coterie.eventstore.jobs import NewJob
from coterie.eventstore.sqlite.compression import compress
from coterie.eventstore.sqlite.database import Rows
from coterie.eventstore.sqlite.interning import NameTable, SharedTexts
from coterie.eventstore.sqlite.jobs import JobTable
from coterie.eventstore.sqlite.projections import LiveProjections

_INSERT = "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
LogRow = tuple[int, int, int, int, str | bytes, int, int, int | None, str | None, int | None]
"""A row of the table `log`, where names and kinds are numbers."""
_MAX_CACHED_HEADS = 10_000

T = TypeVar("T")


class EventRecorder:
    def __init__(self, rows: Rows, projections: LiveProjections, jobs: JobTable, clock: Clock) -> None:
        self._rows = rows
        self._projections = projections
        self._jobs = jobs
        self._clock = clock
        self._heads: dict[str, int] = {}
        self._names = NameTable(rows)
        self._texts = SharedTexts(rows)
        self._kinds: dict[tuple[str, int], int] = {}
        self._last_id = 0
        self._applied_id = 0
        self._now = clock.now()
        self._micros = to_micros(self._now)
        """Events of one transaction have the same time."""
        self._appended: list[AnyEvent] = []
        self._unflushed: list[LogRow] = []
        self.reload()

    def reload(self) -> None:
        """Discard the cached state and read it from the database: at the start and after a rollback."""
        self._heads.clear()
        self._appended.clear()
        self._unflushed.clear()
        self._names.forget()
        self._texts.forget()
        self._kinds = {(kind, version): number for number, kind, version in self._rows.run("SELECT * FROM event_kind")}
        row = self._rows.one("SELECT coalesce(max(id), 0) FROM log")
        self._last_id = row[0] if row else 0

    def begin(self) -> None:
        self._now = self._clock.now()
        self._micros = to_micros(self._now)
        self._applied_id = self._last_id
        self._projections.begin()

    def end(self) -> None:
        self.flush()
        if self._last_id > self._applied_id:  # a transaction about jobs may append no event
            self._projections.finish(self._last_id)

    def flush(self) -> None:
        """Insert the numbered events. The requests of a batch share one statement unless one of them reads the log."""
        if self._unflushed:
            self._rows.many(_INSERT, self._unflushed)
            self._unflushed.clear()

    def run_flushed(self, work: Callable[[Rows], T]) -> T:
        """Run a function that may read the log."""
        self.flush()
        return work(self._rows)

    @property
    def last_id(self) -> int:
        return self._last_id

    def take_appended(self) -> list[AnyEvent]:
        """The events of the last committed transaction; clears them."""
        appended, self._appended = self._appended, []
        return appended

    def append(
        self,
        encoded: Sequence[tuple[NewEvent, str | bytes]],
        expect: Mapping[str, int] | None,
        jobs: Sequence[NewJob],
    ) -> list[AnyEvent]:
        """Number, store and apply events, each with its payload as `encode_redacted` returned it."""
        if repeated := self._events_with_same_keys([new for new, _ in encoded]):
            return repeated
        if expect:
            for stream, seq in expect.items():
                self._check_head(stream, seq)
        events = [self._number(new, stored) for new, stored in encoded]
        self._projections.apply(events)
        if jobs:
            self._jobs.add(jobs, events[-1].id if events else None)
        self._appended.extend(events)
        return events

    def encode_and_append(self, new_events: Sequence[NewEvent], jobs: Sequence[NewJob] = ()) -> list[AnyEvent]:
        """Append from within a transaction that does other work too."""
        return self.append([encode_redacted(new) for new in new_events], None, jobs)

    def purge(self, stream: str, first: int, last: int, reason: str, actor: str) -> AnyEvent:
        self.flush()
        head = self._head(stream)
        row = self._rows.one(
            "SELECT count(*), min(seq), max(seq) FROM event WHERE stream = ? AND seq BETWEEN ? AND ?",
            (stream, first, last),
        )
        count, low, high = row or (0, None, None)
        if not count:
            raise BadPoint(
                f"{stream} has no events {first} to {last}.",
                "List its events with `coterie events --stream …`.",
            )
        self._rows.run(
            "DELETE FROM job WHERE cause IN (SELECT id FROM event WHERE stream = ? AND seq BETWEEN ? AND ?)",
            (stream, first, last),
        )
        # Control events stay: they hold no personal data, and the active events depend on them.
        control = ", ".join(str(number) for (kind, _), number in self._kinds.items() if kind in CONTROL_KINDS)
        self._rows.run(
            "UPDATE log SET key = NULL, turn = NULL, actor = ? WHERE stream = ? AND seq BETWEEN ? AND ?"
            f" AND kind IN ({control})",
            (self._names.number("purged"), self._names.number(stream), first, last),
        )
        self._rows.run(
            f"DELETE FROM log WHERE stream = ? AND seq BETWEEN ? AND ? AND kind NOT IN ({control})",
            (self._names.number(stream), first, last),
        )
        self._names.remove_unused()
        self._texts.remove_unused()
        self._rows.run(
            "INSERT INTO stream_lineage VALUES (?1, NULL, NULL, ?1, ?2)"
            " ON CONFLICT(stream) DO UPDATE SET head = max(head, ?2)",
            (stream, head),
        )
        self._projections.rebuild()
        payload = Purged(stream=stream, events=count, first_seq=low, last_seq=high, reason=reason)
        return self.encode_and_append([NewEvent("instance", payload, actor)])[0]

    def _events_with_same_keys(self, new_events: Sequence[NewEvent]) -> list[AnyEvent]:
        """The events of an earlier call with the same keys. Their ids are contiguous, so one key finds all of them."""
        first_id: int | None = None
        unused_key = None
        for index, new in enumerate(new_events):
            if new.key is None:
                continue
            self.flush()
            row = self._rows.one("SELECT id FROM log WHERE key = ?", (new.key,))
            if row is None:
                unused_key = new.key
            elif first_id is None or row[0] - index == first_id:
                first_id = row[0] - index
            else:
                raise _mixed_keys_error(new.key)
        if first_id is None:
            return []
        if unused_key is not None:
            raise _mixed_keys_error(unused_key)
        sql = f"SELECT {COLUMNS} FROM event WHERE id BETWEEN ? AND ? ORDER BY id"
        records = self._rows.all(sql, (first_id, first_id + len(new_events) - 1))
        return [decode(record) for record in records]

    def _check_head(self, stream: str, seq: int) -> None:
        head = self._head(stream)
        if head != seq:
            raise Conflict(
                f"{stream} has newer events: its last is {head}, not {seq}.",
                "Read the new events and try again.",
            )

    def _number(self, new: NewEvent, stored: str | bytes) -> AnyEvent:
        """Assign an id and a sequence number, and queue the event for insertion."""
        stream, payload, actor, cause, key, turn = new
        if payload.shares_texts:
            payload = payload.share_texts(self._texts.number)
            stored = compress(encode(payload))
        kind, version = payload.kind, payload.version
        head = self._heads.get(stream)
        if head is None:
            head = self._head(stream)
        seq = payload.at + 1 if head == 0 and isinstance(payload, Forked) else head + 1
        kind_number = self._kinds.get((kind, version))
        if kind_number is None:
            row = self._rows.one(
                "INSERT INTO event_kind(kind, version) VALUES (?, ?) RETURNING id", (kind, version)
            ) or (0,)
            kind_number = self._kinds[kind, version] = row[0]
        self._last_id = number = self._last_id + 1
        self._heads[stream] = seq
        numbered = self._names.number
        turn_number = None if turn is None else numbered(turn)
        self._unflushed.append(
            (
                number,
                numbered(stream),
                seq,
                kind_number,
                stored,
                self._micros,
                numbered(actor),
                cause,
                key,
                turn_number,
            )
        )
        if kind in CONTROL_KINDS:
            self.flush()  # the active ranges are computed from the log
        return Event(number, stream, seq, kind, version, payload, self._now, actor, cause, key, turn)

    def _head(self, stream: str) -> int:
        head = self._heads.get(stream)
        if head is None:
            if len(self._heads) > _MAX_CACHED_HEADS:
                self._heads.clear()
            self.flush()
            head = self._heads[stream] = self._projections.lineage.head(stream)
        return head


def _mixed_keys_error(key: str) -> Conflict:
    return Conflict(
        f"The key {key} belongs to another append than the rest of this one.",
        "Repeat an append with exactly the events of the first call.",
    )
