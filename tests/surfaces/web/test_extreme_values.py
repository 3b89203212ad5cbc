"""Extreme values: refused where they enter, and shown where a log has them already. No answer is a 5xx."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from coterie.base.clock import SystemClock
from coterie.characters.identity import Identity
from coterie.characters.people import PersonAdded
from coterie.characters.service import CharacterAuthored, OwnerAuthored
from coterie.conversation.events import AssistantTurn, AssistantTurnStarted, Segment, UserTurn
from coterie.eventstore import NewEvent
from coterie.memory.events import MemoryAdded
from coterie.modes.desk.events import DeskOpened, ScheduleRan, ScheduleSet, ScheduleTime
from coterie.modes.story.events import (
    Activity,
    ActivityChange,
    ChatCreated,
    ClockMoved,
    ContainerCreated,
    ManualEdit,
    RelationshipUpdated,
    SceneOpened,
)
from coterie.surfaces.openai_api.routes import openai_router
from coterie.surfaces.openai_api.settings import ApiSettings
from coterie.surfaces.webhook.routes import webhook_router
from coterie.surfaces.webhook.surface import WebhookSettings
from tests.surfaces.web.conftest import Web

BROWSER = {"Accept": "text/html"}
PAGES = ("/", "/chats", "/characters", "/memory", "/memory?view=timeline", "/memory?view=graph", "/ops", "/search?q=a")
TIMES = (
    "9999-12-31T23:59:59+00:00",
    "9999-12-31T23:59:59-23:59",
    "9998-01-01T00:00:00+00:00",
    "0001-01-01T00:00:00+00:00",
    "0001-01-01T00:00:00+23:59",
    "0099-06-01T00:00:00+00:00",
)
LARGE_INTEGERS = (2**63, -(2**63) - 1, 10**30, int("9" * 4_000))


@pytest.fixture
def client(web: Web) -> Iterator[httpx.AsyncClient]:
    """The API with the routes of all surfaces; an error is a response, as on a real server."""
    web.asgi.include_router(webhook_router(web.app.message_router, WebhookSettings(), web.app.room_files))
    web.asgi.include_router(
        openai_router(
            web.app.message_router, ApiSettings(), SystemClock(), web.app.api_keys, files_of=web.app.room_files
        )
    )
    transport = httpx.ASGITransport(web.asgi, raise_app_exceptions=False)
    yield httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000")


async def check_pages(client: httpx.AsyncClient, paths: tuple[str, ...] = PAGES) -> None:
    for path in paths:
        for headers in (BROWSER, {}):
            answer = await client.get(path, headers=headers)
            assert answer.status_code < 500, (path, headers, answer.text[-400:])


@pytest.mark.parametrize("time", ["9999-12-31T23:59", *TIMES])
async def test_an_opening_outside_the_supported_times_is_refused(
    web: Web, client: httpx.AsyncClient, time: str
) -> None:
    character = (await web.post("/characters/ready/maren", status=201))["id"]
    answer = await client.post(f"/characters/{character}/kickoff", json={"time": time})
    assert answer.status_code == 400, answer.text
    assert await web.get("/chats") == []
    await check_pages(client)


@pytest.mark.parametrize("time", TIMES)
async def test_a_time_that_a_model_proposes_never_breaks_the_form(
    web: Web, client: httpx.AsyncClient, time: str
) -> None:
    character = (await web.post("/characters", {"name": "Mara", "kickoff": "Rain."}, status=201))["id"]
    web.script.shapes["Opening"] = {"title": "Rain", "time": time}
    form = await client.get(f"/characters/{character}/kickoff/form", headers=BROWSER)
    assert form.status_code == 200, form.text[-400:]
    proposed = await web.get(f"/characters/{character}/kickoff")
    assert proposed["opening"]["title"] == "Rain"
    await web.post(f"/characters/{character}/kickoff", proposed["opening"], status=201)


async def test_the_latest_accepted_time_can_be_moved_on_and_shown(web: Web, client: httpx.AsyncClient) -> None:
    _, chat = await web.begin(time="8999-12-31T23:59")
    web.script.shapes["TurnAnalysis"] = {"minutes": 10_080}
    for _ in range(3):
        await web.say(chat, "The weeks pass.")
    await check_pages(client, (*PAGES, chat, f"{chat}/drawer", f"{chat}/export?format=jsonl"))


@pytest.mark.parametrize("time", TIMES)
async def test_a_clock_is_not_set_outside_the_supported_times(web: Web, client: httpx.AsyncClient, time: str) -> None:
    _, chat = await web.begin()
    answer = await client.patch(f"{chat}/drawer", json={"edits": [{"field": "clock", "value": time}]})
    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize("time", TIMES)
async def test_an_import_with_times_out_of_range_is_shown(web: Web, client: httpx.AsyncClient, time: str) -> None:
    character, _ = await web.begin()
    line = f'{{"name": "Ana", "is_user": true, "mes": "Hello", "send_date": "{time}"}}'
    imported = await client.post(f"/characters/{character}/chats/import", content=line)
    assert imported.status_code == 201, imported.text
    memory = f'{{"text": "The boat sank.", "happened": "{time}"}}'
    assert (await client.post(f"/memories/import?owner={character}", content=memory)).status_code == 201
    await check_pages(client, (*PAGES, f"/chats/{imported.json()['id']}"))


@pytest.mark.parametrize(
    "when",
    [
        *({"every_s": value} for value in (1e18, 1e308, "Infinity", "NaN", -1, 0, 10**400)),
        *({"at": time} for time in TIMES),
        *({"cron": "0 8 * * *", "zone": zone} for zone in ("Europe", "x" * 5_000, "", "../etc/passwd", "\0")),
        {"cron": "0 0 30 2 *"},
        {"every_s": 3600, "hours": "99:99-00:00"},
    ],
    ids=lambda when: str(when)[:40],
)
async def test_a_schedule_out_of_range_is_refused(web: Web, client: httpx.AsyncClient, when: dict[str, object]) -> None:
    await web.post("/characters/ready/maren", status=201)
    chat = (await web.post("/desk", {"character": "Maren"}, status=201))["id"]
    answer = await client.post(f"/desk/{chat}/schedules", json={"prompt": "Water the plants", "when": when})
    assert 400 <= answer.status_code < 500, answer.text
    assert set(answer.json()) == {"error", "fix"}
    assert (await client.get(f"/desk/{chat}/schedules")).json() == []


def values_in(schema: Any, kind: str, components: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every part of a JSON schema that describes a value of this type, with where it is."""
    if isinstance(schema, list):
        for one in schema:
            yield from values_in(one, kind, components, path)
        return
    if not isinstance(schema, dict):
        return
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        if f"/{name}/" not in path:
            yield from values_in(components.get(name, {}), kind, components, f"{path}/{name}/")
        return
    if schema.get("type") == kind:
        yield path, schema
    for key, part in schema.items():
        yield from values_in(part, kind, components, f"{path}.{key}")


