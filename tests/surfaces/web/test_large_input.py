"""Large files are read in worker processes, within limits, while the server answers others."""

from __future__ import annotations

import asyncio
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
