from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI

from coterie.base.errors import DiskFull, InUse
from coterie.surfaces.web.server import open_listener, run_server
from coterie.surfaces.web.server_settings import ServerSettings


class RecordedContext:
    """The context around the server: records its calls, and may raise or send a signal."""

    def __init__(self, *, refuse: Exception | None = None, stop_with: signal.Signals | None = None) -> None:
        self.calls: list[str] = []
        self._refuse = refuse
        self._stop_with = stop_with

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        if self._refuse is not None:
            raise self._refuse
        self.calls.append("in")
        if self._stop_with is not None:
            os.kill(os.getpid(), self._stop_with)
        yield
        self.calls.append("out")


def test_a_port_in_use_is_an_error_before_anything_starts() -> None:
    context = RecordedContext()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InUse, match=f"Port {port} on 127.0.0.1 cannot be used") as caught:
            run_server(FastAPI(), ServerSettings(port=port), within=context.running())
    assert "--port" in caught.value.fix
    assert context.calls == []


def test_a_failed_start_raises_and_serves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    context = RecordedContext(refuse=DiskFull("No room.", "Make some."))
    with pytest.raises(DiskFull):
        run_server(FastAPI(), ServerSettings(port=0), within=context.running())
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_start_shuts_down_cleanly(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    context = RecordedContext(stop_with=number)
    run_server(FastAPI(), ServerSettings(port=0), within=context.running())
    assert context.calls == ["in", "out"]
    assert signal.getsignal(number) is before


def test_an_ipv6_address_is_printed_as_a_url(capsys: pytest.CaptureFixture[str]) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 loopback here")
    run_server(
        FastAPI(), ServerSettings(host="::1", port=0), within=RecordedContext(stop_with=signal.SIGTERM).running()
    )
    assert "http://[::1]:" in capsys.readouterr().out


def test_the_printed_address_accepts_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is printed before the server begins to accept: a script that reads it must not be refused."""
    reached: list[bool] = []

    def at_once(line: str, **_: object) -> None:
        port = int(line.split(":")[2].split()[0])
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            reached.append(True)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("builtins.print", at_once)
    run_server(FastAPI(), ServerSettings(port=0), within=RecordedContext().running())
    assert reached == [True]


async def test_connections_send_without_delay() -> None:
    delayed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        delayed.set_result(not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = open_listener("127.0.0.1", 0)
    async with await asyncio.start_server(accept, sock=listener):
        _, client = await asyncio.open_connection(*listener.getsockname())
        assert not await delayed
        client.close()
        await client.wait_closed()
