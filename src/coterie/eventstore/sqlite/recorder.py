"""What happens inside a write transaction: events are numbered and stored, views fold them, jobs are queued.

Everything here runs on the writer's thread. Whatever it remembers between transactions is dropped on a rollback.
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
    EventRow,
    Forked,
    NewEvent,
    Purged,
    decode,
    encode,
)
from coterie.eventstore.jobs import NewJob
from coterie.eventstore.sqlite.database import Rows
from coterie.eventstore.sqlite.jobs import JobTable
from coterie.eventstore.sqlite.projections import LiveProjections

_INSERT = f"INSERT INTO event({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_MOST_HEADS = 10_000

T = TypeVar("T")


class EventRecorder:
    def __init__(self, rows: Rows, views: LiveProjections, jobs: JobTable, clock: Clock) -> None:
        self._rows = rows
        self._views = views
        self._jobs = jobs
        self._clock = clock
        self._heads: dict[str, int] = {}
        self._kinds: set[tuple[str, int]] = set()
        self._last_id = 0
        self._settled = 0
        self._now = clock.now()
        self._micros = to_micros(self._now)
        """What is committed together happened at one moment."""
        self._fresh: list[AnyEvent] = []
        self._waiting: list[EventRow] = []
        self.reload()

    def reload(self) -> None:
        """Read anew what was remembered: after a rollback, and at the start."""
        self._heads.clear()
        self._fresh.clear()
        self._waiting.clear()
        self._kinds = set(self._rows.run("SELECT kind, version FROM event_kind"))
        row = self._rows.one("SELECT coalesce(max(id), 0) FROM event")
        self._last_id = row[0] if row else 0

    def begin(self) -> None:
        self._now = self._clock.now()
        self._micros = to_micros(self._now)
        self._settled = self._last_id
        self._views.begin()

    def end(self) -> None:
        self.flush()
        if self._last_id > self._settled:  # taking a job, or holding on to one, is no event
            self._views.finish(self._last_id)

    def flush(self) -> None:
        """Put what was numbered into the log. The requests of a batch share one statement, unless somebody looks."""
        if self._waiting:
            self._rows.many(_INSERT, self._waiting)
            self._waiting.clear()

    def run_flushed(self, work: Callable[[Rows], T]) -> T:
        """Run something that may look at the log, or fold it."""
        self.flush()
        return work(self._rows)

    @property
    def last_id(self) -> int:
        return self._last_id

    def take_appended(self) -> list[AnyEvent]:
        """The events of the transaction that has just been committed."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def append(
        self,
        new_events: Sequence[NewEvent],
        payloads: Sequence[str],
        expect: Mapping[str, int] | None,
        jobs: Sequence[NewJob],
    ) -> list[AnyEvent]:
        if repeated := self._repeated(new_events):
            return repeated
        if expect:
            for stream, seq in expect.items():
                self._expect(stream, seq)
        events = [self._number(draft, text) for draft, text in zip(new_events, payloads, strict=True)]
        self._views.apply(events)
        if jobs:
            self._jobs.add(jobs, events[-1].id if events else None)
        self._fresh.extend(events)
        return events

    def encode_and_append(self, drafts: Sequence[NewEvent], jobs: Sequence[NewJob] = ()) -> list[AnyEvent]:
        """The same from within a transaction that does other things too."""
        return self.append(drafts, [encode(draft.payload) for draft in drafts], None, jobs)

    def purge(self, stream: str, first: int, last: int, reason: str, actor: str) -> AnyEvent:
        self.flush()
        head = self._head(stream)
        row = self._rows.one(
            "SELECT count(*), min(seq), max(seq) FROM event WHERE stream = ? AND seq BETWEEN ? AND ?",
            (stream, first, last),
        )
        found, low, high = row or (0, None, None)
        if not found:
            raise BadPoint(
                f"{stream} has no events {first} to {last}.",
                "List what there is with `coterie events --stream …`.",
            )
        self._rows.run(
            "DELETE FROM job WHERE cause IN (SELECT id FROM event WHERE stream = ? AND seq BETWEEN ? AND ?)",
            (stream, first, last),
        )
        # Control events stay: they hold no words of anyone, and what counts depends on them.
        self._rows.run(
            "UPDATE event SET key = NULL, turn = NULL, actor = 'purged' WHERE stream = ? AND seq BETWEEN ? AND ?"
            " AND kind IN ('rewound', 'superseded', 'reset', 'forked')",
            (stream, first, last),
        )
        self._rows.run(
            "DELETE FROM event WHERE stream = ? AND seq BETWEEN ? AND ?"
            " AND kind NOT IN ('rewound', 'superseded', 'reset', 'forked')",
            (stream, first, last),
        )
        self._rows.run(
            "INSERT INTO stream_lineage VALUES (?1, NULL, NULL, ?1, ?2)"
            " ON CONFLICT(stream) DO UPDATE SET head = max(head, ?2)",
            (stream, head),
        )
        self._views.rebuild()
        payload = Purged(stream=stream, events=found, first_seq=low, last_seq=high, reason=reason)
        return self.encode_and_append([NewEvent("instance", payload, actor)])[0]

    def _repeated(self, drafts: Sequence[NewEvent]) -> list[AnyEvent]:
        """The events of an earlier call with the same keys. A batch is contiguous, so one key finds all of it."""
        found: int | None = None
        fresh_key = None
        for index, draft in enumerate(drafts):
            if draft.key is None:
                continue
            self.flush()
            row = self._rows.one("SELECT id FROM event WHERE key = ?", (draft.key,))
            if row is None:
                fresh_key = draft.key
            elif found is None or row[0] - index == found:
                found = row[0] - index
            else:
                raise _mixed_keys(draft.key)
        if found is None:
            return []
        if fresh_key is not None:
            raise _mixed_keys(fresh_key)
        sql = f"SELECT {COLUMNS} FROM event WHERE id BETWEEN ? AND ? ORDER BY id"
        records = self._rows.all(sql, (found, found + len(drafts) - 1))
        return [decode(record) for record in records]

    def _expect(self, stream: str, seq: int) -> None:
        head = self._head(stream)
        if head != seq:
            raise Conflict(
                f"{stream} has moved on: its last event is {head}, not {seq}.",
                "Read what is new, decide again, and append to that.",
            )

    def _number(self, draft: NewEvent, text: str) -> AnyEvent:
        """Give a draft its place, and let it wait there to be stored."""
        stream, payload, actor, cause, key, turn = draft
        kind, version = payload.kind, payload.version
        head = self._heads.get(stream)
        if head is None:
            head = self._head(stream)
        seq = payload.at + 1 if head == 0 and isinstance(payload, Forked) else head + 1
        if (kind, version) not in self._kinds:
            self._kinds.add((kind, version))
            self._rows.run("INSERT INTO event_kind VALUES (?, ?)", (kind, version))
        self._last_id = number = self._last_id + 1
        self._heads[stream] = seq
        self._waiting.append((number, stream, seq, kind, version, text, self._micros, actor, cause, key, turn))
        if kind in CONTROL_KINDS:
            self.flush()  # what counts is worked out from the log itself
        return Event(number, stream, seq, kind, version, payload, self._now, actor, cause, key, turn)

    def _head(self, stream: str) -> int:
        head = self._heads.get(stream)
        if head is None:
            if len(self._heads) > _MOST_HEADS:
                self._heads.clear()
            self.flush()
            head = self._heads[stream] = self._views.lineage.head(stream)
        return head


def _mixed_keys(key: str) -> Conflict:
    return Conflict(
        f"The key {key} belongs to another append than the rest of this one.",
        "Repeat an append with exactly the drafts it had the first time.",
    )
