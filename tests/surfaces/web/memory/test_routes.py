"""M7: the API of the memory browser."""

from __future__ import annotations

import json

import pytest

from tests.surfaces.web.conftest import Web


async def test_m7_memories_are_listed_filtered_and_recalled_with_reasons(web: Web) -> None:
    character, chat = await web.begin()
    for text in ("My sister keeps bees.", "The ferry leaves at nine."):
        await web.say(chat, text)
    everything = await web.get(f"/memories?owner={character}")
    assert len(everything) == 4
    assert everything == sorted(everything, key=lambda one: one["made"], reverse=True)
    assert [one["id"] for one in everything[2:]] == [
        one["id"] for one in await web.get(f"/memories?owner={character}&limit=2&offset=2")
    ]
    room = everything[0]["room"]
    assert room == f"room:{chat.removeprefix('/chats/')}"
    assert len(await web.get(f"/memories?room={room}&type=observation")) == 4
    assert await web.get("/memories?owner=nobody") == []
    assert await web.get("/memories?since=2999-01-01T00:00:00Z") == []
    assert await web.get("/memories?type=goal") == []
    for query in (f"owner={character}&q=bees", f"q=bees&room={room}", "q=bees"):
        best = (await web.get(f"/memories?{query}"))[0]
        assert "bees" in best["text"]
        assert best["score"] == pytest.approx(sum(best["parts"].values()))
    assert (await web.client.get("/memories?type=nonsense")).status_code == 400
    assert (await web.get(f"/memories/{best['id']}"))["sources"]
    assert await web.get(f"/memories/links?owner={character}") == []


async def test_m7_memories_are_corrected_pinned_and_forgotten(web: Web) -> None:
    character, chat = await web.begin()
    await web.say(chat, "My sister keeps bees.")
    memory = next(one for one in await web.get(f"/memories?owner={character}") if "bees" in one["text"])
    path = f"/memories/{memory['id']}"
    changed = (await web.client.patch(path, json={"text": "Her sister keeps wasps.", "type": "fact"})).json()
    assert (changed["text"], changed["type"], changed["significance"]) == ("Her sister keeps wasps.", "fact", 1)
    for bad in ({"text": "  "}, {"significance": 9}, {"type": "nonsense"}, {"owner": "x"}):
        assert (await web.client.patch(path, json=bad)).status_code == 400
    assert (await web.client.put(f"{path}/pin", json={"pinned": True})).json()["pinned"] is True
    assert (await web.get(f"{chat}/drawer"))["characters"][character]["pins"] == 1
    assert (await web.client.delete(path)).status_code == 200
    assert (await web.client.get(path)).status_code == 404
    assert not any("wasps" in one["text"] for one in await web.get(f"/memories?owner={character}"))


async def test_m7_a_forked_chat_has_its_own_memories(web: Web) -> None:
    character, chat = await web.begin()
    said = await web.say(chat, "My sister keeps bees.")
    fork = await web.post(f"{chat}/fork", {"turn": said["reply"]}, status=201)
    memory = next(one for one in await web.get(f"/memories?owner={character}") if "bees" in one["text"])["id"]
    line = f"room:{fork['id']}"
    await web.client.patch(f"/memories/{memory}?room={line}", json={"text": "Wasps, it was."})
    assert (await web.get(f"/memories/{memory}?room={line}"))["text"] == "Wasps, it was."
    own = f"room:{chat.removeprefix('/chats/')}"
    assert "bees" in (await web.get(f"/memories/{memory}?room={own}"))["text"]


async def test_m7_export_and_import_as_lines(web: Web) -> None:
    character, chat = await web.begin()
    await web.say(chat, "My sister keeps bees.")
    exported = (await web.client.get(f"/memories/export?owner={character}")).text
    lines = [json.loads(line) for line in exported.splitlines()]
    assert lines[0]["format"] == "coterie-memory"
    assert len(lines) == 3
    other = (await web.post("/characters/ready/io", status=201))["id"]
    for added in (2, 0):
        answer = await web.client.post(f"/memories/import?owner={other}", content=exported)
        assert (answer.status_code, answer.json()) == (201, {"added": added})
    assert {one["room"] for one in await web.get(f"/memories?owner={other}")} == {f"memory:{other}"}
    assert "bees" in (await web.get(f"/memories?owner={other}&q=sister bees"))[0]["text"]  # it was there, now
    pinned = (await web.get(f"/memories?owner={other}"))[0]["id"]
    answer = await web.client.put(f"/memories/{pinned}/pin?room=memory:{other}", json={"pinned": True})
    assert answer.json()["pinned"] is True
    for bad in (b"{", b'{"text": 1', b"\xff\xfe", b"[]"):
        answer = await web.client.post(f"/memories/import?owner={other}", content=bad)
        assert answer.status_code == 422, answer.text
    assert (await web.client.post("/memories/import?owner=nobody", content=exported)).status_code == 404


async def test_s16_the_score_of_each_recalled_memory_is_shown_per_turn(web: Web) -> None:
    character, earlier = await web.begin()
    await web.say(earlier, "My sister keeps bees.")
    begun = await web.post(f"/characters/{character}/kickoff", {"place": {"name": "the jetty"}}, status=201)
    chat = f"/chats/{begun['id']}"
    said = await web.say(chat, "What does my sister keep?")
    prompt = await web.get(f"{chat}/prompt/{said['reply']}")
    assert prompt["why"]
    best = prompt["why"][0]
    assert "bees" in best["text"]
    assert best["included"]
    assert best["score"] == pytest.approx(sum(best["parts"].values()))
    assert sum(part["tokens"] for part in prompt["parts"]) == prompt["tokens"]
