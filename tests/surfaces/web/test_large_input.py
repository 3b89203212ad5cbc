"""Large files are read in worker processes, within limits, while the server answers others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from bench.lib import hostile_inputs
from coterie.base import offload
from tests.surfaces.web.conftest import Web


@pytest.fixture(autouse=True)
def no_workers_left() -> Iterator[None]:
    yield
    offload.close_workers()


async def _import(web: Web, path: str, data: bytes) -> Any:
    """Send a file, and ask for something else all the while."""
    sending = asyncio.create_task(web.client.post(path, content=data))
    answered = 0
    while not sending.done():
        assert (await web.client.get("/health")).status_code == 200
        answered += 1
        await asyncio.sleep(0.01)
    assert answered
    return await sending


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (hostile_inputs.png_of_compressed_texts(3_000_000), 400),
        (hostile_inputs.png_of_compressed_texts(3_000_000, b"chara"), 400),
        (hostile_inputs.zip_bomb(20_000_000, 12), 400),
        (hostile_inputs.zip_of_many_files(2_000), 201),
        (hostile_inputs.nested_json(100_000), 413),
        (hostile_inputs.many_values_card(200_000), 201),
        (hostile_inputs.slow_lorebook_card(2_000), 201),
        (b'{"format": "coterie-character", "version": 1, "versions": [' + b"[]," * 100_000 + b"[]]}", 400),
    ],
    ids=["texts", "cards", "zip bomb", "many files", "nested", "many values", "lorebook", "archive"],
)
async def test_a_hostile_character_file_is_read_or_refused(web: Web, data: bytes, status: int) -> None:
    answer = await _import(web, "/characters/import", data)
    assert answer.status_code == status, answer.text
    assert status == 201 or set(answer.json()) == {"error", "fix"}
    assert offload._pool.processes or len(data) > 8_000_000, "it was read in another process"


async def test_a_chat_of_identical_messages_is_imported(web: Web) -> None:
    character = await web.client.post("/characters", json={"name": "Ada"})
    path = f"/characters/{character.json()['id']}/chats/import"
    answer = await _import(web, path, hostile_inputs.identical_chat(3_000))
    assert answer.status_code == 201
    assert len(await web.get(f"/memories?owner={character.json()['id']}")) == 1


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (hostile_inputs.junk_lines(1_000_000), "more than 200,000 lines"),
        (hostile_inputs.junk_lines(100_000), "Line 1 is not a memory"),
        (hostile_inputs.junk_lines(100_000, b"[" * 5_000), "Line 1 is not JSON"),
        (b"\xff" * 100_000, "not text"),
    ],
    ids=["too many", "no memories", "nested", "no text"],
)
async def test_a_hostile_memory_import_is_refused_and_stores_nothing(web: Web, data: bytes, error: str) -> None:
    character = (await web.client.post("/characters", json={"name": "Ada"})).json()["id"]
    answer = await _import(web, f"/memories/import?owner={character}", data)
    assert answer.status_code == 422, answer.text
    assert error in answer.json()["error"]
    assert await web.get(f"/memories?owner={character}") == []


async def test_memories_are_imported_in_batches(web: Web) -> None:
    character = (await web.client.post("/characters", json={"name": "Ada"})).json()["id"]
    answer = await _import(web, f"/memories/import?owner={character}", hostile_inputs.junk_memories(200_000))
    assert answer.status_code == 201
    assert answer.json()["added"] > 2_000


async def test_a_file_that_takes_too_long_is_refused(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "DEFAULT_SECONDS", 0.001)
    answer = await _import(web, "/characters/import", hostile_inputs.long_field_card(200_000))
    assert answer.status_code == 422
    assert "took longer than" in answer.json()["error"]
    assert await web.get("/characters") == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", ["((", '"', "*a", "[", "\n\n.", "😀"])
async def test_a_page_with_very_long_messages_is_shown(web: Web, unit: str) -> None:
    """Without linear parsers, the first two took 17 and 11 seconds."""
    character = (await web.client.post("/characters", json={"name": "Ada"})).json()["id"]
    text = unit * (hostile_inputs.TEXT_CHARS // len(unit))
    data = hostile_inputs.identical_chat(3, text)
    chat = (await web.client.post(f"/characters/{character}/chats/import", content=data)).json()["id"]
    page = await web.client.get(f"/chats/{chat}", headers={"Accept": "text/html"})
    assert page.status_code == 200
    assert page.text.count('class="turn-text prose"') == 3
    for path in ("/", "/chats", "/search?q=a", "/memory"):
        assert (await web.client.get(path, headers={"Accept": "text/html"})).status_code < 400


def large_files() -> dict[str, tuple[str, bytes]]:
    """By route: what is asked for, and a file that takes long to read; `{character}` is the id of one."""
    entries = {str(number): {"uid": number, "key": ["lamp"], "content": "x"} for number in range(9_000)}
    preset = {"temp": 0.7, "stop": "[" * 100_000, "other": [[]] * 100_000}
    return {
        "/characters/import": ("/characters/import", hostile_inputs.many_values_card(200_000)),
        "/characters/{character_id}/chats/import": (
            "/characters/{character}/chats/import",
            hostile_inputs.identical_chat(1_000),
        ),
        "/memories/import": ("/memories/import?owner={character}", hostile_inputs.junk_memories(200_000)),
        "/lorebooks/import": ("/lorebooks/import", json.dumps({"entries": entries}).encode()),
        "/models/samplers/import": ("/models/samplers/import?name=own", json.dumps(preset).encode()),
    }


ONLY_STORED = ("/picture", "/webhook/files")
"""The ends of routes of whose files the first bytes say what they are; a thread or the disk takes the rest."""


async def test_every_file_that_is_uploaded_is_read_in_another_process(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(self: offload.WorkerPool, what: str, seconds: float, function: Any, *args: Any, **more: Any) -> Any:
        in_workers.append(what)
        return await original(self, what, seconds, function, *args, **more)

    in_workers: list[str] = []
    original = offload.WorkerPool.run
    monkeypatch.setattr(offload.WorkerPool, "run", run)
    character = (await web.client.post("/characters", json={"name": "Ada"})).json()["id"]
    files = large_files()
    uploads = {
        path
        for path, methods in web.asgi.openapi()["paths"].items()
        for operation in methods.values()
        if "application/octet-stream" in operation.get("requestBody", {}).get("content", {})
    }
    assert {path for path in uploads if not path.endswith(ONLY_STORED)} == files.keys()
    for path, data in files.values():
        in_workers.clear()
        answer = await _import(web, path.replace("{character}", character), data)
        assert answer.status_code == 201, (path, answer.text)
        assert in_workers, path


async def test_a_lorebook_beyond_the_limits_is_refused(web: Web) -> None:
    entry = {"key": ["lamp"], "content": "x"}
    for document in (
        {"entries": {str(number): entry for number in range(10_001)}},
        {"entries": [{"keys": ["lamp"], "content": "x" * 10_000_001}]},
    ):
        answer = await _import(web, "/lorebooks/import", json.dumps(document).encode())
        assert answer.status_code == 413, answer.text
        assert set(answer.json()) == {"error", "fix"}
    assert await web.get("/lorebooks") == []


@pytest.mark.timeout(60)
async def test_the_entries_of_a_large_lorebook_are_shown(web: Web) -> None:
    """When each entry was searched for in the list of all, this took a minute."""
    entries = {str(number): {"uid": number, "key": [f"lamp {number}"], "content": "x"} for number in range(10_000)}
    answer = await _import(web, "/lorebooks/import", json.dumps({"entries": entries}).encode())
    shown = await web.get(f"/lorebooks/{answer.json()['id']}")
    assert len(shown["fields"]) == 10_000


@pytest.mark.timeout(120)
async def test_a_comparison_of_very_many_lines_is_cut_and_says_so(web: Web) -> None:
    """All lines of a document of one megabyte took half a minute, in which nobody else was answered."""
    workspace = (await web.client.post("/draft/workspaces", json={"name": "A book"})).json()["id"]
    base = f"/draft/workspaces/{workspace}"
    first = await web.client.put(f"{base}/documents/a.md", json={"text": "a\n" * 50_000})
    await web.post(f"{base}/branches", {"name": "try", "source": "main"}, status=201)
    changed = {"text": "b\n" * 50_000, "base": first.json()["base"], "branch": "try"}
    assert (await web.client.put(f"{base}/documents/a.md", json=changed)).status_code == 200
    page = await web.client.get(f"{base}/compare?source=try&target=main", headers={"Accept": "text/html"})
    assert page.text.count('class="diff-line') < 2_001
    assert "98,001 more lines differ." in page.text
