"""Runs `coterie serve` and other commands in processes of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]


class Server:
    def __init__(self, home: Path, module: str = "coterie", settings: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.logs = home.parent / "logs.txt"
        with self.logs.open("w") as logs:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-m", module, "serve", "--port", "0"],
                cwd=ROOT,
                env={**environ(home), **(settings or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=logs,
                text=True,
            )
        address = re.search(r"http://127\.0\.0\.1:\d+", self.line())
        assert address is not None, self.logs.read_text()
        self.address = address[0]
        self.client = httpx.Client(base_url=self.address, timeout=120)
        self._wait()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def _wait(self) -> None:
        """Wait until the server accepts connections."""
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


def environ(home: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COTERIE_")}
    return {**inherited, "COTERIE_HOME": str(home)}


def coterie(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coterie", *arguments]
    return subprocess.run(command, env=environ(home), capture_output=True, text=True, timeout=120)


Start = Callable[..., Server]
