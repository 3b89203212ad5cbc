from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from coterie.surfaces.web.shared.templates import accepts_html
from tests.surfaces.web.conftest import Web

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "page"),
    [(BROWSER, True), ("text/html", True), ("TEXT/HTML; q=0.5", True), ("*/*", False), ("application/json", False),
     ("text/html;q=0", False), ("", False), ("text/htmlx", False)],
)  # fmt: skip
def test_who_wants_a_page(accept: str, page: bool) -> None:
    assert accepts_html(Headers({"accept": accept})) is page


async def test_trouble_is_a_page_for_browsers_and_json_for_others(web: Web) -> None:
    page = await web.client.get("/chats/none", headers={"Accept": BROWSER})
    assert page.status_code == 404
    assert page.headers["content-type"].startswith("text/html")
    assert "There is no such chat." in page.text
    for headers in ({}, {"Accept": BROWSER, "HX-Request": "true"}):
        answer = await web.client.get("/chats/none", headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (404, "There is no such chat.")


async def test_s10_where_one_lands(web: Web) -> None:
    async def landed() -> str:
        return (await web.client.get("/")).headers["location"]

    assert await landed() == "/settings"
    await web.client.put("/you", json={"name": "Ana"})
    assert await landed() == "/characters/new"
    await web.post("/characters/ready/maren", status=201)
    home = await web.client.get("/")
    assert home.status_code == 200
    assert "Hello, Ana" in home.text
