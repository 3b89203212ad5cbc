"""S9: lorebooks are written, imported, tried and exported through the API."""

from __future__ import annotations

import json
from typing import Any

from tests.surfaces.web.conftest import Web

WORLD_INFO: dict[str, Any] = {
    "entries": {
        "0": {"uid": 0, "key": ["lamp"], "content": "Whale oil.", "disable": False, "own": {"kept": 1}},
        "5": {"uid": 5, "key": ["sea"], "content": "Cold.", "probability": 50, "useProbability": True},
    },
    "originalData": 7,
}


async def imported(web: Web, document: object = WORLD_INFO, name: str = "Coast.json") -> str:
    answer = await web.client.post(f"/lorebooks/import?name={name}", content=json.dumps(document))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def test_s9_world_info_is_imported_edited_and_exported_without_loss(web: Web) -> None:
    book = await imported(web)
    assert (await web.get("/lorebooks"))[0]["name"] == "Coast"
    assert await web.get(f"/lorebooks/{book}/export?format=world_info") == WORLD_INFO
    fields = (await web.get(f"/lorebooks/{book}"))["fields"]["5"]
    answer = await web.client.put(f"/lorebooks/{book}/entries/5", json={**fields, "sticky": 3})
    assert answer.json() == {"entry": "5"}
    expected = json.loads(json.dumps(WORLD_INFO))
    expected["entries"]["5"]["sticky"] = 3
    assert await web.get(f"/lorebooks/{book}/export?format=world_info") == expected
    removed = (await web.client.delete(f"/lorebooks/{book}/entries/0")).json()
    assert list((await web.get(f"/lorebooks/{book}"))["fields"]) == ["5"]
    await web.post(f"/lorebooks/{book}/entries/restore", removed)
    assert (await web.get(f"/lorebooks/{book}/export?format=world_info"))["entries"] == expected["entries"]
    standalone = await web.get(f"/lorebooks/{book}/export")
    again = await imported(web, standalone, "again.json")
    assert await web.get(f"/lorebooks/{again}/export") == standalone


async def test_s9_a_preview_says_which_entries_are_used_and_why(web: Web) -> None:
    book = await imported(web)
    found = await web.post("/lorebooks/preview", {"text": "The lamp.", "book": book})
    assert [(one["name"], one["fires"], one["why"]) for one in found] == [
        ("lamp", True, "“lamp” said"),
        ("sea", False, "none of its keys occurs, or its conditions do not hold"),
    ]
    outcomes = set()
    for number in range(20):
        (sea, _) = sorted(
            await web.post("/lorebooks/preview", {"text": f"The sea {number}.", "book": book}),
            key=lambda one: one["name"] != "sea",
        )
        outcomes.add((sea["fires"], sea["why"]))
    assert outcomes == {
        (True, "“sea” said, by a chance of 50 %"),
        (False, "“sea” said, but not by its chance of 50 %"),
    }


async def test_s9_the_preview_of_a_chat_has_its_books_and_messages(web: Web) -> None:
    _, chat = await web.begin(greeting="Mind the lamp.")
    book = await imported(web)
    body = {"text": "Hello.", "chat": chat.removeprefix("/chats/")}
    assert await web.post("/lorebooks/preview", body) == []
    use = {"chats": [body["chat"]]}
    assert (await web.client.put(f"/lorebooks/{book}/use", json=use)).json()["chats"] == [body["chat"]]
    found = await web.post("/lorebooks/preview", body)
    assert [(one["name"], one["fires"]) for one in found] == [("lamp", True), ("sea", False)]
    said = await web.say(chat, "Hello.")
    prompt = await web.get(f"{chat}/prompt/{said['reply']}")
    assert prompt["lore"] == {"lore lamp": "“lamp” said"}


async def test_s9_a_lorebook_is_deleted_and_restored(web: Web) -> None:
    book = (await web.post("/lorebooks", {"name": "Customs"}, status=201))["id"]
    entry = (await web.post(f"/lorebooks/{book}/entries", {"keys": ["tea"], "content": "At five."}, status=201))[
        "entry"
    ]
    await web.client.delete(f"/lorebooks/{book}")
    assert await web.get("/lorebooks") == []
    await web.get(f"/lorebooks/{book}", 404)
    await web.post(f"/lorebooks/{book}/restore")
    assert list((await web.get(f"/lorebooks/{book}"))["fields"]) == [entry]


