"""S2: personas through the API: written, chosen, pictured, deleted and restored."""

from __future__ import annotations

from tests.surfaces.web.conftest import Web

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


async def test_s2_a_persona_is_written_chosen_and_named_in_turns(web: Web) -> None:
    await web.client.put("/you", json={"name": "Ana"})
    _, chat = await web.begin()
    await web.say(chat, "Hello.")
    kim = (await web.post("/you/personas", {"name": "Kim", "about": "A smuggler."}, status=201))["id"]
    assert (await web.client.put(f"{chat}/persona", json={"persona": kim})).status_code == 200
    await web.say(chat, "Me.")
    turns = (await web.get(f"{chat}/turns"))["turns"]
    assert [turn["name"] for turn in turns if turn["by_person"]] == ["Ana", "Kim"]
    page = (await web.client.get(chat, headers={"accept": "text/html"})).text
    assert "Speak as" in page and page.count("Kim") >= 2
    hits = await web.get("/search?q=Hello")
    assert [hit["name"] for hit in hits if hit["by_person"]] == ["Ana"]
    exported = (await web.client.get(f"{chat}/export?format=json")).json()
    assert [turn["name"] for turn in exported["turns"] if turn["by_person"]] == ["Ana", "Kim"]
    assert (await web.client.put(f"{chat}/persona", json={"persona": "nobody"})).status_code == 404


async def test_s2_a_persona_has_a_picture(web: Web) -> None:
    kim = (await web.post("/you/personas", {"name": "Kim"}, status=201))["id"]
    answer = await web.client.put(f"/you/personas/{kim}/picture", content=PNG)
    assert answer.status_code == 200, answer.text
    picture = await web.client.get(answer.json()["picture"])
    assert picture.content == PNG and picture.headers["content-type"] == "image/png"
    for wrong in (b"<svg onload=alert(1)>", b"", b"\x89PNG" + b"\0" * 10):
        assert (await web.client.put(f"/you/personas/{kim}/picture", content=wrong)).status_code == 422
    assert (await web.client.get("/pictures/..%2fconfig.toml")).status_code == 404
    assert (await web.client.get(f"/pictures/{'0' * 32}")).status_code == 404


async def test_s2_personas_are_changed_deleted_restored_and_one_is_the_default(web: Web) -> None:
    kim = (await web.post("/you/personas", {"name": "Kim"}, status=201))["id"]
    await web.client.put("/you/personas/default", json={"persona": kim})
    await web.client.put(f"/you/personas/{kim}", json={"name": "Kimmy", "pronouns": "they"})
    (only,) = await web.get("/you/personas")
    assert (only["name"], only["pronouns"], only["is_default"]) == ("Kimmy", "they", True)
    assert "Kimmy" in (await web.client.get("/personas", headers={"accept": "text/html"})).text
    await web.client.delete(f"/you/personas/{kim}")
    assert await web.get("/you/personas") == []
    await web.post(f"/you/personas/{kim}/restore")
    assert len(await web.get("/you/personas")) == 1
    assert (await web.client.put("/you/personas/nobody", json={"name": "X"})).status_code == 404
