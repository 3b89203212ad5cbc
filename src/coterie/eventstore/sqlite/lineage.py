"""Which events of a stream are active, and in which stream the inherited ones are stored.

The sequence numbers of a fork continue those of its parent: if it forked at 40, its own first event is 41 and
everything up to 40 is the parent's. So one set of numbers describes any stream, however often it was rewound or
forked, and the events active at a position depend only on the log up to there.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from coterie.base.errors import BadPoint
from coterie.eventstore.events import COLUMNS, AnyEvent, Forked, Reset, Rewound, Superseded, decode
from coterie.eventstore.sqlite.database import Rows

# Sets of sequence numbers as closed intervals, for the active events of a stream.
#
# Streams are long and rewound parts are contiguous, so a few intervals describe a set of millions.


Pair = tuple[int, int]


class Ranges:
    """An immutable set of integers, kept as sorted, disjoint, non-adjacent closed intervals."""

    __slots__ = ("_starts", "pairs")

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        merged: list[Pair] = []
        for low, high in sorted(pairs):
            if low > high:
                continue
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], high))
            else:
                merged.append((low, high))
        self.pairs: tuple[Pair, ...] = tuple(merged)
        self._starts = [low for low, _ in merged]

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number <= self.pairs[index][1]

    def __iter__(self) -> Iterator[int]:
        for low, high in self.pairs:
            yield from range(low, high + 1)

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high in self.pairs)

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self.pairs == other.pairs

    def __hash__(self) -> int:
        return hash(self.pairs)

    def __repr__(self) -> str:
        return f"Ranges({list(self.pairs)})"

    def __or__(self, other: Ranges) -> Ranges:
        return Ranges((*self.pairs, *other.pairs))

    def __sub__(self, other: Ranges) -> Ranges:
        remaining: list[Pair] = []
        holes = iter(other.pairs)
        hole = next(holes, None)
        for low, high in self.pairs:
            start = low
            while hole is not None and hole[1] < start:
                hole = next(holes, None)
            while hole is not None and hole[0] <= high:
                remaining.append((start, hole[0] - 1))
                start = hole[1] + 1
                if hole[1] > high:
                    break
                hole = next(holes, None)
            remaining.append((start, high))
        return Ranges(remaining)

    def up_to(self, number: int) -> Ranges:
        return Ranges((low, min(high, number)) for low, high in self.pairs)

    def after(self, number: int) -> Ranges:
        return Ranges((max(low, number + 1), high) for low, high in self.pairs)


Segment = tuple[str, int, int]
"""A range of one stream's own events: (stream, first seq, last seq)."""