async def unlimited_values(client: httpx.AsyncClient, kind: str, limits: set[str], parts: tuple[str, ...]) -> list[str]:
    """Where requests have values of a type without one of these limits."""
    document = (await client.get("/openapi.json")).json()
    found = [
        value
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for part in parts
        for value in values_in(operation.get(part, {}), kind, document["components"]["schemas"], f"{method} {path} ")
    ]
    assert len(found) > 20
    return [where for where, schema in found if not limits & schema.keys()]


async def test_every_integer_of_a_request_has_a_range_that_can_be_stored(client: httpx.AsyncClient) -> None:
    limits = {"maximum", "exclusiveMaximum", "const", "enum"}
    assert await unlimited_values(client, "integer", limits, ("parameters", "requestBody")) == []


async def test_every_text_and_list_of_a_request_has_a_maximum_length(client: httpx.AsyncClient) -> None:
    """Paths and names of branches of megabytes took minutes, in which the server answered nobody. Addresses are short:
    the head of a request is limited as a whole."""
    limits = {"maxLength", "const", "enum", "pattern", "format"}
    assert await unlimited_values(client, "string", limits, ("requestBody",)) == []
    assert await unlimited_values(client, "array", {"maxItems"}, ("requestBody",)) == []


def filled_path(route: APIRoute, values: dict[str, str]) -> str:
    """The address of a route with these path parameters, and something for each query parameter that it needs."""
    path = re.sub(r"\{(\w+)(:\w+)?\}", lambda match: values.get(match[1], "none"), route.path)
    needed = [one.alias for one in route.dependant.query_params if one.field_info.is_required()]
    return f"{path}?" + "&".join(f"{name}=1" for name in needed)


def values_of_each_chat() -> Iterator[dict[str, str]]:
    for number in range(len(TIMES)):
        common = {"memory_id": f"mem{number}", "turn": f"t{number}", "reply": f"r{number}"}
        for kind in ("chat", "desk"):
            yield {**common, "chat": f"{kind}{number}", "character_id": f"char{number % 5}"}


