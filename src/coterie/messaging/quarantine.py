"""What a platform sent and could not be read: it is recorded, and reading goes on after it.

Without this, one malformed event would stop its surface at every start, because the cursor never moves past it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from coterie.base.clock import from_micros, to_micros
from coterie.base.errors import LogError, StorageError
from coterie.base.logging import get_logger
from coterie.base.untrusted import describe_problem, excerpt
from coterie.eventstore import Event, LogReader, NewEvent, Payload, Projection, Rows, Store, on

_MAX_ID = 300
_log = get_logger(__name__)


class InputSkipped(Payload, kind="input_skipped"):
    """Something that a platform sent could not be read. It was left out, and reading went on after it."""

    surface: str
    """The surface's name, such as `matrix`."""
    room: str = ""
    """The platform's id of the room; empty if it belongs to none."""
    id: str
    """The platform's id of the event, or a checksum if it has none."""
    reason: str
    """What was wrong with it."""
    excerpt: str = ""
    """The beginning of it, without secrets."""


class SkippedInputsProjection(Projection):
    name = "skipped_inputs"
    schema = """
        CREATE TABLE skipped_input(id INTEGER PRIMARY KEY, surface TEXT NOT NULL, room TEXT NOT NULL,
            platform_id TEXT NOT NULL, reason TEXT NOT NULL, excerpt TEXT NOT NULL, ts INTEGER NOT NULL);
    """

    @on(InputSkipped)
    def skipped(self, rows: Rows, event: Event[InputSkipped]) -> None:
        payload = event.payload
        params = (payload.surface, payload.room, payload.id, payload.reason, payload.excerpt, to_micros(event.ts))
        rows.run("INSERT INTO skipped_input VALUES (?, ?, ?, ?, ?, ?, ?)", (event.id, *params))


class Quarantine:
    """Collects what could not be read of one response of a platform, to be recorded together with the new cursor.

    Errors in `never_skipped`, and those of the storage, are raised: they are not the fault of the event.
    """

    def __init__(self, surface: str, never_skipped: tuple[type[Exception], ...] = ()) -> None:
        self._surface = surface
        self._never_skipped: tuple[type[Exception], ...] = (StorageError, LogError, *never_skipped)
        self.skipped: list[InputSkipped] = []

    @contextmanager
    def reading(self, raw: object, *, room: str = "", event_id: str = "") -> Iterator[None]:
        """Whatever is raised inside is recorded with what was read. A failed read must have no effect."""
        try:
            yield
        except Exception as error:
            self.add(raw, error, room=room, event_id=event_id)

    def add(self, raw: object, error: Exception, *, room: str = "", event_id: str = "") -> None:
        """Record it; raises the error again if it is one that is never skipped."""
        if isinstance(error, self._never_skipped):
            raise error
        start = excerpt(raw)
        name = event_id or hashlib.sha256(excerpt(raw, 10_000).encode()).hexdigest()[:24]
        skipped = InputSkipped(
            surface=self._surface,
            room=excerpt(room, _MAX_ID),
            id=excerpt(name, _MAX_ID),
            reason=describe_problem(error),
            excerpt=start,
        )
        self.skipped.append(skipped)
        # A schema's errors say all; others are faults of ours, or of a library.
        _log.warning(
            "an event could not be read and was skipped",
            surface=self._surface,
            room=skipped.room,
            id=skipped.id,
            reason=skipped.reason,
            exc_info=None if type(error) is ValueError or isinstance(error, ValidationError) else error,
        )


def skipped_events(store: Store, skipped: Sequence[InputSkipped]) -> list[NewEvent]:
    """The events to append; the same input again is recorded once."""
    by_key = {f"skipped:{one.surface}/{one.room}:{one.id}": one for one in skipped}
    return [
        NewEvent(f"surface:{one.surface}", one, key=key)
        for key, one in by_key.items()
        if store.reader.id_by_key(key) is None
    ]


@dataclass(frozen=True)
class SkippedInput:
    surface: str
    room: str
    id: str
    reason: str
    excerpt: str
    ts: datetime


class SkippedInputs:
    """Queries about what was skipped."""

    def __init__(self, store: Store | LogReader) -> None:
        self._store = store

    def counts(self) -> dict[str, int]:
        """How many were skipped, by surface."""
        rows = self._store.query("SELECT surface, count(*) FROM skipped_input GROUP BY surface ORDER BY surface")
        return {str(surface): int(count) for surface, count in rows}

    def latest(self, limit: int = 20) -> list[SkippedInput]:
        rows = self._store.query(
            "SELECT surface, room, platform_id, reason, excerpt, ts FROM skipped_input ORDER BY id DESC LIMIT ?",
            (limit,),
        )
        return [
            SkippedInput(surface, room, platform_id, reason, excerpt, from_micros(ts))
            for surface, room, platform_id, reason, excerpt, ts in rows
        ]
