"""`coterie serve` in a process of its own, with a scripted model, that can reach this machine only.

`python -m bench.lib.server_process ARGUMENTS` is `coterie ARGUMENTS` in which every connection elsewhere is refused.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench.lib.model_server import model
from coterie.base.values import is_loopback

PASSWORD = "a password for the bench"


class ServerProcess:
    def __init__(self, home: Path, address: str, process: subprocess.Popen[str], log: Path, model: str) -> None:
        self.home = home
        self.address = address
        self.model = model
        """The address of the scripted model."""
        self.log = log
        self._process = process
        self._memory = psutil.Process(process.pid)

    def log_in(self) -> dict[str, str]:
        """The cookie of a new session."""
        answer = httpx.post(f"{self.address}/login", json={"password": PASSWORD}, timeout=60)
        answer.raise_for_status()
        return dict(answer.cookies)

    def rss_mb(self) -> float:
        return float(self._memory.memory_info().rss / 1e6)

    def cpu_s(self) -> float:
        times = self._memory.cpu_times()
        return float(times.user + times.system)

    def workers_rss_mb(self) -> float:
        return float(sum(child.memory_info().rss for child in self._memory.children(recursive=True)) / 1e6)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def verify(self) -> bool:
        """Whether `coterie verify` finds the database clean. The server has to be stopped."""
        done = _run(self.home, "verify")
        if done.returncode:
            print(done.stdout + done.stderr)
        return done.returncode == 0


@contextmanager
def serving(folder: Path) -> Iterator[ServerProcess]:
    """Run a server with a password; at the end it is stopped as by Ctrl-C."""
    home, log = folder / "home", folder / "log.txt"
    home.mkdir(exist_ok=True)
    with model() as address, log.open("w") as errors:
        (home / "config.toml").write_text(_config(address))
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "bench.lib.server_process", "serve", "--port", "0"],
            env=_environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            assert process.stdout is not None
            found = next((re.search(r"http://127\.0\.0\.1:\d+", line) for line in process.stdout), None)
            if found is None:
                raise SystemExit(f"The server did not start:\n{log.read_text()}")
            yield ServerProcess(home, found[0], process, log, address)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _config(model_address: str) -> str:
    return f"""
[server]
password = "{PASSWORD}"

[models.roles]
narrative = "local/script"
classifier = "local/script"
compactor = "local/script"

[models.providers.local]
base_url = "{model_address}"
flat_rate = true
native_schema = true

[telegram]
api_url = "http://127.0.0.1:9"
webhook_url = "https://127.0.0.1:9"
"""


def _environment(home: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COTERIE_")}
    return {**inherited, "COTERIE_HOME": str(home.absolute())}


def _run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coterie", *arguments]
    return subprocess.run(command, env=_environment(home), capture_output=True, text=True, check=False)


def _stay_on_this_machine(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple) and not is_loopback(str(arguments[1][0])):
        raise PermissionError(f"This bench does not connect to {arguments[1][0]}.")
    if event == "socket.getaddrinfo" and arguments[0] and not is_loopback(str(arguments[0])):
        raise PermissionError(f"This bench does not look up {arguments[0]}.")


if __name__ == "__main__":
    from coterie.cli import main

    sys.addaudithook(_stay_on_this_machine)
    main()
