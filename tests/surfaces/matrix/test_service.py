"""The Matrix service keeps trying when the homeserver does not work, and says why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from coterie.base.supervisor import Supervisor, TaskState
from coterie.messaging import RoomFiles
from coterie.surfaces.matrix import service as matrix_service
from coterie.surfaces.matrix.service import MatrixService
from coterie.surfaces.matrix.settings import MatrixSettings
from tests.contracts.surface_app import SurfaceApp

PASSWORD = "a wrong password"


class FakeHomeserver:
    """Answers every request alike, over a real socket."""

    def __init__(self, status: str, kind: str, body: str) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self._answer = (head + body).encode()
        self.requests: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append((await reader.readuntil(b"\r\n")).decode().strip())
        writer.write(self._answer)
        await writer.drain()
        writer.close()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between the tries, which are not waited for."""
    pauses: list[float] = []

    async def pause(_stop: asyncio.Event, seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0.001)

    monkeypatch.setattr(matrix_service, "pause", pause)
    return pauses


@asynccontextmanager
async def started(folder: Path, url: str) -> AsyncIterator[Callable[[], TaskState]]:
    """Run the service; yields a function that returns the state of its task."""
    app, supervisor = SurfaceApp(folder / "coterie.db"), Supervisor(min_delay_s=0.001)
    settings = MatrixSettings(homeserver=url, user="@bot:localhost", password=SecretStr(PASSWORD))
    service = MatrixService(
        app.router, app.store, settings, folder / "matrix", lambda _: RoomFiles(folder), supervisor=supervisor
    )
    (folder / "matrix").mkdir()
    async with service.running():
        yield lambda: next(state for state in supervisor.states() if state.name == "Matrix")
    await supervisor.stop()
    await app.router.close()
    app.store.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_wrong_password_is_reported_and_tried_again_slowly(tmp_path: Path, pauses: list[float]) -> None:
    refusal = json.dumps({"errcode": "M_FORBIDDEN", "error": "Invalid username or password"})
    homeserver = FakeHomeserver("403 Forbidden", "application/json", refusal)
    async with homeserver.running() as url, started(tmp_path, url) as state:
        await until(lambda: len(homeserver.requests) >= 3)
        assert state().status == "degraded"
        assert "does not accept the login of @bot:localhost" in state().error
        assert "Check the user and the password in Settings" in state().fix
        assert PASSWORD not in str(state())
        assert state().failures == 0
        assert pauses[:2] == [60.0, 120.0]


async def test_an_address_that_serves_a_web_page_is_reported_and_tried_again(
    tmp_path: Path, pauses: list[float]
) -> None:
    homeserver = FakeHomeserver("200 OK", "text/html", "<!doctype html><title>Welcome</title>")
    async with homeserver.running() as url, started(tmp_path, url) as state:
        await until(lambda: len(homeserver.requests) >= 3)
        assert (state().status, state().failures) == ("degraded", 0)
        assert "cannot be read" in state().error
        assert "matrix.homeserver" in state().fix


async def test_a_closed_port_is_reported_and_tried_again(tmp_path: Path, pauses: list[float]) -> None:
    async with FakeHomeserver("200 OK", "text/html", "").running() as url:
        pass
    async with started(tmp_path, url) as state:
        await until(lambda: len(pauses) >= 3)
        assert (state().status, state().failures) == ("degraded", 0)
        assert "does not answer" in state().error
        assert pauses[:3] == [1.0, 2.0, 4.0]


async def test_a_login_that_ended_is_reported_if_there_is_no_other(tmp_path: Path, pauses: list[float]) -> None:
    """The password logs in again as another device; here that login is refused as well."""
    gone = json.dumps({"errcode": "M_UNKNOWN_TOKEN", "error": "Unknown token"})
    homeserver = FakeHomeserver("401 Unauthorized", "application/json", gone)
    async with homeserver.running() as url, started(tmp_path, url) as state:
        await until(lambda: len(homeserver.requests) >= 4)
        assert state().status == "degraded"
        assert "no longer accepts this login" in state().error
        assert pauses[0] >= 60