def parameter_values(route: APIRoute, values: dict[str, str], integer: int) -> Iterator[str]:
    """The addresses of a route: each of its integers in turn is the given one."""
    path = re.sub(r"\{(\w+)(:\w+)?\}", lambda match: values.get(match[1], "none"), route.path)
    integers = [one for one in route.dependant.query_params if "int" in str(one.field_info.annotation)]
    for one in integers:
        yield f"{path}?{one.alias}={integer}"
    for name in re.findall(r"\{(\w+)", route.path):
        parameter = next((one for one in route.dependant.path_params if one.name == name), None)
        if parameter is not None and "int" in str(parameter.field_info.annotation):
            yield path.replace("/none", f"/{integer}", 1)


def routes_of(router: FastAPI | APIRouter) -> Iterator[APIRoute]:
    """The routes of a router and of all routers that it includes."""
    for route in router.routes:
        if isinstance(route, APIRoute):
            yield route
        elif (included := getattr(route, "original_router", None)) is not None:
            yield from routes_of(included)


@pytest.mark.parametrize("integer", LARGE_INTEGERS, ids=lambda value: f"{str(value)[:4]}…{len(str(value))}")
async def test_integers_that_cannot_be_stored_are_refused_by_every_route(
    web: Web, client: httpx.AsyncClient, integer: int
) -> None:
    _, chat = await web.begin()
    values = {"chat": chat.removeprefix("/chats/"), "room": "tavern"}
    asked = 0
    for route in routes_of(web.asgi):
        for address in parameter_values(route, values, integer):
            for headers in (BROWSER, {}):
                answer = await client.request(min(route.methods or {"GET"}), address, headers=headers)
                assert answer.status_code < 500, (address, answer.text[-300:])
                asked += 1
    assert asked > 20


async def fill_with_once_accepted_values(web: Web) -> dict[str, str]:
    """Events that earlier versions accepted and stored."""
    store, long, values = web.app.store, "x y" * 2_000, {}
    new_events = [
        NewEvent("you", OwnerAuthored(name="", pronouns=long, persona=long), "you"),
        NewEvent("people", PersonAdded(person="ana", name=long), "you"),
    ]
    for number, name in enumerate(["n" * 50_000, " \u202e\0\x7f ", ".", "\U0001f600" * 300, "a\nb\rc\u2028d"]):
        who = f"char{number}"
        identity = Identity(id=who, name=name, persona="p" * 250_000, traits=[long, ""], voice_samples=["", long])
        new_events.append(NewEvent(f"cast:{who}", CharacterAuthored(identity=identity), "you"))
        values["character_id"] = values["character"] = who
    for number, text in enumerate(TIMES):
        time, room = datetime.fromisoformat(text), f"room:chat{number}"
        happened = MemoryAdded.model_validate(
            {"id": f"mem{number}", "owner": "char1", "text": f"walnuts {number}", "type": "event", "happened": time}
        )
        payloads = [
            ChatCreated(host=f"char{number % 5}", bot_version=1, title=long if number else "", clock=time),
            ContainerCreated(container="place", name=long),
            ActivityChange(entity="you", activity=Activity(container="place", holding=(long,))),
            SceneOpened(scene="scene", container="place", participants=("you", "char1"), starts=time),
            RelationshipUpdated(world="main", of="char1", toward="you", knowledge=(long,), chat=room, when=time),
            UserTurn(turn=f"t{number}", author="you", text=long, segments=(Segment(kind="ooc", text=long),), sent=time),
            AssistantTurnStarted(reply=f"r{number}", speaker="char1", answers=f"t{number}", sent=time),
            AssistantTurn(reply=f"r{number}", text=str(10**400), truncated=True, why=long, status=10**9),
            ClockMoved(minutes=10**9),
            happened,
        ]
        if number % 2:
            payloads.append(ManualEdit(what="clock", value=text, prior=text))
        new_events += [NewEvent(room, payload, "you") for payload in payloads]
        values |= {"chat": f"chat{number}", "memory_id": f"mem{number}", "turn": f"t{number}", "reply": f"r{number}"}
        desk = f"room:desk{number}"
        new_events.append(NewEvent(desk, DeskOpened(character="char1", person="you", title=long), "you"))
        whens = (ScheduleTime(every_s=10.0 ** (number * 3 + 2)), ScheduleTime(at=time), ScheduleTime(cron="0 0 30 2 *"))
        for kind, when in enumerate(whens):
            name = f"s{kind}"
            planned = ScheduleSet(schedule=name, prompt=long, when=when, next=time)
            ran = ScheduleRan(schedule=name, due=time, end="failed", output=long, next=time)
            new_events += [NewEvent(desk, planned, "you"), NewEvent(desk, ran, "you")]
    await store.append(new_events)
    return values


