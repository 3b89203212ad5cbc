from __future__ import annotations

from typing import Any

from tests.surfaces.web.conftest import Web


async def _patch(web: Web, chat: str, body: object, status: int = 200) -> Any:
    answer = await web.client.patch(f"{chat}/drawer", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_s21_the_drawer_is_edited_over_http_and_a_rewind_reverts_it(web: Web) -> None:
    character, chat = await web.begin(weather="fog")
    said = await web.say(chat, "Hello.")
    await web.say(chat, "Still here?")
    place = (await web.get(f"{chat}/drawer"))["scene"]["container"]
    edits = [
        {"field": "weather", "value": "clearing"},
        {"field": f"edge.{character}.you.trust", "value": 80},
        {"field": f"container.{place}.public", "value": True},
    ]
    seen = await _patch(web, chat, {"edits": edits})
    assert seen == await web.get(f"{chat}/drawer")
    assert seen["weather"] == "clearing"
    assert seen["containers"][place]["public"] is True
    trust = {(edge["of"], edge["toward"]): edge["trust"] for edge in seen["edges"]}
    assert trust == {(character, "you"): 80, ("you", character): 50}
    impact = await web.get(f"{chat}/rewind/{said['reply']}")
    assert impact["edits"] == 3
    await web.post(f"{chat}/rewind", {"turn": said["reply"]})
    assert (await web.get(f"{chat}/drawer"))["weather"] == "fog"


async def test_s21_a_bad_value_is_422_with_what_to_do_and_nothing_changes(web: Web) -> None:
    _, chat = await web.begin(weather="fog")
    before = await web.get(f"{chat}/drawer")
    both = [{"field": "weather", "value": "rain"}, {"field": "edge.you.nobody.trust", "value": 3}]
    for edits in (both, [{"field": "colour", "value": 1}], [{"field": "clock", "value": "soon"}]):
        trouble = await _patch(web, chat, {"edits": edits}, 422)
        assert trouble["error"]
        assert trouble["fix"]
    await _patch(web, chat, {"edits": []}, 400)
    await _patch(web, "/chats/none", {"edits": both}, 404)
    assert await web.get(f"{chat}/drawer") == before


async def test_s21_memories_are_pinned_and_forgotten_over_http(web: Web) -> None:
    character, chat = await web.begin()
    await web.say(chat, "I keep bees.")
    memory = (await web.get(f"{chat}/drawer"))["characters"][character]["memories"][0]["id"]
    for pinned in (True, False, False):
        answer = await web.client.put(f"{chat}/memories/{memory}/pin", json={"pinned": pinned})
        assert answer.status_code == 200
        assert answer.json()["characters"][character]["pins"] == int(pinned)
    answer = await web.client.delete(f"{chat}/memories/{memory}")
    assert memory not in [one["id"] for one in answer.json()["characters"][character]["memories"]]
    assert (await web.client.delete(f"{chat}/memories/{memory}")).status_code == 404


async def test_s21_openapi_names_every_editable_field(web: Web) -> None:
    described = (await web.get("/openapi.json"))["paths"]["/chats/{chat}/drawer"]["patch"]
    for field in ("weather", "container.ID.audible", "activity.WHO.action.verb", "edge.WHO.TOWARD.knowledge"):
        assert f"`{field}`" in described["description"]
