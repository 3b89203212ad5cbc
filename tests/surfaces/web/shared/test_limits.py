from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from coterie.surfaces.web.server import create_web
from coterie.surfaces.web.shared.limits import BodyLimits
from tests.surfaces.web.conftest import Web
from tests.surfaces.web.shared.serving import Connection, serving
from tests.surfaces.web.test_server import FakeServices


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server with a password, on a socket."""
    web = create_web(FakeServices(), SecretStr("a long password"), body_limits=BodyLimits(seconds=0.5))
    async with serving(web) as port:
        yield port


def head(path: str, *lines: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


CHUNKED = "Transfer-Encoding: chunked"
JSON = "Content-Type: application/json"


async def test_a_chunked_body_is_counted_as_it_arrives(port: int) -> None:
    client = await Connection.open(port)
    await client.send(head("/login", JSON, CHUNKED))
    for _ in range(12):
        await client.send(b"400\r\n" + b"x" * 1_024 + b"\r\n")
    status, body = await client.response()
    assert status == 413
    assert json.loads(body) == {"error": "The request is larger than 10,000 bytes.", "fix": "Send less at once."}
    await client.close()


async def test_a_body_that_does_not_arrive_is_answered_with_408(port: int) -> None:
    client = await Connection.open(port)
    await client.send(head("/login", JSON, "Content-Length: 100") + b'{"password": "')
    status, body = await client.response()
    assert status == 408
    assert json.loads(body)["fix"]
    await client.close()


async def test_without_a_session_a_body_is_refused_before_it_is_read(port: int) -> None:
    client = await Connection.open(port)
    await client.send(head("/characters", JSON, "Content-Length: 3000000"))
    assert (await client.response())[0] == 401
    await client.close()


async def test_a_declared_size_that_is_too_large_is_refused_at_once(web: Web) -> None:
    for size in ("5000000", "9" * 18, "9" * 5_000, "-1", "many"):
        answer = await web.client.post("/characters", content=b"x", headers={"content-length": size})
        assert answer.status_code == 413
        assert answer.json()["fix"]


async def test_files_may_be_larger_than_other_requests(web: Web) -> None:
    answer = await web.client.post("/characters/import", content=b"x" * 5_000_000)
    assert answer.status_code == 400
    assert "larger" not in answer.text


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": "\\ud800"}',
        b'{"name": "\\udfff\\ud800"}',
        b'{"\\ud800": 1}',
        b'{"name": "\xed\xa0\x80"}',
        b"[" * 5_000 + b"]" * 5_000,
        b'{"name": NaN}',
        '{"name": "Ana"}'.encode("utf-16"),
        b'{"name": ' + b"9" * 5_000 + b"}",
        b"[" + b"[]," * 150_000 + b"[]]",
        b'["' + b'","' * 250_000 + b'"]',
        b"{",
    ],
)
async def test_json_that_cannot_be_used_is_refused_by_every_route(web: Web, body: bytes) -> None:
    for method, path in json_routes(web):
        answer = await web.client.request(method, path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400, (method, path, answer.text)
        assert set(answer.json()) == {"error", "fix"}


def json_routes(web: Web) -> Iterator[tuple[str, str]]:
    """Every route with a JSON body, with arbitrary parameters."""
    found = 0
    for path, methods in web.asgi.openapi()["paths"].items():
        for method, operation in methods.items():
            if "application/json" in operation.get("requestBody", {}).get("content", {}):
                found += 1
                yield method.upper(), path.replace("{", "").replace("}", "")
    assert found > 30


async def test_long_texts_with_many_commas_are_accepted(web: Web) -> None:
    text = 'He said, "yes, yes", and went. ' * 6_000
    body = {"name": "Ana", "persona": text[:190_000], "scenario": "a, " * 100_000}
    answer = await web.client.post("/characters", json=body)
    assert "values" not in answer.text


async def test_half_a_pair_in_a_query_or_path_is_no_server_error(web: Web) -> None:
    for path in ("/search?q=%ED%A0%80", "/characters/%ED%A0%80", "/memories?owner=%ED%A0%80%00", "/chats/%00/turns"):
        answer = await web.client.get(path)
        assert answer.status_code < 500, (path, answer.text)


async def test_live_streams_beyond_the_limit_are_refused(web: Web) -> None:
    web.asgi.state.max_streams = 0
    answer = await web.client.get("/live?follow=instance:0")
    assert answer.status_code == 503
    assert answer.json()["fix"]


async def test_an_unfinished_body_ends_a_live_stream_without_error(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    """The stream listens for the end of its connection while the rest of the body is due."""
    limits = BodyLimits(seconds=0.3)
    async with serving(create_web(web.app, body_limits=limits)) as port:
        client = await Connection.open(port)
        await client.send(head("/live?follow=instance:0", "Content-Length: 10").replace(b"POST", b"GET"))
        received = await client.read_until_closed()
        assert b"200 OK" in received
        await client.close()
    assert "Traceback" not in caplog.text


async def test_the_end_of_a_client_during_its_body_is_no_error(port: int, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        client = await Connection.open(port)
        await client.send(head("/login", JSON, "Content-Length: 100") + b"{")
        await client.close()
    await asyncio.sleep(0.2)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as asking:
        assert (await asking.get("/health")).status_code == 200
    assert "Traceback" not in caplog.text


def test_a_body_that_arrives_steadily_may_take_longer() -> None:
    limits: Any = BodyLimits(seconds=20, bytes_per_s=1_000)
    assert limits.max_seconds(0) == 20
    assert limits.max_seconds(100_000) == 120
