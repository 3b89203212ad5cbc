from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from coterie.eventstore import NewJob, Store
from coterie.ops.metrics import Metrics
from tests.ops.conftest import Live


def figures(metrics: Metrics) -> dict[str, float]:
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_metrics_are_read_on_request(store: Store, live: Live) -> None:
    metrics = Metrics(store)
    before = figures(metrics)
    assert before["coterie_events_total"] == 0
    live(7)
    live(3)
    store.append_blocking([], jobs=[NewJob("embed", "a"), NewJob("embed", "b")])
    after = figures(metrics)
    assert after["coterie_events_total"] == 10
    assert after["coterie_commits_total"] - before["coterie_commits_total"] == 3
    assert after["coterie_requests_total"] - before["coterie_requests_total"] == 3
    assert after["coterie_commit_seconds_total"] > before["coterie_commit_seconds_total"]
    assert after["coterie_jobs{ready}"] == 2
    assert after["coterie_database_bytes"] == store.path.stat().st_size


async def test_a_purge_lowers_events_kept_but_not_the_total(store: Store, live: Live) -> None:
    live(7)
    stream = store.reader.read(limit=1)[0].stream
    await store.purge(stream, first=1, last=2)
    after = figures(Metrics(store))
    assert after["coterie_events_total"] == 8  # the purge itself is an event
    assert after["coterie_events_kept"] == store.query("SELECT count(*) FROM event")[0][0] < 8


def test_every_metric_has_a_description(store: Store) -> None:
    for family in text_string_to_metric_families(Metrics(store).text().decode()):
        assert family.documentation


def test_two_instances_in_one_process_are_independent(store: Store) -> None:
    assert figures(Metrics(store)).keys() == figures(Metrics(store)).keys()
