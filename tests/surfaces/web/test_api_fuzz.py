"""Every route of `/openapi.json` on a real server, with requests made by schemathesis; `bench.fuzz_api` sends more."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from bench.lib.api_fuzzer import ApiFuzzer, fill, page_routes
from bench.lib.server_process import serving
from tests.surfaces.web.conftest import Web


def test_every_route_answers_as_described_whatever_is_sent(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        cookies = server.log_in()
        schema = httpx.get(f"{server.address}/openapi.json", cookies=cookies, timeout=60).json()
        ids = fill(server, cookies)
        routes = [*schema["paths"], *(route.path for route in page_routes())]
        assert {name for path in routes for name in re.findall(r"\{(\w+)", path)} <= {name for name in ids if ids[name]}
        fuzzer = ApiFuzzer(server.address, schema, ids)
        fuzzer.run_pages(page_routes(), cookies, examples=3)
        fuzzer.run(cookies, examples=2)
        fuzzer.run({}, examples=1, number=2)
    result = fuzzer.result
    assert result.problems == {}
    assert (result.server_errors, result.hangs, result.undocumented) == (0, 0, 0)
    assert result.requests > 2.5 * result.operations
    assert server.verify()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("messages", {"text": "hello", "reply_to": "Øaÿ"}),
        ("rulings", {"what": "follow", "who": "\x11\x02"}),
        ("rulings", {"what": "timeout", "who": "a@b", "seconds": 5}),
    ],
)
async def test_names_that_the_chat_cannot_hold_are_refused(web: Web, path: str, body: dict[str, object]) -> None:
    room = (await web.get("/crowd"))[0]["name"]
    before = web.app.store.reader.last_id()
    await web.post(f"/crowd/{room}/{path}", body, status=400)
    assert web.app.store.reader.last_id() == before


async def test_a_character_with_little_text_joins_a_room(web: Web) -> None:
    body = {"name": "X", "persona": "a", "voice_samples": ["b"]}
    character = (await web.post("/characters", body, status=201))["id"]
    room = (await web.get("/crowd"))[0]["name"]
    persona = await web.post(f"/crowd/{room}/people", {"character": character})
    assert persona["bio"].startswith("X. a")
