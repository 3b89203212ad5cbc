from __future__ import annotations

import asyncio
import errno
import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from coterie.surfaces.web.server import create_web
from coterie.surfaces.web.shared.errors import describe_exception
from tests.surfaces.web.conftest import Web
from tests.surfaces.web.shared.serving import Connection, serving
from tests.surfaces.web.test_server import FakeServices, ask_raw


class FailingServices(FakeServices):
    failure: Exception = RuntimeError("a bug")

    def summary(self) -> list[tuple[str, str]]:
        raise self.failure


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (RuntimeError("a bug"), 500),
        (KeyError("a bug"), 500),
        (ValueError("a bug"), 500),
        (TimeoutError(), 500),
        (ExceptionGroup("bugs", [KeyError("a bug")]), 500),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), 400),
        (OverflowError("Python int too large to convert to SQLite INTEGER"), 400),
        (OSError(errno.ENAMETOOLONG, "File name too long"), 400),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), 400),
        (ValueError("embedded null byte"), 400),
        (OSError(errno.ENOSPC, "No space left on device"), 503),
    ],
)
async def test_an_unexpected_exception_has_our_shape_and_is_logged_once(
    failure: Exception, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    services = FailingServices()
    services.failure = failure
    with capture_logs() as logs:
        async with serving(create_web(services)) as port:
            client = await Connection.open(port)
            for _ in range(2):  # on the same connection: it is not reset
                await client.send(b"GET /about HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                answered, body = await client.response()
                assert answered == status
                assert set(json.loads(body)) == {"error", "fix"}
            await client.close()
    assert [(line["event"], line["exc_info"]) for line in logs] == [("a request failed", failure)] * 2
    problems = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert problems == []  # uvicorn does not log it once more


async def test_an_exception_after_the_response_began_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse

    from coterie.surfaces.web.shared.errors import ErrorMiddleware

    web = FastAPI()
    web.add_middleware(ErrorMiddleware)

    async def parts() -> Any:
        yield b"begun"
        raise RuntimeError("a bug")

    @web.get("/")
    async def stream() -> StreamingResponse:
        return StreamingResponse(parts())

    async with serving(web) as port:
        client = await Connection.open(port)
        await client.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        received = await client.read_until_closed()
        await client.close()
    assert b"begun" in received
    assert not received.endswith(b"0\r\n\r\n")  # the response is visibly incomplete


@given(st.sampled_from([OSError, ValueError, UnicodeError, OverflowError, RuntimeError]), st.text(max_size=50))
def test_every_exception_is_described(kind: type[Exception], text: str) -> None:
    status, what, fix = describe_exception(kind(text))
    assert 400 <= status < 600
    assert what
    assert fix


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "//]", "http://[::ffff::]", "http://\x7f"])
async def test_an_origin_that_is_no_address_is_another_site(web: Web, origin: str) -> None:
    answer = await web.client.post("/characters/ready/io", headers={"origin": origin})
    assert answer.status_code == 403
    assert answer.json()["fix"]


@pytest.mark.parametrize("last", ["9" * 5_000, "9" * 30, str(2**63), "²", "-1", "chat:" + "9" * 5_000])
async def test_a_last_event_id_of_any_size_opens_the_stream(web: Web, last: str) -> None:
    _, chat = await web.begin()
    for path in (f"{chat}/events", "/live?follow=instance:0", f"/live?follow=instance:{'9' * 5_000}"):
        assert await stream_status(web, path, last) == 200, path


async def stream_status(web: Web, path: str, last_event_id: str) -> int:
    """The status of a stream, which is then ended."""
    path, _, query = path.partition("?")
    started = asyncio.Event()
    sent: list[Any] = []
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
             "headers": [(b"host", b"127.0.0.1"), (b"last-event-id", last_event_id.encode())], "scheme": "http",
             "http_version": "1.1", "root_path": "", "server": None, "client": None}  # fmt: skip
    parts = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        for part in parts:
            return part
        await started.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        started.set()

    async with asyncio.timeout(60):
        await web.asgi(scope, receive, send)
    return int(sent[0]["status"])


@pytest.mark.parametrize("folder", ["/" + "n" * 300, "/tmp/\0", "/proc/1/root/x", "/dev/null/x", "\ud800"])
async def test_a_folder_that_cannot_be_used_is_no_server_error(web: Web, folder: str) -> None:
    status, body = await ask_raw(web, "/draft/workspaces", {"folder": folder, "name": "A"})
    assert 400 <= status < 500, body
    assert set(json.loads(body)) == {"error", "fix"}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=st.binary(max_size=40), value=st.binary(max_size=60))
def test_headers_of_any_bytes_are_no_server_error(name: bytes, value: bytes, tmp_path: Path) -> None:
    """The middlewares read them before any error handler of the framework."""
    header = bytes(byte for byte in value if byte not in b"\r\n\0")

    async def ask() -> list[int]:
        transport = httpx.ASGITransport(create_web(FakeServices()))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            fields = [b"origin", b"cookie", b"accept", b"sec-fetch-site", b"content-type", b"last-event-id"]
            answers = [await client.post("/nowhere", headers=[(field, header)], content=name) for field in fields]
            return [answer.status_code for answer in answers]

    assert max(asyncio.run(ask())) < 500
