"""Asks a server for `/health` all the time, from a thread of its own: how long its event loop stands still."""

from __future__ import annotations

import http.client
import threading
import time
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class HealthProbe:
    """Measures while it is open: `with HealthProbe(address) as probe: …`, then `probe.longest_s`.

    Every request has a connection of its own, as that of a new visitor. A request without an answer counts with the
    time that it waited, and as a failure.
    """

    def __init__(self, address: str, *, pause_s: float = 0.02, timeout_s: float = 120.0) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._pause_s, self._timeout_s = pause_s, timeout_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="health probe", daemon=True)
        self.times_s: list[float] = []
        self.failures: list[str] = []

    @property
    def longest_s(self) -> float:
        return max(self.times_s, default=0.0)

    @property
    def median_s(self) -> float:
        return sorted(self.times_s)[len(self.times_s) // 2] if self.times_s else 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            started = time.perf_counter()
            problem = self._ask()
            self.times_s.append(time.perf_counter() - started)
            if problem:
                self.failures.append(problem)
            self._stopping.wait(self._pause_s)

    def _ask(self) -> str:
        """What went wrong; empty if the server is well."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            connection.request("GET", "/health")
            answer = connection.getresponse()
            answer.read()
            return "" if answer.status in (200, 503) else f"status {answer.status}"
        except (OSError, http.client.HTTPException) as error:
            return f"{type(error).__name__}: {error}"
        finally:
            connection.close()
