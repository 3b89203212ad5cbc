"""The model panel of a chat, and the import of sampler presets."""

from __future__ import annotations

import json

from tests.surfaces.web.conftest import Web

HTML = {"Accept": "text/html"}


async def test_l4_the_panel_sets_the_model_of_a_chat_and_of_a_character(web: Web) -> None:
    character, chat = await web.begin()
    note = {"text": "Rain <b>all</b> day.", "depth": 1, "role": "system"}
    body = {"preset": "balanced", "values": {"temperature": 1.3, "top_k": None, "stop": []}, "note": note}
    answer = await web.client.put(f"{chat}/model", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["chat"] == {"preset": "balanced", "values": {"temperature": 1.3}, "note": note}
    assert (await web.client.put(f"/characters/{character}/model", json={"preset": "precise"})).status_code == 200
    shown = await web.get(f"{chat}/model")
    assert (shown["applied"]["temperature"], shown["applied"]["top_p"]) == (1.3, 0.95)
    page = (await web.client.get(f"{chat}/model", headers=HTML)).text
    assert "Rain &lt;b&gt;all&lt;/b&gt; day." in page
    assert "The next prompt" in page
    reply = (await web.say(chat, "Hello?"))["reply"]
    assert web.script.asked[-1].prompt.temperature == 1.3
    inspected = (await web.client.get(f"{chat}/prompt/{reply}", headers=HTML)).text
    for text in ("author&#39;s note", "Rain &lt;b&gt;all&lt;/b&gt; day.", "<code>temperature</code> 1.3"):
        assert text in inspected
    for wrong in ({"values": {"temperature": 50}}, {"note": {"depth": -1}}, {"values": {"x": 1}}, {"note": 7}):
        assert (await web.client.put(f"{chat}/model", json=wrong)).status_code in (400, 422)


async def test_l4_a_preset_of_sillytavern_is_imported_and_used(web: Web) -> None:
    _, chat = await web.begin()
    data = json.dumps({"temp": 0.4, "min_p": 0.1, "mirostat_mode": 0}).encode()
    answer = await web.client.post("/models/samplers/import", params={"name": "Very calm.json"}, content=data)
    assert (answer.status_code, answer.json()["name"]) == (201, "Very calm")
    assert answer.json()["unused"] == ["mirostat_mode"]
    assert "Very calm" in {one["name"] for one in await web.get("/models/samplers")}
    await web.client.put(f"{chat}/model", json={"preset": "Very calm"})
    await web.say(chat, "Hello?")
    assert web.script.asked[-1].prompt.temperature == 0.4
    assert (await web.client.post("/models/samplers/import?name=x", content=b"{}")).status_code == 400
    assert (await web.client.delete("/models/samplers/Very calm")).status_code == 204
    assert "Very calm" not in {one["name"] for one in await web.get("/models/samplers")}
    await web.say(chat, "And now?")
    assert web.script.asked[-1].prompt.temperature == 0.9
