"""A guest's link opens its document and nothing else: every route, declared or not."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher
from fastapi import FastAPI, WebSocket
from pydantic import SecretStr
from starlette.routing import BaseRoute

from coterie.base.clock import SystemClock
from coterie.surfaces.openai_api import openai_router
from coterie.surfaces.web.draft.live import channel_name
from coterie.surfaces.web.server import create_web
from coterie.surfaces.web.shared.access import GUEST_COOKIE, guest_rule
from coterie.surfaces.webhook import webhook_router
from tests.surfaces.web.conftest import Web

PASSWORD = "the sea keeps no diary"
HASH = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
HTML = {"Accept": "text/html"}
CHANGE = "<change><original>Nobody asks why.</original><proposed>Who asks?</proposed><reason>Shorter.</reason></change>"
PUBLIC = {"/login", "/health", "/join", "/join/leave", "/static/{of}/{path:path}"}
GUEST_ROUTES = {
    "GET /draft/threads/{thread}",
    "GET /draft/threads/{thread}/events",
    "GET /draft/threads/{thread}/messages",
    "GET /draft/threads/{thread}/turns/{reply}",
    "GET /draft/changes/{change}",
    "GET /draft/workspaces/{workspace}/blame",
    "GET /draft/workspaces/{workspace}/changes/{path:path}",
    "GET /draft/workspaces/{workspace}/documents/{path:path}",
    "GET /draft/workspaces/{workspace}/history/{path:path}",
    "GET /draft/workspaces/{workspace}/live/{path:path}",
    "GET /draft/workspaces/{workspace}/sidebar/{path:path}",
    "GET /live",
    "POST /draft/changes/{change}/accept",
    "POST /draft/changes/{change}/decline",
    "POST /draft/changes/{change}/repropose",
    "POST /draft/changes/{change}/undo",
    "POST /draft/changes/{change}/withdraw",
    "POST /draft/threads/{thread}/accept",
    "POST /draft/threads/{thread}/messages",
    "POST /draft/threads/{thread}/stop",
    "POST /draft/threads/{thread}/turns",
    "POST /draft/threads/{thread}/turns/{reply}/retry",
    "POST /draft/workspaces/{workspace}/flush/{path:path}",
    "POST /draft/workspaces/{workspace}/live/{path:path}",
    "POST /draft/workspaces/{workspace}/threads",
    "PUT /draft/workspaces/{workspace}/documents/{path:path}",
}


@dataclass
class Place:
    """A document with a thread and a proposal."""

    workspace: str
    document: str
    thread: str
    change: str
    reply: str
    branch: str = "main"

    @property
    def address(self) -> str:
        return f"/draft/workspaces/{self.workspace}/documents/{self.document}"


async def make_place(web: Web, character: str, workspace: str, document: str, branch: str = "main") -> Place:
    base = f"/draft/workspaces/{workspace}"
    body = {"text": f"# {document}\n\nNobody asks why.\n", "branch": branch}
    if branch == "main":
        assert (await web.client.put(f"{base}/documents/{document}", json=body)).status_code == 200
    members = [{"bot": character, "format": "tags"}]
    request = {"document": document, "members": members, "branch": branch}
    thread = (await web.post(f"{base}/threads", request, status=201))["id"]
    web.script.replies.append(CHANGE)
    answer = await web.client.post(f"/draft/threads/{thread}/turns", json={"text": "Shorter?"})
    assert answer.status_code == 200
    (change,) = (await web.get(f"/draft/threads/{thread}"))["changes"]
    return Place(workspace, document, thread, change["id"], change["reply"], branch)


@dataclass
class Shared:
    web: Web
    asgi: FastAPI
    has_password: bool
    mine: Place
    others: list[Place]
    """Another document, the same one on another branch, and one of the same name in another workspace."""

    async def link(self, role: str = "writer", name: str = "Bo", **more: object) -> str:
        mine = self.mine
        body = {"name": name, "role": role, **more}
        made = await self.web.post(f"/draft/workspaces/{mine.workspace}/guests/{mine.document}", body, status=201)
        return str(made["link"]).removeprefix("/join#")

    @asynccontextmanager
    async def guest(self, role: str = "writer", name: str = "Bo") -> AsyncIterator[httpx.AsyncClient]:
        async with self.browser() as client:
            joined = await client.post("/join", json={"token": await self.link(role, name)})
            assert joined.status_code == 200, joined.text
            yield client

    @asynccontextmanager
    async def browser(self) -> AsyncIterator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(self.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            yield client


@pytest.fixture(params=["with a password", "without a password"])
async def shared(web: Web, request: pytest.FixtureRequest) -> Shared:
    character = (await web.post("/characters/ready/maren", status=201))["id"]
    first = (await web.post("/draft/workspaces", {"name": "The coast"}, status=201))["id"]
    second = (await web.post("/draft/workspaces", {"name": "The hills"}, status=201))["id"]
    mine = await make_place(web, character, first, "lamp.md")
    await web.post(f"/draft/workspaces/{first}/branches", {"name": "side", "source": "main"}, status=201)
    others = [
        await make_place(web, character, first, "secret.md"),
        await make_place(web, character, first, "lamp.md", "side"),
        await make_place(web, character, second, "lamp.md"),
    ]
    password = SecretStr(HASH) if request.param == "with a password" else None
    asgi = create_web(web.app, password)
    asgi.include_router(webhook_router(web.app.message_router, web.app.settings.webhook, web.app.room_files))
    asgi.include_router(
        openai_router(
            web.app.message_router, web.app.settings.api, SystemClock(), web.app.api_keys, files_of=web.app.room_files
        )
    )
    return Shared(web, asgi, password is not None, mine, others)


def routes_of(routes: list[BaseRoute]) -> Iterator[BaseRoute]:
    for route in routes:
        included = getattr(route, "original_router", None)
        yield from routes_of(included.routes) if included is not None else [route]


def requests_of(asgi: FastAPI) -> list[tuple[str, str, BaseRoute]]:
    return [
        (method, str(getattr(route, "path", "")), route)
        for route in routes_of(asgi.routes)
        for method in getattr(route, "methods", None) or ["GET"]
    ]


def fill(path: str, place: Place) -> str:
    values = {
        "workspace": place.workspace,
        "path": place.document,
        "thread": place.thread,
        "change": place.change,
        "reply": place.reply,
    }
    return re.sub(r"\{(\w+)(:\w+)?\}", lambda found: values.get(found.group(1), "1"), path)


def query(path: str, place: Place, branch: str | None = None) -> str:
    follow = channel_name(place.workspace, place.branch, place.document)
    if path == "/live":
        return str(httpx.QueryParams({"follow": f"{follow}:0"}))
    return str(httpx.QueryParams({"document": place.document, "line": "1", "branch": branch or place.branch}))


def body_of(path: str, place: Place) -> dict[str, object]:
    if path.endswith("/threads"):
        return {"document": place.document, "branch": place.branch, "members": [{"bot": "1"}]}
    if "/live/" in path:
        return {"branch": place.branch, "epoch": "1", "version": 0, "updates": []}
    if "/documents/" in path:
        return {"text": "Overwritten.", "branch": place.branch}
    return {"text": "Hello.", "comment": ""}


async def status_of(
    asgi: FastAPI, cookie: str, method: str, path: str, query_string: str, body: object, accept: str
) -> tuple[int, bytes]:
    """The status and the first part of a response; the rest of a stream is not waited for."""
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    first: list[bytes] = []
    sent = False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if sent:
            await asyncio.sleep(3_600)
        sent = True
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start" and not started.done():
            started.set_result(message["status"])
        first.append(message.get("body", b""))

    headers = {"host": "127.0.0.1:8000", "cookie": cookie, "accept": accept, "content-type": "application/json"}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query_string.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    task = asyncio.ensure_future(asgi(scope, receive, send))
    task.add_done_callback(lambda _: None if started.done() else started.set_result(0))
    try:
        async with asyncio.timeout(30):
            return await started, b"".join(first)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_declared_routes_are_the_ones_listed_here(shared: Shared) -> None:
    declared = {f"{method} {path}" for method, path, route in requests_of(shared.asgi) if guest_rule(route)}
    assert declared == GUEST_ROUTES


async def test_a_guest_gets_no_route_but_the_declared_ones(shared: Shared) -> None:
    cookie = f"{GUEST_COOKIE}-8000={await shared.link()}"
    walked = 0
    for method, path, route in requests_of(shared.asgi):
        if path in PUBLIC or guest_rule(route) is not None:
            continue
        for accept in ("text/html", "application/json"):
            place = shared.mine
            got = await status_of(
                shared.asgi, cookie, method, fill(path, place), query(path, place), body_of(path, place), accept
            )
            # A page and an API route can share a path: then the other one may be declared.
            other = f"{method} {path}" in GUEST_ROUTES
            assert got[0] == 403 or other, (method, path, accept, got)
            walked += 1
    assert walked > 300
    for path in ("/openapi.json", "/nothing/here", "/webhook", "/v1/models", "/metrics", "/"):
        assert (await status_of(shared.asgi, cookie, "GET", path, "", None, "*/*"))[0] == 403, path


async def test_a_guest_gets_the_declared_routes_for_their_document(shared: Shared) -> None:
    cookie = f"{GUEST_COOKIE}-8000={await shared.link()}"
    for method, path, route in requests_of(shared.asgi):
        if guest_rule(route) is None:
            continue
        accept = "text/html" if type(route).__name__ == "HtmlRoute" else "application/json"
        place = shared.mine
        got = await status_of(
            shared.asgi, cookie, method, fill(path, place), query(path, place), body_of(path, place), accept
        )
        if not path.endswith("/threads"):  # its member is no character of this document
            assert got[0] not in (401, 403) and got[0] < 500, (method, path, got)


async def test_a_guest_gets_nothing_of_other_documents_branches_and_workspaces(shared: Shared) -> None:
    cookie = f"{GUEST_COOKIE}-8000={await shared.link()}"
    before = await _everything(shared)
    for method, path, route in requests_of(shared.asgi):
        if guest_rule(route) is None:
            continue
        accept = "text/html" if type(route).__name__ == "HtmlRoute" else "application/json"
        for place in shared.others:
            got = await status_of(
                shared.asgi, cookie, method, fill(path, place), query(path, place), body_of(path, place), accept
            )
            assert got[0] == 403, (method, path, place, got)
    live = [
        ("/live", str(httpx.QueryParams({"follow": f"{channel}:0"})))
        for channel in ("instance", "1", "draft:x", channel_name(shared.mine.workspace, "side", "lamp.md"))
    ]
    for path, asked in live:
        got = await status_of(shared.asgi, cookie, "GET", path, asked, None, "text/event-stream")
        assert 400 <= got[0] < 500, (asked, got)
    assert await _everything(shared) == before


async def test_a_guest_cannot_follow_another_channel_by_a_header(shared: Shared) -> None:
    async with shared.guest() as client:
        mine = channel_name(shared.mine.workspace, "main", "lamp.md")
        other = channel_name(shared.mine.workspace, "main", "secret.md")
        answer = await client.get("/live", params={"follow": f"{mine}:0"}, headers={"Last-Event-ID": f"{other}:0"})
        assert answer.status_code == 403


@pytest.mark.parametrize("role", ["reader", "commenter"])
async def test_a_role_allows_what_it_says(shared: Shared, role: str) -> None:
    order = ["reader", "commenter", "writer"]
    cookie = f"{GUEST_COOKIE}-8000={await shared.link(role)}"
    before = await _texts(shared)
    for method, path, route in requests_of(shared.asgi):
        rule = guest_rule(route)
        if rule is None or path.endswith("/threads"):
            continue
        accept = "text/html" if type(route).__name__ == "HtmlRoute" else "application/json"
        place = shared.mine
        got = await status_of(
            shared.asgi, cookie, method, fill(path, place), query(path, place), body_of(path, place), accept
        )
        allowed = order.index(role) >= order.index(rule.role)
        assert (got[0] != 403) == allowed, (method, path, got)
    async with shared.guest(role) as client:
        live = f"/draft/workspaces/{shared.mine.workspace}/live/lamp.md"
        epoch = (await client.get(live)).json()["epoch"]
        update = {"branch": "main", "epoch": epoch, "version": 0, "updates": [{"client": "c", "changes": [[0, "x"]]}]}
        assert (await client.post(live, json=update)).status_code == 403
    assert await _texts(shared) == before


async def test_what_a_guest_does_carries_their_name(shared: Shared) -> None:
    mine, web = shared.mine, shared.web
    async with shared.guest(name="Bo") as bo:
        page = (await bo.get(mine.address, headers=HTML)).text
        assert "You are Bo" in page and 'data-guest="writer"' in page
        for leaked in ("/settings", "/memory", "/chats", "The hills", "secret.md", "/draft/inbox"):
            assert leaked not in page, leaked
        body = {"text": "Hello, I claim to be the owner.", "to": ""}
        sent = await bo.post(f"/draft/threads/{mine.thread}/messages?name=Ana&person=you", json=body)
        assert sent.status_code == 200
        for claim in ({"author": "you"}, {"name": "Ana"}, {"person": "you"}):
            answer = await bo.post(f"/draft/threads/{mine.thread}/messages", json={**body, **claim})
            assert answer.status_code == 400, "an unknown field is refused"
        assert (await bo.post(f"/draft/changes/{mine.change}/accept")).status_code == 200
        version = (await bo.get(mine.address)).json()
        saved = {"text": version["text"] + "\nMore.\n", "base": version["base"], "branch": "main"}
        assert (await bo.put(mine.address, json=saved)).status_code == 200
        other = {**saved, "text": "x", "thread": shared.others[0].thread}
        assert (await bo.put(mine.address, json=other)).status_code == 404, "a note in a thread of another document"
        members = [{"bot": (await web.get(f"/draft/threads/{mine.thread}"))["thread"]["members"][0]["bot"]}]
        opened = {"document": mine.document, "branch": "main", "members": members}
        assert (await bo.post(f"/draft/workspaces/{mine.workspace}/threads", json=opened)).status_code == 201
        elsewhere = (await web.post("/characters/ready/maren", status=201))["id"]
        asked = {**opened, "members": [{"bot": elsewhere}]}
        assert (await bo.post(f"/draft/workspaces/{mine.workspace}/threads", json=asked)).status_code == 403
    share = web.app.draft.sharing.of_document(mine.workspace, mine.document)[0]
    assert {turn.speaker for turn in web.app.draft.timeline.latest(f"room:{mine.thread}", 50)} >= {share.person}
    history = await web.get(f"/draft/workspaces/{mine.workspace}/history?document=lamp.md")
    assert [one["author"] for one in history][:2] == ["Bo", "Bo"]


async def test_a_link_expires_and_can_be_revoked(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, web = shared.mine, shared.web
    refused = 401
    async with shared.guest() as bo:
        assert (await bo.get(mine.address)).status_code == 200
        listed = await web.get(f"/draft/workspaces/{mine.workspace}/guests/{mine.document}")
        assert [(one["name"], one["role"], one["link"]) for one in listed] == [("Bo", "writer", None)]
        assert (await web.client.delete(f"/draft/guests/{listed[0]['id']}")).status_code == 200
        assert (await bo.get(mine.address)).status_code == refused
        assert await web.get(f"/draft/workspaces/{mine.workspace}/guests/{mine.document}") == []
    async with shared.guest() as bo:
        token = await shared.link(days=1)
        assert (await bo.get(mine.address)).status_code == 200
        clock = web.app.draft.sharing._clock
        later = clock.now() + timedelta(days=31)
        with monkeypatch.context() as patched:
            patched.setattr(type(clock), "now", lambda _: later)
            assert (await bo.get(mine.address)).status_code == refused
            assert (await bo.post("/join", json={"token": token})).status_code == 401


async def test_the_token_is_not_stored_and_a_wrong_one_opens_nothing(shared: Shared) -> None:
    token = await shared.link()
    events = shared.web.app.store.reader.read(limit=100_000)
    assert not any(token in event.payload.model_dump_json() for event in events)
    async with shared.browser() as client:
        for wrong in (token[:-1], token.upper(), "x", "you", "a" * 43):
            assert (await client.post("/join", json={"token": wrong})).status_code == 401, wrong
        for wrong in ("", "a.b", "é", "x" * 201, "a b"):
            assert (await client.post("/join", json={"token": wrong})).status_code == 400, wrong
        for cookie in ("x", "....", "a" * 5_000, '"', f"{token[:-1]}.x"):
            answer = await client.get(shared.mine.address, headers={"Cookie": f"{GUEST_COOKIE}-8000={cookie}"})
            no_link = cookie in ("....", '"')  # the browser is the owner's, if there is no password
            assert answer.status_code == (200 if no_link and not shared.has_password else 401), cookie


async def test_two_links_in_one_browser_each_open_their_document(shared: Shared) -> None:
    other = shared.others[0]
    made = await shared.web.post(
        f"/draft/workspaces/{other.workspace}/guests/{other.document}", {"name": "Robert"}, status=201
    )
    async with shared.guest(name="Bo") as client:
        joined = await client.post("/join", json={"token": made["link"].removeprefix("/join#")})
        assert joined.json()["address"].startswith(other.address)
        for place, name in ((shared.mine, "Bo"), (other, "Robert")):
            assert f"You are {name}" in (await client.get(place.address, headers=HTML)).text
        assert (await client.get(shared.others[2].address)).status_code == 403
        await client.post("/join/leave")
        assert (await client.get(shared.mine.address)).status_code == (401 if shared.has_password else 200)


async def test_a_join_page_needs_no_password_and_names_nobody(shared: Shared) -> None:
    await shared.web.client.put("/you", json={"name": "Ana-Sophia"})
    async with shared.browser() as client:
        page = await client.get("/join", headers=HTML)
        assert page.status_code == 200 and "Ana-Sophia" not in page.text and 'href="/settings"' not in page.text


async def test_a_websocket_is_closed_to_guests(shared: Shared) -> None:
    @shared.asgi.websocket("/socket")
    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()

    token = await shared.link()
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    headers = [(b"host", b"127.0.0.1:8000"), (b"cookie", f"{GUEST_COOKIE}-8000={token}".encode())]
    for path in ("/socket", "/draft/socket", "/live"):
        scope = {
            "type": "websocket",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"name=Ana",
            "headers": headers,
            "subprotocols": [],
            "scheme": "ws",
        }
        await shared.asgi(scope, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"] * 3


async def _everything(shared: Shared) -> tuple[object, int]:
    return await _texts(shared), shared.web.app.feed.last_id()


async def _texts(shared: Shared) -> object:
    places = [shared.mine, *shared.others]
    return [(await shared.web.get(f"{place.address}?branch={place.branch}"))["text"] for place in places]
