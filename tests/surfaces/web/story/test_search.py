from __future__ import annotations

from tests.surfaces.web.conftest import Web


async def test_s17_search_over_every_chat(web: Web) -> None:
    web.script.replies = ["The <b>lantern</b> is lit.", "A lantern, here?"]
    _, first = await web.begin(title="Jetty")
    await web.say(first, "Hello.")
    _, second = await web.begin("io", title="Ward")
    await web.say(second, "Anything to see?")
    hits = await web.get("/search?q=lantern")
    assert {(hit["title"], hit["by_person"]) for hit in hits} == {("Jetty", False), ("Ward", False)}
    jetty = next(hit for hit in hits if hit["title"] == "Jetty")
    assert "".join(piece["text"] for piece in jetty["snippet"]) == "The <b>lantern</b> is lit."
    assert [piece["text"] for piece in jetty["snippet"] if piece["hit"]] == ["lantern"]
    around = await web.get(f"/chats/{jetty['chat']}/turns?before={jetty['seq'] + 1}&limit=1")
    assert around["turns"][0]["id"] == jetty["turn"]
    assert len(await web.get(f"/search?q=lantern&chat={jetty['chat']}")) == 1
    assert len(await web.get("/search?q=lantern&limit=1&offset=1")) == 1
    assert await web.get("/search?q=") == []
    await web.get("/search?q=x&chat=none", 404)


async def test_s17_a_turn_that_forks_share_is_found_once(web: Web) -> None:
    web.script.replies = ["The lantern is lit.", "It is out again, your lantern."]
    _, chat = await web.begin(title="Jetty")
    said = await web.say(chat, "Hello.")
    fork = await web.post(f"{chat}/fork", {"turn": said["reply"]}, status=201)
    assert len(await web.get("/search?q=lantern")) == 1
    await web.say(f"/chats/{fork['id']}", "And now?")
    assert len(await web.get("/search?q=lantern")) == 2
    assert len(await web.get(f"/search?q=lantern&chat={fork['id']}")) == 2
    assert len(await web.get("/search?q=lantern&limit=1&offset=1")) == 1


async def test_s17_the_list_of_chats_has_the_latest_reply_the_clock_and_what_is_unread(web: Web) -> None:
    web.script.replies = ["Mind the step.", "It is wet."]
    _, chat = await web.begin(title="Jetty", greeting="Ahoy.")
    assert [(one["snippet"], one["unread"]) for one in await web.get("/chats")] == [("Ahoy.", 1)]
    assert (await web.post(f"{chat}/read"))["unread"] == 0
    await web.say(chat, "Hello.")
    (listed,) = await web.get("/chats")
    assert (listed["title"], listed["snippet"], listed["unread"]) == ("Jetty", "Mind the step.", 1)
    assert listed["clock"]
    events = len(web.app.store.reader.read("reading"))
    for _ in range(2):
        assert (await web.post(f"{chat}/read"))["unread"] == 0
    assert len(web.app.store.reader.read("reading")) == events + 1  # reading again is no news
    said = await web.say(chat, "Careful?")
    turns = (await web.get(f"{chat}/turns"))["turns"]
    await web.post(f"{chat}/rewind", {"turn": turns[0]["id"]})
    await web.post(f"{chat}/read")
    await web.post(f"{chat}/undo")  # having read does not stand in its way
    assert (await web.texts(chat))[-1] == said["text"]
    fork = await web.post(f"{chat}/fork", {"turn": said["reply"]}, status=201)
    assert fork["unread"] == 0
