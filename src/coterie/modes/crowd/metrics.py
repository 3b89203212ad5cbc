"""Prometheus metrics of every open room, counted from the bus so that the gateway never waits for them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from coterie.eventstore import Bus, WhenSlow
from coterie.llm import ModelCalled
from coterie.modes.crowd.events import CrowdWritten
from coterie.modes.crowd.protocol import AuditRecord, ChatMessage
from coterie.modes.crowd.queries import latency_stages
from coterie.modes.crowd.service import CrowdService

_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 60)
_QUEUE_LIMIT = 10_000
_SUBJECT_PATTERNS = ("chat.*.*", "event.room.*.crowd_written", "event.instance.model_called")


class CrowdMetrics(Collector):
    def __init__(self, service: CrowdService, bus: Bus) -> None:
        self._service = service
        self._bus = bus
        self._messages: Counter[tuple[str, str]] = Counter()
        self._audits: Counter[tuple[str, str, str]] = Counter()
        self._lines: Counter[tuple[str, str]] = Counter()
        self._fallbacks: Counter[str] = Counter()
        self._tokens: Counter[tuple[str, str, str]] = Counter()
        self._model_errors: Counter[tuple[str, str, str]] = Counter()
        self._registry = CollectorRegistry()
        self._stages = Histogram(
            "coterie_crowd_stage_seconds",
            "Seconds a persona's line spent in each stage, from the words or message that caused it.",
            ["room", "stage"],
            buckets=_BUCKETS_S,
            registry=self._registry,
        )
        self._registry.register(self)

    async def run(self, stop: asyncio.Event) -> None:
        """Count until `stop` is set. If counting falls behind, counts are lost, not messages."""
        async with asyncio.TaskGroup() as tasks:
            subscriptions = [tasks.create_task(self._subscribe(pattern)) for pattern in _SUBJECT_PATTERNS]
            await stop.wait()
            for task in subscriptions:
                task.cancel()

    async def _subscribe(self, pattern: str) -> None:
        async with self._bus.subscribe(pattern, limit=_QUEUE_LIMIT, when_slow=WhenSlow.DROP_OLDEST) as messages:
            async for message in messages:
                self.count(message.body)

    def count(self, body: object) -> None:
        if isinstance(body, ChatMessage):
            self._messages[body.room, body.author.kind] += 1
            for stage in latency_stages(body):
                self._stages.labels(body.room, stage.name).observe(stage.seconds)
        elif isinstance(body, AuditRecord):
            self._audits[body.room, body.action, body.rule] += 1
        elif isinstance(payload := getattr(body, "payload", None), CrowdWritten):
            room = str(getattr(body, "stream", "")).removeprefix("room:")
            self._lines[room, payload.outcome] += 1
            self._fallbacks[room] += bool(payload.fallback)
        elif isinstance(payload, ModelCalled) and payload.room in {
            each.rules.name for each in self._service.open_rooms
        }:
            self._tokens[payload.room, payload.role, "in"] += payload.tokens_in
            self._tokens[payload.room, payload.role, "out"] += payload.tokens_out
            if payload.error:
                self._model_errors[payload.room, payload.role, payload.error] += 1

    def collect(self) -> Iterator[Metric]:
        messages = CounterMetricFamily("coterie_crowd_messages", "Admitted messages.", labels=["room", "kind"])
        for labels, count in self._messages.items():
            messages.add_metric(labels, count)
        audits = CounterMetricFamily(
            "coterie_crowd_audits", "Audit records, by action and rule.", labels=["room", "action", "rule"]
        )
        for audit_labels, count in self._audits.items():
            audits.add_metric(audit_labels, count)
        lines = CounterMetricFamily(
            "coterie_crowd_lines",
            "Lines that personas decided to write, by outcome.",
            labels=["room", "outcome"],
        )
        for labels, count in self._lines.items():
            lines.add_metric(labels, count)
        fallbacks = CounterMetricFamily(
            "coterie_crowd_fallbacks", "Lines of personas' files, posted where a model's was not used.", labels=["room"]
        )
        for room_name, count in self._fallbacks.items():
            fallbacks.add_metric([room_name], count)
        tokens = CounterMetricFamily(
            "coterie_crowd_tokens", "Tokens of model calls, by direction.", labels=["room", "role", "direction"]
        )
        for token_labels, count in self._tokens.items():
            tokens.add_metric(token_labels, count)
        errors = CounterMetricFamily(
            "coterie_crowd_model_errors", "Failed model calls, by error.", labels=["room", "role", "error"]
        )
        for error_labels, count in self._model_errors.items():
            errors.add_metric(error_labels, count)
        memories = CounterMetricFamily("coterie_crowd_memories", "Memories that personas stored.", labels=["room"])
        for room in self._service.open_rooms:
            memories.add_metric([room.rules.name], room.memories_stored)
        yield from (messages, audits, lines, fallbacks, tokens, errors, memories)
        gauges = {
            "readers": GaugeMetricFamily("coterie_crowd_readers", "Connected readers.", labels=["room"]),
            "waiting": GaugeMetricFamily("coterie_crowd_waiting", "Posts that are not yet stored.", labels=["room"]),
            "writing": GaugeMetricFamily("coterie_crowd_writing", "Lines being written.", labels=["room"]),
            "skipped": GaugeMetricFamily(
                "coterie_crowd_skipped_frames", "Frames not sent to slow readers.", labels=["room"]
            ),
            "failed": GaugeMetricFamily(
                "coterie_crowd_failed_writes", "Batches of events that could not be stored.", labels=["room"]
            ),
            "overflows": GaugeMetricFamily(
                "coterie_crowd_overflows", "Posts refused because too many were waiting.", labels=["room"]
            ),
        }
        for room in self._service.open_rooms:
            name = [room.rules.name]
            gauges["readers"].add_metric(name, room.fanout.readers)
            gauges["waiting"].add_metric(name, room.gateway.waiting)
            gauges["writing"].add_metric(name, room.live.lines_in_progress if room.live is not None else 0)
            gauges["skipped"].add_metric(name, room.fanout.dropped)
            gauges["failed"].add_metric(name, room.gateway.failed_writes)
            gauges["overflows"].add_metric(name, room.gateway.overflows)
        yield from gauges.values()

    def text(self) -> bytes:
        return generate_latest(self._registry)
