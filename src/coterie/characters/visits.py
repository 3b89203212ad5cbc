"""When somebody was here: what happened between two visits happened while they were away.

A page that is looked at says so now and then. Looks with less than half an hour between them are one visit, so that
neither a reload nor a walk through the house makes news old.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from coterie.base.clock import Clock, from_micros, to_micros
from coterie.eventstore import Event, NewEvent, Payload, Projection, Rows, Store, on

STREAM = "visits"
GAP = timedelta(minutes=30)
_EVERY = timedelta(minutes=5)


class PersonVisited(Payload, kind="person_visited"):
    """A person looks at a page; told once in a while, not for every look."""

    person: str
    """The person's id; `you` is the owner."""


@dataclass(frozen=True, slots=True)
class VisitEnd:
    """Where a visit ended: what comes after it in the log is news."""

    at: datetime
    event: int


class VisitsProjection(Projection):
    """People's, not a room's. `left_` is where the visit before the present one ended."""

    name = "visits"
    schema = """
        CREATE TABLE visit(person TEXT PRIMARY KEY, at INTEGER NOT NULL, event INTEGER NOT NULL,
            left_at INTEGER, left_event INTEGER) WITHOUT ROWID;
    """

    @on(PersonVisited)
    def visited(self, rows: Rows, event: Event[PersonVisited]) -> None:
        rows.run(
            "INSERT INTO visit VALUES (?1, ?2, ?3, NULL, NULL) ON CONFLICT(person) DO UPDATE SET"
            " left_at = CASE WHEN ?2 - at > ?4 THEN at ELSE left_at END,"
            " left_event = CASE WHEN ?2 - at > ?4 THEN event ELSE left_event END, at = ?2, event = ?3",
            (event.payload.person, to_micros(event.ts), event.id, GAP // timedelta(microseconds=1)),
        )


class Visits:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def previous_visit_end(self, person: str) -> VisitEnd | None:
        """The end of the visit before this one; None while somebody is here for the first time."""
        rows = self._store.query("SELECT at, event, left_at, left_event FROM visit WHERE person = ?", (person,))
        if not rows:
            return None
        at, event, left_at, left_event = rows[0]
        if self._clock.now() - from_micros(at) > GAP:
            return VisitEnd(from_micros(at), event)
        return VisitEnd(from_micros(left_at), left_event) if left_at is not None else None

    async def record(self, person: str) -> None:
        """They are here. The key makes it once, however many pages say so in the same minutes."""
        moment = to_micros(self._clock.now()) // (_EVERY // timedelta(microseconds=1))
        visited = PersonVisited(person=person)
        await self._store.append([NewEvent(STREAM, visited, person, key=f"visit:{person}:{moment}")])
