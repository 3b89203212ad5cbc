"""A real `coterie serve`: it starts, answers, finishes open requests on shutdown, and exits with 0."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor

from tests.e2e.server_process import Start, coterie


def test_serve_starts_answers_and_exits_with_0(start: Start) -> None:
    server = start()
    assert server.client.get("/health").json() == {"status": "ok"}
    assert server.client.head("/health").status_code == 200
    assert "coterie_events_total 2.0" in server.client.get("/metrics").text
    page = server.client.get("/about")
    assert "Coterie" in page.text
    assert page.headers["x-content-type-options"] == "nosniff"
    assert (server.home / "config.toml").exists()
    looked = coterie(server.home, "events", "--json")
    assert [json.loads(line)["kind"] for line in looked.stdout.splitlines()] == ["started", "surface_synced"]
    second = coterie(server.home, "serve", "--port", "0")
    assert second.returncode == 4
    assert f"Another Coterie (process {server.process.pid})" in second.stderr
    assert server.client.get("/health").status_code == 200
    assert server.stop(signal.SIGTERM) == 0
    log = [json.loads(line) for line in server.logs.read_text().splitlines()]
    assert [(line["logger"], line["event"]) for line in log] == [
        ("coterie.app", "started"),
        ("coterie.app", "stopping"),
    ]
    assert not (server.home / "coterie.db-wal").exists(), "the store was not closed"
    assert coterie(server.home, "verify").returncode == 0


def test_an_open_request_finishes_before_shutdown_and_the_next_start_has_its_data(start: Start) -> None:
    for events, number in enumerate((signal.SIGTERM, signal.SIGINT), start=2):
        server = start("tests.e2e.slow_serve")
        assert f"coterie_events_total {events}.0" in server.client.get("/metrics").text
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(server.client.get, "/slow")
            assert server.line() == "slow page asked for\n"
            assert server.stop(number) == 0
            assert answer.result(60).json() == {"finished": True}
    assert coterie(server.home, "verify").returncode == 0
