"""S17: the list of chats through the API and on its pages."""

from __future__ import annotations

from tests.surfaces.web.conftest import Web

HTML = {"accept": "text/html"}


async def page(web: Web, path: str) -> str:
    answer = await web.client.get(path, headers=HTML)
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_s17_chats_are_organised(web: Web) -> None:
    await web.client.put("/you", json={"name": "Ana"})
    _, storm = await web.begin(title="Storm", greeting="A lantern.")
    await web.begin("io", title="Ward")
    change = {"title": "Gale", "pinned": True, "tags": ["sea", "<u>"]}
    assert (await web.client.patch(storm, json=change)).json()["title"] == "Gale"
    listed = await page(web, "/chats")
    assert listed.index("Gale") < listed.index("Ward") and "pinned" in listed and "<u>" not in listed
    assert "Ward" not in await page(web, "/chats?tag=sea")
    assert "Gale" not in await page(web, "/chats?q=ward")
    titled = await page(web, "/chats?sort=title")
    assert titled.index("Gale") < titled.index("Ward")
    assert (await web.client.patch(storm, json={"archived": True})).status_code == 200
    assert [chat["title"] for chat in await web.get("/chats")] == ["Ward"]
    assert [chat["title"] for chat in await web.get("/chats?archived=true")] == ["Gale"]
    assert await web.get("/search?q=lantern") == []
    assert "Gale" not in await page(web, "/") and "Gale" not in await page(web, "/chats/sidebar")
    assert "Gale" in await page(web, "/chats?view=archived")
    assert (await web.client.patch(storm, json={"title": " "})).status_code == 400
    assert (await web.client.patch("/chats/none", json={"pinned": True})).status_code == 404


async def test_s17_a_chat_is_deleted_restored_and_duplicated(web: Web) -> None:
    _, chat = await web.begin(title="Storm", greeting="Ahoy.")
    copy = await web.post(f"{chat}/duplicate", status=201)
    assert copy["title"] == "Storm (copy)"
    assert (await web.client.delete(chat)).status_code == 200
    await web.get(chat, 404)
    answer = await web.client.post(f"{chat}/turns", json={"text": "Hello?"})
    assert answer.status_code == 404
    assert [one["title"] for one in await web.get("/chats/deleted")] == ["Storm"]
    assert "Restore" in await page(web, "/chats?view=deleted")
    assert (await web.post(f"{chat}/restore"))["title"] == "Storm"
    assert await web.texts(chat) == ["Ahoy."]
    await web.post(f"{chat}/restore", status=404)


async def test_s24_the_tree_shows_forks_and_swipes(web: Web) -> None:
    web.script.replies = ["First <i>answer</i>.", "Second answer."]
    _, chat = await web.begin(title="Storm")
    await web.say(chat, "Hello.")
    second = await web.post(f"{chat}/regenerate?wait=true", {})
    fork = await web.post(f"{chat}/fork", {"turn": second["reply"], "title": "Elsewhere"}, status=201)
    tree = await page(web, f"/chats/{fork['id']}/tree")
    assert "Storm" in tree and "Elsewhere" in tree and "2 replies, number 2 was chosen" in tree
    assert "First <i>" not in tree and "First &lt;i&gt;answer" in tree
