from __future__ import annotations

import pytest

from coterie.surfaces.web.shared.access import is_this_machine
from tests.surfaces.web.conftest import Web


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000", "[::1]", "127.8.8.8", "a.localhost"],
)
def test_this_machines_names(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize(
    "host",
    ["", "example.org", "127.0.0.1.example.org", "localhost.example.org", "10.0.0.1", "[::2]", "[::1", "x@localhost",
     "localhost@example.org", "0.0.0.0", "2130706433", "[", "evil.com:127.0.0.1"],
)  # fmt: skip
def test_other_names(host: str) -> None:
    assert not is_this_machine(host)


@pytest.mark.parametrize("path", ["/", "/health", "/characters", "/openapi.json"])
async def test_a_rebound_name_reads_nothing(web: Web, path: str) -> None:
    answer = await web.client.get(path, headers={"host": "rebound.example.org"})
    assert answer.status_code == 421
    assert "rebound.example.org" in answer.json()["error"]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://localhost:8000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "same-origin", "origin": "http://evil.example"},
    ],
)
async def test_another_site_changes_nothing(web: Web, headers: dict[str, str]) -> None:
    for method, path in (("POST", "/characters/ready/io"), ("PUT", "/you"), ("DELETE", "/chats/x/guests/y")):
        answer = await web.client.request(method, path, headers=headers, json={"name": "Eve"})
        assert answer.status_code == 403, (method, answer.text)
    assert await web.get("/characters") == []


@pytest.mark.parametrize(
    "headers",
    [{}, {"origin": "http://127.0.0.1:8000"}, {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:8000"},
     {"sec-fetch-site": "none"}],
)  # fmt: skip
async def test_our_own_page_and_scripts_may_write(web: Web, headers: dict[str, str]) -> None:
    answer = await web.client.post("/characters/ready/io", headers=headers)
    assert answer.status_code == 201


async def test_another_site_cannot_make_a_browser_spend_a_model_call(web: Web) -> None:
    character = (await web.post("/characters/ready/io", status=201))["id"]
    image = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert (await web.client.get(f"/characters/{character}/kickoff", headers=image)).status_code == 403
    assert (await web.client.get("/health", headers={**image, "sec-fetch-mode": "navigate"})).status_code == 200


async def test_a_request_that_is_far_too_large_is_refused_unread(web: Web) -> None:
    answer = await web.client.post("/characters", content=b"x", headers={"content-length": "5000000"})
    assert answer.status_code == 413
    assert answer.json()["fix"]
