"""A real `coterie serve`: it comes up, answers, lets an open request finish when told to stop, and ends with 0."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]


class Server:
    def __init__(self, house: Path, module: str) -> None:
        self.house = house
        self.logs = house.parent / "logs.txt"
        with self.logs.open("w") as logs:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-m", module, "serve", "--port", "0"],
                cwd=ROOT,
                env=environ(house),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=logs,
                text=True,
            )
        address = re.search(r"http://127\.0\.0\.1:\d+", self.line())
        assert address is not None, self.logs.read_text()
        self.address = address[0]
        self.client = httpx.Client(base_url=self.address, timeout=60)
        self._wait()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def _wait(self) -> None:
        """Between the address being told and the door being open there are moments."""
        until = time.monotonic() + 60
        while True:
            try:
                self.client.get("/health")
                return
            except httpx.ConnectError:
                assert time.monotonic() < until, self.logs.read_text()
                time.sleep(0.02)

    def stop(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)

    def close(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def environ(house: Path) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("COTERIE_")}
    return {**ours, "COTERIE_HOME": str(house)}


def coterie(house: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coterie", *arguments]
    return subprocess.run(command, env=environ(house), capture_output=True, text=True, timeout=120)


Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    servers: list[Server] = []

    def begin(module: str = "coterie") -> Server:
        servers.append(Server(tmp_path / "house", module))
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


def test_it_comes_up_answers_and_stops_with_0(start: Start) -> None:
    server = start()
    assert server.client.get("/health").json() == {"status": "ok"}
    assert server.client.head("/health").status_code == 200
    assert "coterie_events_total 1.0" in server.client.get("/metrics").text
    page = server.client.get("/about")
    assert "Coterie" in page.text
    assert page.headers["x-content-type-options"] == "nosniff"
    assert (server.house / "config.toml").exists()
    looked = coterie(server.house, "events", "--json")
    assert [json.loads(line)["kind"] for line in looked.stdout.splitlines()] == ["started"]
    second = coterie(server.house, "serve", "--port", "0")
    assert second.returncode == 4
    assert f"Another Coterie (process {server.process.pid})" in second.stderr
    assert server.client.get("/health").status_code == 200
    assert server.stop(signal.SIGTERM) == 0
    told = [json.loads(line) for line in server.logs.read_text().splitlines()]
    assert [(line["logger"], line["event"]) for line in told] == [
        ("coterie.app", "started"),
        ("coterie.app", "stopping"),
    ]
    assert not (server.house / "coterie.db-wal").exists(), "the store was not closed"
    assert coterie(server.house, "verify").returncode == 0


def test_an_open_request_finishes_before_the_end_and_the_next_start_goes_on(start: Start) -> None:
    for began, number in enumerate((signal.SIGTERM, signal.SIGINT), start=1):
        server = start("tests.e2e.slow_serve")
        assert f"coterie_events_total {began}.0" in server.client.get("/metrics").text
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(server.client.get, "/slow")
            assert server.line() == "slow page asked for\n"
            assert server.stop(number) == 0
            assert answer.result(60).json() == {"finished": True}
    assert coterie(server.house, "verify").returncode == 0
