from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import httpx
import pytest
from pydantic import SecretStr

from coterie.base.errors import ConfigError, CoterieError, DiskFull
from coterie.base.redaction import redact
from coterie.base.supervisor import TaskState
from coterie.characters import ApiKeys, CharacterPictures, Lorebooks, Personas, PictureFiles
from coterie.characters.people import People, Visits
from coterie.characters.service import Character, Characters
from coterie.characters.workspace import Workspaces
from coterie.conversation.feed import Feed
from coterie.eventstore import Store
from coterie.llm.router import Models
from coterie.memory import Memory
from coterie.messaging import Messenger
from coterie.modes.crowd import CrowdService
from coterie.modes.desk import DeskService
from coterie.modes.draft import DraftService
from coterie.modes.story import CharacterImporter, StoryService
from coterie.modes.story.sillytavern.importer import SillyTavernImporter
from coterie.ops.backups import BackupService
from coterie.ops.health import Health
from coterie.ops.model_setup import ModelSetup
from coterie.ops.settings_editor import SettingsEditor
from coterie.surfaces.web.server import create_web
from tests.surfaces.web.conftest import Web


class NoCharacters:
    def all(self) -> list[Character]:
        return []


class FakeServices:
    """Services whose state the test decides."""

    store: Store
    people: People
    visits: Visits
    memory: Memory
    story: StoryService
    draft: DraftService
    crowd: CrowdService
    desk: DeskService
    workspaces: Workspaces
    character_importer: CharacterImporter
    feed: Feed
    models: Models
    settings_editor: SettingsEditor
    model_setup: ModelSetup
    api_keys: ApiKeys
    backups: BackupService
    messengers: dict[str, Messenger]
    lorebooks: Lorebooks
    personas: Personas
    pictures: PictureFiles
    character_pictures: CharacterPictures
    sillytavern: SillyTavernImporter
    code_minutes = 15

    def __init__(self) -> None:
        self.characters = cast(Characters, NoCharacters())
        self.now = Health("ok")
        self.error: CoterieError | None = None

    def health(self) -> Health:
        return self.now

    def metrics(self) -> bytes:
        return b"coterie_events_total 3.0\n"

    def summary(self) -> list[tuple[str, str]]:
        if self.error is not None:
            raise self.error
        return [("Version", "0"), ("Kept in", "/<script>alert(1)</script>")]


@pytest.fixture
def services() -> FakeServices:
    return FakeServices()


@pytest.fixture
async def client(services: FakeServices) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_web(services))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


async def test_health_says_ok(client: httpx.AsyncClient) -> None:
    answer = await client.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_health_turns_503_when_the_server_is_unhealthy(client: httpx.AsyncClient, services: FakeServices) -> None:
    services.now = Health("failing")
    answer = await client.get("/health")
    assert (answer.status_code, answer.json()) == (503, {"status": "failing"})
    assert (await client.head("/health")).status_code == 503


async def test_health_names_the_parts_that_have_a_problem(services: FakeServices) -> None:
    problems = [
        TaskState("agent: Mira", "degraded", 2, "Mira cannot be reached.", "Start it."),
        TaskState("agent: Bo", "degraded", 0, "Bo cannot be reached.", "Start it."),
    ]
    services.now = Health("degraded", problems)
    anybody = {"status": "degraded", "parts": [{"name": "agent", "status": "degraded"}]}
    for password, expected in ((None, services.now.details()), (SecretStr("hunter2"), anybody)):
        transport = httpx.ASGITransport(create_web(services, password))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.get("/health")
            assert (answer.status_code, answer.json()) == (200, expected)
            if password is not None:
                await client.post("/login", json={"password": "hunter2"})
                answer = await client.get("/health")
            assert answer.json()["parts"][0] == {
                "name": "agent: Mira",
                "status": "degraded",
                "error": "Mira cannot be reached.",
                "fix": "Start it.",
                "failures": 2,
                "since": None,
            }


@pytest.mark.parametrize("path", ["/about", "/health"])
async def test_head_answers_like_get(client: httpx.AsyncClient, path: str) -> None:
    full, head = await client.get(path), await client.head(path)
    assert head.status_code == full.status_code == 200
    assert head.headers["content-type"] == full.headers["content-type"]
    assert head.headers["content-length"] == full.headers["content-length"]


async def test_metrics_are_in_prometheus_form(client: httpx.AsyncClient) -> None:
    answer = await client.get("/metrics")
    assert answer.text == "coterie_events_total 3.0\n"
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_the_about_page_shows_the_escaped_summary(client: httpx.AsyncClient) -> None:
    answer = await client.get("/about")
    assert answer.headers["content-type"].startswith("text/html")
    assert "<dt>Version</dt><dd>0</dd>" in answer.text
    assert "&lt;script&gt;" in answer.text
    assert "<script>" not in answer.text


@pytest.mark.parametrize("path", ["/about", "/health", "/metrics", "/styleguide", "/openapi.json", "/not-there"])
async def test_every_answer_has_the_security_headers(client: httpx.AsyncClient, path: str) -> None:
    headers = (await client.get(path)).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"


async def test_a_coterie_error_has_what_happened_and_a_fix(client: httpx.AsyncClient, services: FakeServices) -> None:
    services.error = ConfigError("It is wrong.", "Put it right.")
    answer = await client.get("/about")
    assert (answer.status_code, answer.json()) == (400, {"error": "It is wrong.", "fix": "Put it right."})
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_full_disk_is_a_server_error(client: httpx.AsyncClient, services: FakeServices) -> None:
    services.error = DiskFull("No room.", "Make some.")
    assert (await client.get("/about")).status_code == 503


async def test_s29_an_error_holds_no_secret(client: httpx.AsyncClient, services: FakeServices) -> None:
    redact.register("web-hidden-5")
    services.error = ConfigError("web-hidden-5 is wrong.", "Change web-hidden-5.")
    assert "web-hidden-5" not in (await client.get("/about")).text


async def test_openapi_is_served(client: httpx.AsyncClient) -> None:
    described = (await client.get("/openapi.json")).json()
    assert {"/health", "/metrics"} <= described["paths"].keys()
    assert list(described["paths"]["/health"]) == ["get"]


async def test_an_open_request_gets_503_on_shutdown(web: Web) -> None:
    _, chat = await web.begin()
    web.script.paused = True
    waiting = asyncio.create_task(ask_raw(web, f"{chat}/turns?wait=true", {"text": "Hello?"}))
    async with asyncio.timeout(20):
        while not web.app.story.replies.is_running(f"room:{chat.removeprefix('/chats/')}"):
            await asyncio.sleep(0.01)
        waiting.cancel()  # as uvicorn does once its patience is over
        status, body = await waiting
    assert status == 503
    assert json.loads(body)["error"] == "Coterie was stopped before this was answered."
    assert json.loads(body)["fix"]


async def ask_raw(web: Web, path: str, content: object) -> tuple[int, bytes]:
    """Call the ASGI application directly, so that the request can be cancelled."""
    path, _, query = path.partition("?")
    body = json.dumps(content).encode()
    headers = [(b"host", b"127.0.0.1:8000"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
             "headers": headers, "scheme": "http", "http_version": "1.1", "root_path": "",
             "server": ("127.0.0.1", 8000), "client": ("127.0.0.1", 1)}  # fmt: skip
    sent: list[Any] = []
    asked = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        for message in asked:
            return message
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    await web.asgi(scope, receive, send)
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:])
