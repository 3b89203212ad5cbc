"""Durable work: what is to be done later, leased to whoever does it, retried, never lost, never done twice in effect.

A job is enqueued in the transaction of the event that causes it, and completed in the transaction of the events that
are its result. Between those two a crash costs a repetition at most, and the repetition cannot record anything twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from coterie.eventstore.events import AnyEvent, NewEvent, Payload

JobState = Literal["ready", "leased", "done", "dead", "withdrawn"]

READY = "job.ready"
"""The subject under which the bus tells that there is something to do, with the kinds of it."""


@dataclass(frozen=True, slots=True)
class NewJob:
    kind: str
    key: str
    """Of all jobs with one key, only the first is kept."""
    payload: Mapping[str, Any] = field(default_factory=dict)
    delay_s: float = 0.0
    priority: int = 0
    """Higher goes first; a person waiting beats background work."""
    max_attempts: int = 5


MAX_LEASES_PER_ATTEMPT = 4
"""Whoever held a job and vanished was killed, as a rule by something else: it may be begun so many times as often."""


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
    """A job used up its attempts. It waits, visibly, for someone to look and retry it."""

    job: int
    """Its number among the jobs, by which it can be retried."""
    job_kind: str
    """What was to be done: `backup`, `story_memory`, `desk_worker` …"""
    key: str
    """The job's own: of all jobs with one key, only the first is kept."""
    attempts: int
    """How often it was begun."""
    error: str
    """What went wrong last, secrets masked."""


class Jobs(Protocol):
    async def enqueue(self, jobs: Sequence[NewJob]) -> None: ...

    async def lease(self, kinds: Collection[str], *, holder: str, limit: int = 1, seconds: float = 60.0) -> list[Job]:
        """Take due jobs. A lease that runs out makes the job due again, counted as an attempt."""
        ...

    async def extend(self, job: Job, seconds: float) -> None: ...

    async def complete(
        self, job: Job, new_events: Sequence[NewEvent] = (), jobs: Sequence[NewJob] = ()
    ) -> list[AnyEvent]:
        """Record the result and finish the job, in one transaction. `LeaseLost` if it is no longer ours."""
        ...

    async def fail(self, job: Job, error: str, *, retry_in_s: float | None = None, fatal: bool = False) -> None:
        """Try again later (exponential backoff unless told when), or bury it once attempts are used up."""
        ...

    async def retry(self, job_id: int) -> None:
        """Bring a dead job back, with all its attempts."""
        ...

    async def find(self, *, state: JobState | None = None, limit: int = 100) -> list[Job]: ...

    async def next_due(self, kinds: Collection[str]) -> datetime | None: ...


def backoff_s(attempt: int, *, first: float = 1.0, maximum: float = 3600.0) -> float:
    """1 s, 2 s, 4 s … at most an hour."""
    return min(first * 2.0 ** (attempt - 1), maximum)
