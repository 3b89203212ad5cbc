from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from coterie.base.supervisor import Supervisor
from coterie.eventstore import NewJob, Store
from coterie.ops.health import Metrics
from tests.ops.conftest import AppendSample


def metric_values(metrics: Metrics) -> dict[str, float]:
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_metrics_are_read_on_request(store: Store, append_sample: AppendSample) -> None:
    metrics = Metrics(store, Supervisor())
    before = metric_values(metrics)
    assert before["coterie_events_total"] == 0
    append_sample(7)
    append_sample(3)
    store.append_blocking([], jobs=[NewJob("embed", "a"), NewJob("embed", "b")])
    after = metric_values(metrics)
    assert after["coterie_events_total"] == 10
    assert after["coterie_commits_total"] - before["coterie_commits_total"] == 3
    assert after["coterie_requests_total"] - before["coterie_requests_total"] == 3
    assert after["coterie_commit_seconds_total"] > before["coterie_commit_seconds_total"]
    assert after["coterie_jobs{ready}"] == 2
    assert after["coterie_database_bytes"] == store.path.stat().st_size


async def test_a_purge_lowers_events_kept_but_not_the_total(store: Store, append_sample: AppendSample) -> None:
    append_sample(7)
    stream = store.reader.read(limit=1)[0].stream
    await store.purge(stream, first=1, last=2)
    after = metric_values(Metrics(store, Supervisor()))
    assert after["coterie_events_total"] == 8  # the purge itself is an event
    assert after["coterie_events_kept"] == store.query("SELECT count(*) FROM event")[0][0] < 8


def test_every_metric_has_a_description(store: Store) -> None:
    for family in text_string_to_metric_families(Metrics(store, Supervisor()).text().decode()):
        assert family.documentation


def test_two_instances_in_one_process_are_independent(store: Store) -> None:
    assert metric_values(Metrics(store, Supervisor())).keys() == metric_values(Metrics(store, Supervisor())).keys()