async def test_every_page_and_route_shows_what_was_once_accepted(web: Web, client: httpx.AsyncClient) -> None:
    values = await fill_with_once_accepted_values(web)
    addresses = {
        filled_path(route, {**values, **chosen})
        for route in routes_of(web.asgi)
        if "GET" in (route.methods or ()) and "event-stream" not in (route.summary or "") and route.path != "/live"
        for chosen in values_of_each_chat()
    }
    assert len(addresses) > 150
    await check_pages(client, tuple(sorted(addresses)))
    await check_pages(client, (*PAGES, *(f"/characters/char{number}/export?format=character" for number in range(5))))
    assert [one["id"] for one in (await client.get("/chats")).json()]
    now = datetime.now(UTC)
    for when in (schedule.when for schedule in web.app.desk.schedules.queries.all()):
        with_next = when.due_after(now) if when.cron == "" else None
        assert with_next is None or with_next > now


CARDS = [
    ("name", "n" * 201),
    ("name", ""),
    ("name", " \n "),
    ("name", "a\0b"),
    ("description", "p" * 200_001),
    ("first_mes", "k" * 200_001),
]


@pytest.mark.parametrize(("field", "value"), CARDS, ids=lambda one: str(one)[:8])
async def test_a_card_beyond_the_limits_is_refused_and_nothing_is_stored(
    web: Web, client: httpx.AsyncClient, field: str, value: str
) -> None:
    data = {"name": "Nils", "description": "A ferryman.", "first_mes": "", "personality": "", "scenario": ""}
    card = {"spec": "chara_card_v2", "spec_version": "2.0", "data": {**data, "mes_example": "", field: value}}
    answer = await client.post("/characters/import", json=card)
    assert 400 <= answer.status_code < 500, answer.text
    assert set(answer.json()) == {"error", "fix"}
    assert (await client.get("/characters")).json() == []


async def test_an_archive_beyond_the_limits_is_refused_and_nothing_is_stored(
    web: Web, client: httpx.AsyncClient
) -> None:
    versions = [{"id": "abc", "name": "Nils"}, {"id": "abc", "name": "n" * 201}]
    archive = {"format": "coterie-character", "version": 1, "versions": versions, "memories": [{"text": "Walnuts."}]}
    answer = await client.post("/characters/import", json=archive)
    assert answer.status_code == 422, answer.text
    assert (await client.get("/characters")).json() == []
    assert (await client.get("/memories")).json() == []


def limits_in(schema: Any, components: dict[str, Any], path: str) -> Iterator[str]:
    """Every limit of a JSON schema, by where it is."""
    for part, where in parts_of(schema, components, path):
        for limit in ("maxLength", "minLength", "pattern", "maxItems", "minItems", "maximum", "minimum"):
            is_of_tuple = "prefixItems" in part and limit in ("maxItems", "minItems")
            if limit in part and not is_of_tuple:
                yield f"{where} {limit}"


def parts_of(schema: Any, components: dict[str, Any], path: str) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(schema, list):
        for one in schema:
            yield from parts_of(one, components, path)
    elif isinstance(schema, dict):
        if (reference := schema.get("$ref")) and (name := reference.rpartition("/")[2]) not in path:
            yield from parts_of(components.get(name, {}), components, f"{path}/{name}")
        yield schema, path
        for key, part in schema.items():
            yield from parts_of(part, components, f"{path}.{key}")


RETURNED_AS_STORED = ("RoomConfig", "AuditRecord", "Persona", "ChatMessage", "ScheduleTime", "Action")
"""Configuration files and values of events, which are validated when they are read and not again for a response."""


async def test_no_response_has_limits(web: Web, client: httpx.AsyncClient) -> None:
    """Reading must not fail on what was once accepted."""
    document = (await client.get("/openapi.json")).json()
    components = document["components"]["schemas"]
    found = {
        limit
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for limit in limits_in(operation["responses"], components, f"{method} {path} ")
    }
    assert [limit for limit in found if not any(f"/{model}." in limit for model in RETURNED_AS_STORED)] == []


async def test_a_message_that_is_refused_is_not_stored(web: Web, client: httpx.AsyncClient) -> None:
    _, chat = await web.begin()
    before = await web.texts(chat)
    for text in ("word " * 40_000, "x" * 200_001, ""):
        answer = await client.post(f"{chat}/turns?wait=true", json={"text": text})
        assert 400 <= answer.status_code < 500, answer.text
        assert await web.texts(chat) == before
    assert (await web.say(chat, "Hello"))["state"] == "done"
    after = await web.texts(chat)
    answer = await client.post(f"{chat}/regenerate?wait=true", json={"text": "word " * 40_000})
    assert 400 <= answer.status_code < 500, answer.text
    assert await web.texts(chat) == after
