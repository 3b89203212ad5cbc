"""Metrics of the event store and the background tasks in Prometheus' text format, read on each request."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from coterie.base.supervisor import Supervisor
from coterie.eventstore import Store


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
