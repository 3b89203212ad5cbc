"""The health of the running server, and its metrics in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.supervisor import Supervisor, TaskState, describe
from coterie.eventstore import Store

HealthStatus = Literal["ok", "degraded", "failing"]
_log = get_logger(__name__)


@dataclass(frozen=True)
class Health:
    status: HealthStatus
    """ok: everything works; degraded: a part does not; failing: the database cannot be read or written."""
    problems: Sequence[TaskState] = ()
    tasks: Sequence[TaskState] = ()
    """All background tasks, with or without a problem."""

    @property
    def rows(self) -> list[TaskState]:
        """All background tasks, those with a problem first."""
        return [*self.problems, *(state for state in self.tasks if state.healthy)]

    def public(self) -> dict[str, Any]:
        """What anybody may know: which parts have a problem."""
        parts = sorted({(state.part, state.status) for state in self.problems})
        return self._with_parts([{"name": part, "status": status} for part, status in parts])

    def details(self) -> dict[str, Any]:
        """What the owner may know. Secrets are redacted."""
        return self._with_parts(
            [
                {
                    "name": state.name,
                    "status": state.status,
                    "error": state.error,
                    "fix": state.fix,
                    "failures": state.failures,
                    "since": state.since.isoformat() if state.since is not None else None,
                }
                for state in self.problems
            ]
        )

    def _with_parts(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        return {"status": self.status, "parts": parts} if parts else {"status": self.status}


def check_health(store: Store, supervisor: Supervisor) -> Health:
    tasks, problems = supervisor.states(), supervisor.problems()
    if (failure := _database_failure(store)) is not None:
        _log.error("unhealthy", error=failure.error)
        return Health("failing", [failure, *problems], tasks)
    return Health("degraded" if problems else "ok", problems, tasks)


def _database_failure(store: Store) -> TaskState | None:
    try:
        store.check_file()
    except CoterieError as error:
        return TaskState("database", "failed", 0, *describe(error))
    if not store.is_writable:
        what, fix = "The database cannot be written.", "Free some space, or check the disk, then restart the server."
        return TaskState("database", "failed", 0, what, fix)
    return None


# Metrics, read on each request


class StoreCollector(Collector):
    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        writer = self._store.writer_stats
        yield CounterMetricFamily("coterie_events", "Events ever recorded.", self._store.reader.last_id())
        kept = self._store.reader.count()
        yield GaugeMetricFamily("coterie_events_kept", "Events in the log that were not purged.", kept)
        yield CounterMetricFamily("coterie_commits", "Transactions committed since the start.", writer.commits)
        yield CounterMetricFamily("coterie_requests", "Write requests served since the start.", writer.requests)
        yield CounterMetricFamily("coterie_commit_seconds", "Time spent in transactions.", writer.seconds)
        jobs = GaugeMetricFamily("coterie_jobs", "Jobs by state.", labels=["state"])
        for state, count in self._store.reader.jobs.count_by_state().items():
            jobs.add_metric([state], count)
        yield jobs
        size = self._store.path.stat().st_size
        yield GaugeMetricFamily("coterie_database_bytes", "Size of the database file.", size)


class TaskCollector(Collector):
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterator[Metric]:
        failures = CounterMetricFamily(
            "coterie_task_failures", "Failures of background tasks since the start.", labels=["task"]
        )
        healthy = GaugeMetricFamily("coterie_task_healthy", "Whether a background task works: 1 or 0.", labels=["task"])
        for state in self._supervisor.states():
            failures.add_metric([state.name], state.failures)
            healthy.add_metric([state.name], int(state.healthy))
        yield from (failures, healthy)


class Metrics:
    def __init__(self, store: Store, supervisor: Supervisor) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(StoreCollector(store))
        self._registry.register(TaskCollector(supervisor))
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        return generate_latest(self._registry)
