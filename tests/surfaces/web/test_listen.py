from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI

from coterie.base.errors import DiskFull, InUse
from coterie.surfaces.web.server import run_server
from coterie.surfaces.web.server_settings import ServerSettings


class Passage:
    """What runs around the server; remembers, and may refuse or ask for the end."""

    def __init__(self, *, refuse: Exception | None = None, stop_with: signal.Signals | None = None) -> None:
        self.told: list[str] = []
        self._refuse = refuse
        self._stop_with = stop_with

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        if self._refuse is not None:
            raise self._refuse
        self.told.append("in")
        if self._stop_with is not None:
            os.kill(os.getpid(), self._stop_with)
        yield
        self.told.append("out")


def test_a_port_that_is_taken_is_told_before_anything_starts() -> None:
    passage = Passage()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InUse, match=f"Port {port} on 127.0.0.1 cannot be used") as caught:
            run_server(FastAPI(), ServerSettings(port=port), within=passage.running())
    assert "--port" in caught.value.fix
    assert passage.told == []


def test_a_start_that_fails_tells_why_and_serves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    passage = Passage(refuse=DiskFull("No room.", "Make some."))
    with pytest.raises(DiskFull):
        run_server(FastAPI(), ServerSettings(port=0), within=passage.running())
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_start_ends_it_in_order(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    passage = Passage(stop_with=number)
    run_server(FastAPI(), ServerSettings(port=0), within=passage.running())
    assert passage.told == ["in", "out"]
    assert signal.getsignal(number) is before


def test_ipv6_is_written_so_that_it_can_be_clicked(capsys: pytest.CaptureFixture[str]) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 loopback here")
    run_server(FastAPI(), ServerSettings(host="::1", port=0), within=Passage(stop_with=signal.SIGTERM).running())
    assert "http://[::1]:" in capsys.readouterr().out


def test_the_address_that_is_told_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is printed before the server begins to accept: a script that reads it must not be refused."""
    reached: list[bool] = []

    def at_once(line: str, **_: object) -> None:
        port = int(line.split(":")[2].split()[0])
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            reached.append(True)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("builtins.print", at_once)
    run_server(FastAPI(), ServerSettings(port=0), within=Passage().running())
    assert reached == [True]