async def test_a_wrong_file_or_field_is_refused_with_a_reason(web: Web) -> None:
    answer = await web.client.post("/lorebooks/import?name=x.json", content=b'{"spec": "chara_card_v2"}')
    assert answer.status_code == 400 and "entries" in answer.json()["error"]
    book = await imported(web)
    for wrong in ({"probability": 101}, {"sticky": -1}, {"position": "nowhere"}, {"unknown": 1}):
        assert (await web.client.put(f"/lorebooks/{book}/entries/5", json=wrong)).status_code == 400
    assert (await web.client.put(f"/lorebooks/{book}/entries/99", json={})).status_code == 404
    assert (await web.client.put(f"/lorebooks/{book}/use", json={"chats": ["none"]})).status_code == 404
    assert await web.get(f"/lorebooks/{book}/export?format=world_info") == WORLD_INFO


async def test_the_pages_show_lorebooks_and_escape_them(web: Web) -> None:
    bot, chat = await web.begin()
    hostile = {"entries": {"0": {"key": ["<i>k</i>"], "comment": "<u>n</u>", "content": "<b>c</b>"}}, "name": "<q>"}
    book = await imported(web, hostile)
    for path in ("/lorebooks", f"/lorebooks/{book}", f"/lorebooks/{book}/entries/0", f"/lorebooks/card:{bot}", chat):
        answer = await web.client.get(path, headers={"accept": "text/html"})
        assert answer.status_code == 200, answer.text
        assert not [mark for mark in ("<i>k", "<u>n", "<b>c", "<q>") if mark in answer.text]
    listed = await web.client.get(f"/lorebooks/{book}", headers={"accept": "text/html"})
    assert "&lt;u&gt;n" in listed.text
    entry = {"keys": ["tea"], "content": "At five."}
    await web.post(f"/lorebooks/card:{bot}/entries", entry, status=201)
    assert (await web.get(f"/characters/{bot}"))["versions"][-1] is not None
    assert [one["card_of"] for one in await web.get("/lorebooks")] == ["", bot]


async def test_text_that_cannot_be_stored_is_refused(web: Web) -> None:
    _, chat = await web.begin()
    book = await imported(web)
    half = "\ud800"
    requests: list[tuple[str, str, object]] = [
        ("PUT", f"/lorebooks/{book}", {"name": half}),
        ("POST", f"/lorebooks/{book}/entries", {"keys": [half]}),
        ("POST", f"/lorebooks/{book}/entries", {"groups": [half]}),
        ("POST", f"/lorebooks/{book}/entries/restore", {"entry": "1", "fields": {"content": half}}),
        ("POST", f"/lorebooks/{book}/entries/restore", {"entry": "", "fields": {}}),
        ("PUT", f"/lorebooks/{book}/use", {"characters": [half]}),
        ("POST", "/lorebooks/preview", {"text": half}),
        ("POST", "/you/personas", {"name": "Kim", "pronouns": half}),
        ("PUT", f"{chat}/persona", {"persona": half}),
        ("PATCH", chat, {"tags": [half]}),
    ]
    for method, path, body in requests:
        answer = await web.client.request(method, path, content=json.dumps(body))
        assert answer.status_code in (400, 422), (path, answer.text)


async def test_a_lorebook_with_half_surrogate_pairs_is_imported(web: Web) -> None:
    """Its file is valid JSON, and SillyTavern writes such text after it has cut an emoji in two."""
    world = {"entries": {"0": {"uid": 0, "key": ["\ud83d"], "content": "half \ud83d", "comment": "\udc80"}}}
    made = await web.client.post("/lorebooks/import?name=Half", content=json.dumps(world))
    assert made.status_code == 201
    shown = (await web.client.get(f"/lorebooks/{made.json()['id']}")).json()
    assert [entry["content"] for entry in shown["fields"].values()] == ["half \ufffd"]