class StreamLineage:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def head(self, stream: str) -> int:
        """The last sequence number used in a stream; 0 if it has no event. Purged numbers stay used."""
        row = self._rows.one(
            "SELECT max(coalesce((SELECT seq FROM event WHERE stream = ?1 ORDER BY seq DESC LIMIT 1), 0),"
            " coalesce((SELECT head FROM stream_lineage WHERE stream = ?1), 0))",
            (stream,),
        )
        return int(row[0]) if row else 0

    def parent(self, stream: str) -> tuple[str, int] | None:
        row = self._rows.one("SELECT parent, at FROM stream_lineage WHERE stream = ? AND parent IS NOT NULL", (stream,))
        return (row[0], row[1]) if row else None

    def active(self, stream: str) -> Ranges:
        return self.active_at(stream, self.head(stream))

    def active_at(self, stream: str, seq: int) -> Ranges:
        """The numbers of the events that were active when `seq` was the stream's last event."""
        origin = self.parent(stream)
        if origin is not None and seq <= origin[1]:
            return self.active_at(origin[0], seq)
        row = self._rows.one(
            "SELECT seq, ranges FROM active_ranges WHERE stream = ? AND seq <= ? ORDER BY seq DESC LIMIT 1",
            (stream, seq),
        )
        if row is None:
            return Ranges([(1, seq)])
        return Ranges((*(tuple(pair) for pair in json.loads(row[1])), (row[0], seq)))

    def record(self, event: AnyEvent) -> tuple[Ranges, Ranges]:
        """Store the active ranges after a control event. Returns those before and those after it."""
        if isinstance(event.payload, Forked):
            self._record_fork(event, event.payload)
        before, after = self.before_and_after(event)
        params = (event.stream, event.seq, json.dumps(after.pairs))
        self._rows.run("INSERT INTO active_ranges VALUES (?, ?, ?)", params)
        return before, after

    def is_recorded(self, event: AnyEvent) -> bool:
        """Whether the ranges stored for a control event are those that follow from the log."""
        row = self._rows.one("SELECT ranges FROM active_ranges WHERE stream = ? AND seq = ?", (event.stream, event.seq))
        return row is not None and row[0] == json.dumps(self.before_and_after(event)[1].pairs)

    def before_and_after(self, event: AnyEvent) -> tuple[Ranges, Ranges]:
        """The active ranges before and after a control event."""
        payload = event.payload
        if isinstance(payload, Forked):
            return Ranges(), self.active_at(payload.parent, payload.at)
        before = self.active_at(event.stream, event.seq - 1)
        after = self._after(event, before)
        origin = self.parent(event.stream)
        if origin is not None:  # the fork event itself always stays active
            after |= Ranges([(origin[1] + 1, origin[1] + 1)])
        return before, after

    def owner(self, stream: str, seq: int) -> str:
        """The stream in which the event with this number is stored: the stream itself, or one it was forked from."""
        while (origin := self.parent(stream)) is not None and seq <= origin[1]:
            stream = origin[0]
        return stream

    def segments(self, stream: str, seqs: Ranges) -> list[Segment]:
        """Where the events with these numbers are stored, in order."""
        origin = self.parent(stream)
        if origin is None:
            return [(stream, low, high) for low, high in seqs.pairs]
        parent, at = origin
        inherited = self.segments(parent, seqs.up_to(at))
        return inherited + [(stream, low, high) for low, high in seqs.after(at).pairs]

    def events(self, stream: str, seqs: Ranges) -> Iterator[AnyEvent]:
        """The events with these numbers, oldest first, as they were appended."""
        for owner, low, high in self.segments(stream, seqs):
            records = self._rows.all(
                f"SELECT {COLUMNS} FROM event WHERE stream = ? AND seq BETWEEN ? AND ? ORDER BY seq",
                (owner, low, high),
            )
            yield from map(decode, records)

    def _after(self, event: AnyEvent, before: Ranges) -> Ranges:
        payload = event.payload
        if isinstance(payload, Rewound):
            if not 0 <= payload.to < event.seq:
                raise BadPoint(
                    f"{event.stream} cannot be rewound to {payload.to}: it has events 1 to {event.seq - 1}.",
                    "Choose a number in that range; 0 is before the first.",
                )
            return self.active_at(event.stream, payload.to)
        if isinstance(payload, Superseded):
            affected = Ranges((*payload.drop, *payload.restore))
            if affected and not 1 <= affected.pairs[0][0] <= affected.pairs[-1][1] < event.seq:
                raise BadPoint(
                    f"{event.stream} has no events {list(affected.pairs)}: it has 1 to {event.seq - 1}.",
                    "Supersede only what has been recorded.",
                )
            return before - Ranges(payload.drop) | Ranges(payload.restore)
        if isinstance(payload, Reset):
            return Ranges()
        raise TypeError(f"{event.kind} is not a control event")

    def _record_fork(self, event: AnyEvent, payload: Forked) -> None:
        existing = self._rows.one(
            "SELECT 1 FROM event WHERE stream = ?1 AND id < ?2 UNION SELECT 1 FROM stream_lineage WHERE stream = ?1",
            (event.stream, event.id),
        )
        if existing is not None:
            raise BadPoint(
                f"{event.stream} already exists and cannot become a fork of {payload.parent}.",
                "Fork into a new stream.",
            )
        head = self.head(payload.parent)
        if not head or not 0 <= payload.at <= head:
            raise BadPoint(
                f"{payload.parent} cannot be forked at {payload.at}: it has {head} events.",
                "Choose a number up to that.",
            )
        row = self._rows.one("SELECT root FROM stream_lineage WHERE stream = ?", (payload.parent,))
        root = row[0] if row else payload.parent
        self._rows.run("INSERT OR IGNORE INTO stream_lineage VALUES (?, NULL, NULL, ?, 0)", (root, root))
        self._rows.run(
            "INSERT INTO stream_lineage VALUES (?, ?, ?, ?, ?)",
            (event.stream, payload.parent, payload.at, root, event.seq),
        )
