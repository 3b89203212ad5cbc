"""The protocol of durable jobs: enqueued, leased to a worker, retried, and dead-lettered after too many failures.

A job is enqueued in the transaction of the event that causes it, and completed in the transaction of the events that
are its result. After a crash between the two the job runs again, and its result is recorded once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from coterie.eventstore.events import AnyEvent, NewEvent, Payload

JobState = Literal["ready", "leased", "done", "dead", "withdrawn"]

READY = "job.ready"
"""The bus subject that announces new jobs; the body is the set of their kinds."""


@dataclass(frozen=True, slots=True)
class NewJob:
    kind: str
    key: str
    """An idempotency key: of all jobs with one key, only the first is kept."""
    payload: Mapping[str, Any] = field(default_factory=dict)
    delay_s: float = 0.0
    priority: int = 0
    """Higher runs first; work that a person waits for is above background work."""
    max_attempts: int = 5


MAX_LEASES_PER_ATTEMPT = 4
"""A worker that disappears was usually killed for another reason, so a job may be leased this many times as often."""


@dataclass(frozen=True, slots=True)
class Job:
    id: int
    kind: str
    key: str
    payload: Mapping[str, Any]
    state: JobState
    priority: int
    attempt: int
    max_attempts: int
    run_at: datetime
    cause: int | None
    error: str | None
    holder: str | None


class JobDied(Payload, kind="job_died"):
    """A job used up its attempts and waits to be retried by hand."""

    job: int
    """The id of the job, by which it can be retried."""
    job_kind: str
    """The kind of the job: `backup`, `story_memory`, `desk_worker` …"""
    key: str
    """The idempotency key of the job."""
    attempts: int
    """How often it was started."""
    error: str
    """The last error, with secrets redacted."""


class Jobs(Protocol):
    async def enqueue(self, jobs: Sequence[NewJob]) -> None: ...

    async def lease(self, kinds: Collection[str], *, holder: str, limit: int = 1, seconds: float = 60.0) -> list[Job]:
        """Lease due jobs. When a lease expires the job is due again; the lease counts as an attempt."""
        ...

    async def extend(self, job: Job, seconds: float) -> None: ...

    async def complete(
        self, job: Job, new_events: Sequence[NewEvent] = (), jobs: Sequence[NewJob] = ()
    ) -> list[AnyEvent]:
        """Record the result and finish the job, in one transaction. `LeaseLost` if the lease has expired."""
        ...

    async def fail(self, job: Job, error: str, *, retry_in_s: float | None = None, fatal: bool = False) -> None:
        """Schedule another attempt (by default with exponential backoff), or mark the job dead after the last one."""
        ...

    async def retry(self, job_id: int) -> None:
        """Make a dead job ready again, with all its attempts."""
        ...

    async def find(self, *, state: JobState | None = None, limit: int = 100) -> list[Job]: ...

    async def next_due(self, kinds: Collection[str]) -> datetime | None: ...


MAX_BACKOFF_S = 3_600.0


def backoff_s(attempt: int, *, first: float = 1.0, maximum: float = MAX_BACKOFF_S) -> float:
    """1 s, 2 s, 4 s … at most an hour."""
    return min(first * 2.0 ** (attempt - 1), maximum)
