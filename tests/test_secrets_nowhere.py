"""A configured secret that anybody sends to any write route is nowhere afterwards: not in the data folder, a prompt, a
log, a response or an export, in no encoding."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import zlib
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import structlog

from coterie.base.clock import ManualClock
from coterie.base.logging import LogSettings, setup_logging
from coterie.base.redaction import redact
from coterie.cli import main
from tests.surfaces.webhook.conftest import Served, serving

SECRET = 'k3y "of" the/store+7f3a91c2 \\ €'
FORMS = {
    "plain": SECRET,
    "base64": base64.b64encode(SECRET.encode()).decode().rstrip("="),
    "URL": quote(SECRET, safe=""),
    "JSON": json.dumps(SECRET)[1:-1],
}
TEXT = "They are: " + " , ".join(FORMS.values()) + " ."
CLOSING = ("/delete", "/reset", "/rewind", "/leave", "/unlink", "/merge", "/stop", "/undo")
"""Routes that end something: called last, so that the others have something to work with."""
REFUSED = {
    "POST /desk/{chat}/schedules",
    "PUT /draft/workspaces/{workspace}/documents/{path}",
    "POST /draft/workspaces",
}
"""Documents, names and schedules are not changed, so these are refused as a whole."""
NOT_CALLED = ("/backups/{file}/restore",)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    setup_logging(LogSettings(level="debug", format="json"), stream=stream)
    yield stream
    structlog.reset_defaults()


def found_in(data: bytes) -> list[str]:
    """The forms in which the secret is in some bytes, also inside a JSON string."""
    encoded = {
        name: (form.encode(), json.dumps(form)[1:-1].encode(), json.dumps(form, ensure_ascii=False)[1:-1].encode())
        for name, form in FORMS.items()
    }
    return [name for name, forms in encoded.items() if any(form in data for form in forms)]


def leaking_files(folder: Path) -> list[tuple[str, list[str]]]:
    """The files with the secret in their contents (Git compresses it) or in their names."""
    leaks: list[tuple[str, list[str]]] = []
    for file in folder.rglob("*"):
        data = str(file).encode()
        if file.is_file() and file.name != "config.toml":
            content = file.read_bytes()
            data += content
            if "objects" in file.parts:
                data += zlib.decompressobj().decompress(content) if content[:1] == b"x" else b""
        if found := found_in(data):
            leaks.append((str(file.relative_to(folder)), found))
    return leaks


def resolve(schema: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    while True:
        if "$ref" in schema:
            schema = spec["components"]["schemas"].get(schema["$ref"].rpartition("/")[2], {})
        elif choices := [one for one in schema.get("anyOf", schema.get("oneOf", [])) if one.get("type") != "null"]:
            schema = choices[0]
        else:
            return schema


def example(schema: dict[str, Any], spec: dict[str, Any], *, everything: bool, depth: int = 0) -> Any:
    """A value that fits a schema, with the secret in every text."""
    schema = resolve(schema, spec)
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    match schema.get("type"):
        case "object":
            properties = schema.get("properties", {})
            chosen = properties if everything else schema.get("required", [])
            if depth > 4:
                return {}
            values = {name: example(properties[name], spec, everything=everything, depth=depth + 1) for name in chosen}
            return values or ({SECRET: TEXT} if schema.get("additionalProperties") else {})
        case "array":
            return [example(schema.get("items", {}), spec, everything=everything, depth=depth + 1)]
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
        case _:
            return TEXT[: schema.get("maxLength", len(TEXT))]


class Routes:
    """Calls write routes with the secret in every text that they take, one at a time and all together."""

    def __init__(self, served: Served, spec: dict[str, Any], ids: dict[str, str]) -> None:
        self.served = served
        self.spec = spec
        self.ids = ids
        self.leaks: list[str] = []
        self.accepted: set[str] = set()

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        response = await self.served.client.request(method, path, **options)
        if found := found_in(response.content):
            self.leaks.append(f"the response of {method} {path}: {found}")
        assert response.status_code < 500, (method, path, response.text[:300])
        return response

    async def write(self, method: str, template: str, operation: dict[str, Any], bodies: list[Any]) -> None:
        path = template
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "path":
                path = path.replace(f"{{{parameter['name']}}}", self.ids.get(parameter["name"], quote(SECRET, safe="")))
        query = {one["name"]: TEXT[:150] for one in operation.get("parameters", []) if one["in"] == "query"}
        content = operation.get("requestBody", {}).get("content", {})
        if "application/json" in content:
            schema = content["application/json"].get("schema", {})
            generated = [example(schema, self.spec, everything=everything) for everything in (False, True)]
            for body in [*generated, *one_text_each(generated[1])]:
                await self.call(method, path, json=body)
            responses = [await self.call(method, path, json=body) for body in bodies]
        else:
            known = {name: self.ids[name] for name in query if name in self.ids}
            responses = [await self.call(method, path, params=known, content=data) for data in bodies]
            await self.call(method, path, params=query, content=TEXT.encode())
        if any(response.is_success for response in responses):
            self.accepted.add(f"{method} {template}")
        await self.call(method, path, params=query)


def one_text_each(value: Any) -> list[Any]:
    """Copies of a body with one of its texts each and without the other optional ones."""
    if not isinstance(value, dict):
        return []
    texts = [name for name, item in value.items() if isinstance(item, str) and item.startswith("They")]
    others = {name: item for name, item in value.items() if name not in texts and not isinstance(item, dict | list)}
    return [{**deepcopy(others), name: value[name]} for name in texts] + [{name: value[name]} for name in texts]


def good_bodies(ids: dict[str, str]) -> dict[str, list[Any]]:
    """Bodies that are accepted as a whole, for routes whose other fields need real values."""
    card = {"spec": "chara_card_v2", "spec_version": "2.0", "data": {"name": "Ana", "description": TEXT}}
    card["data"] |= {"first_mes": TEXT, "extensions": {"x": TEXT}, "character_book": {"entries": []}}  # type: ignore[operator]
    lines = [
        {"user_name": "You", "character_name": "Mara", "create_date": "x"},
        {"name": "You", "is_user": True, "mes": TEXT},
    ]
    chat = "\n".join(map(json.dumps, [*lines, {"name": "Mara", "is_user": False, "mes": TEXT}]))
    message = {"text": TEXT}
    return {
        "PUT /you": [{"name": "Ben", "pronouns": "", "persona": TEXT}, {"name": SECRET, "persona": "x"}],
        "POST /people": [{"name": "Bo " + SECRET}],
        "POST /characters": [{"name": "Ana", "persona": TEXT, "greeting": TEXT}, {"name": SECRET, "persona": "x"}],
        "PUT /characters/{character_id}": [{"name": "Mara", "persona": TEXT}],
        "POST /characters/import": [json.dumps(card).encode()],
        "POST /characters/{character_id}/chats/import": [chat.encode()],
        "POST /characters/{character_id}/kickoff": [
            {"title": TEXT[:150], "weather": "rain", "greeting": TEXT, "relationship": TEXT, "facts": [TEXT]}
        ],
        "POST /chats/{chat}/turns": [message],
        "POST /chats/{chat}/regenerate": [message],
        "PATCH /chats/{chat}/drawer": [
            {"edits": [{"field": field, "value": TEXT[:150]}]} for field in ("title", "weather", "anchor")
        ],
        "POST /memories/import": [json.dumps({"text": TEXT, "owner": ids["character_id"]}).encode()],
        "PATCH /memories/{memory_id}": [message],
        "POST /desk": [{"character": ids["character_id"], "title": TEXT[:100]}],
        "POST /desk/{chat}/messages": [message],
        "POST /desk/{chat}/workers": [{"task": TEXT}],
        "POST /desk/{chat}/schedules": [{"prompt": TEXT, "every_s": 3600}, {"prompt": TEXT, "cron": "0 3 * * *"}],
        "POST /draft/workspaces": [{"name": SECRET}],
        "PUT /draft/workspaces/{workspace}/documents/{path}": [
            {"text": f"# X\n\n{TEXT}", "base": "", "branch": "main"}
        ],
        "POST /draft/workspaces/{workspace}/threads": [
            {"document": "lamp.md", "members": [{"bot": ids["character_id"]}], "title": TEXT[:150]}
        ],
        "POST /draft/threads/{thread}/messages": [message],
        "POST /webhook": [
            message,
            {"text": f"/new {SECRET}"},
            {"text": "x", "room": SECRET},
            {"text": "x", "id": SECRET},
        ],
        "POST /v1/chat/completions": [{"model": "Mara", "messages": [{"role": "user", "content": TEXT}]}],
    }


def run_command(*command: str) -> None:
    with pytest.raises(SystemExit):
        main(command)


async def set_up(served: Served) -> dict[str, str]:
    """One of everything that write routes refer to."""
    post = served.client.post
    character = served.app.characters.all()[0].id
    chat = (await post(f"/characters/{character}/kickoff", json={"place": {"name": "Tower"}})).json()
    chat_id = chat.get("chat") or chat["id"]
    desk = (await post("/desk", json={"character": character})).json()
    memory = await post("/memories/import", params={"owner": character}, content=b'{"text": "The lamp was green."}')
    assert memory.is_success, memory.text
    memory_id = (await served.client.get("/memories", params={"owner": character})).json()
    workspace = (await post("/draft/workspaces", json={"name": "Texts"})).json()
    workspace_id = workspace.get("workspace") or workspace["id"]
    document = {"text": "# The lamp\n\nIt burns.", "base": "", "branch": "main"}
    await served.client.put(f"/draft/workspaces/{workspace_id}/documents/lamp.md", json=document)
    thread = {"document": "lamp.md", "members": [{"bot": character}]}
    opened = (await post(f"/draft/workspaces/{workspace_id}/threads", json=thread)).json()
    return {
        "character_id": character,
        "character": character,
        "chat": chat_id,
        "desk": desk.get("chat") or desk["id"],
        "memory_id": memory_id[0]["id"],
        "workspace": workspace_id,
        "path": "lamp.md",
        "thread": opened.get("thread") or opened["id"],
        "room": "hall",
        "person": "owner",
        "owner": character,
        "skill": "none",
    }


@pytest.mark.timeout(300)
async def test_a_secret_sent_to_every_write_route_is_nowhere_afterwards(
    tmp_path: Path, clock: ManualClock, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    redact.register(SECRET)
    home = tmp_path / "home"
    async with serving(home, clock) as served:
        spec = (await served.client.get("/openapi.json")).json()
        ids = await set_up(served)
        served.script.replies = [f"You said {TEXT}"] * 1_000  # the model knows it, too
        served.script.shapes = {
            name: {"text": TEXT, "summary": TEXT} for name in ("TurnAnalysis", "SceneSummary", "Opening")
        }
        routes = Routes(served, spec, ids)
        bodies = good_bodies(ids)
        operations = [
            (method.upper(), path, operation)
            for path, methods in spec["paths"].items()
            for method, operation in methods.items()
            if method != "get" and path not in NOT_CALLED
        ]
        operations.sort(key=lambda one: (one[0] == "DELETE", one[1].endswith(CLOSING)))
        for method, path, operation in operations:
            routes.ids = {**ids, "chat": ids["desk"]} if path.startswith("/desk/") else ids
            await routes.write(method, path, operation, bodies.get(f"{method} {path}", []))
            if f"{method} {path}" in bodies:
                await served.settle()
        for path, methods in spec["paths"].items():
            if "get" in methods and "stream" not in path and "events" not in path:
                for known in (ids, {**ids, "chat": ids["desk"]}):
                    filled = path
                    for name, value in known.items():
                        filled = filled.replace(f"{{{name}}}", value)
                    if "{" not in filled:
                        await routes.call("GET", filled, params={"owner": ids["character_id"], "q": "they"})
        prompts = [request.model_dump_json() for request in (*served.script.asked, *served.script.classified)]
        assert set(bodies) - routes.accepted == REFUSED
        assert len(prompts) > 20
        assert [prompt[:200] for prompt in prompts if found_in(prompt.encode())] == []
        assert routes.leaks == []
        assert "[secret]" in "".join(prompts)
        events = "".join(event.payload.model_dump_json() for event in served.app.store.reader.read(limit=100_000))
        assert "[secret]" in events and not found_in(events.encode())
        assert leaking_files(home) == []  # with the database's journal, while it is open
    monkeypatch.setenv("COTERIE_HOME", str(home))
    for command in (
        ("characters", "new", SECRET),
        ("characters", "new", "Cara", "--persona", TEXT),
        ("people", "invite", SECRET),
        ("characters", "export", "Mara", str(tmp_path / "home" / "mara.json")),
    ):
        await asyncio.to_thread(run_command, *command)
    assert leaking_files(home) == []
    assert found_in(log.getvalue().encode()) == []
