from __future__ import annotations

import asyncio

import pytest

from coterie.base.errors import DiskFull
from coterie.base.redaction import redact
from tests.surfaces.web.conftest import Web

MARA = {"name": "Mara", "persona": "Keeps bees.", "traits": ["dry"], "voice_samples": ['"Mind the hive."']}


async def test_s2_you(web: Web) -> None:
    assert await web.get("/you") == {"name": "You", "pronouns": "", "persona": "", "authored": False}
    answer = await web.client.put("/you", json={"name": "Ana", "persona": "A cartographer."})
    assert answer.json() == {"name": "Ana", "pronouns": "", "persona": "A cartographer.", "authored": True}
    assert await web.get("/you") == answer.json()
    assert (await web.client.put("/you", json={"name": "  "})).status_code == 400


async def test_s1_a_character_is_created_and_edited_and_keeps_every_version(web: Web) -> None:
    made = await web.post("/characters", MARA, status=201)
    assert (made["name"], made["version"]) == ("Mara", 1)
    answer = await web.client.put(f"/characters/{made['id']}", json={**MARA, "persona": "Keeps wasps."})
    assert answer.json()["version"] == 2
    shown = await web.get(f"/characters/{made['id']}")
    assert shown["persona"] == "Keeps wasps."
    assert [version["persona"] for version in shown["versions"]] == ["Keeps bees.", "Keeps wasps."]
    listed = await web.get("/characters")
    assert [character["id"] for character in listed] == [made["id"]]


async def test_d11_a_new_character_has_a_folder_with_templates_that_are_never_overwritten(web: Web) -> None:
    made = await web.post("/characters", MARA, status=201)
    folder = web.home.workspace(made["id"])
    assert {file.name for file in folder.iterdir()} == {"SOUL.md", "IDENTITY.md", "USER.md"}
    (folder / "SOUL.md").write_text("mine")
    await web.client.put(f"/characters/{made['id']}", json=MARA)
    assert (folder / "SOUL.md").read_text() == "mine"


async def test_s10_three_ready_made_characters(web: Web) -> None:
    offered = await web.get("/characters/ready")
    assert len(offered) == 3
    for one in offered:
        character = await web.post(f"/characters/ready/{one['name']}", status=201)
        assert character["kickoff"]
        assert character["initial_relationship"]
        assert len(character["voice_samples"]) >= 3
        assert "\\\n" not in character["persona"]
    assert (await web.post("/characters/ready/nobody", status=404))["fix"].startswith("There are:")


async def test_s8_kickoff_proposes_and_confirms(web: Web) -> None:
    character = (
        await web.post("/characters", {"name": "Hale", "kickoff": "Hale comes in with the rain."}, status=201)
    )["id"]
    web.script.shapes["Opening"] = {"title": "Rain", "place": {"name": "the lamp room"}, "facts": ["Came by boat."]}
    proposal = await web.get(f"/characters/{character}/kickoff")
    assert proposal["notice"] == ""
    assert proposal["opening"]["place"]["name"] == "the lamp room"
    chat = await web.post(f"/characters/{character}/kickoff", proposal["opening"], status=201)
    assert chat["title"] == "Rain"
    drawer = await web.get(f"/chats/{chat['id']}/drawer")
    assert drawer["scene"]["place"] == "the lamp room"
    edge = next(edge for edge in drawer["edges"] if edge["of"] == character)
    assert edge["knowledge"] == ["Came by boat."]
    assert [text[:20] for text in await web.texts(f"/chats/{chat['id']}")] == [proposal["opening"]["greeting"][:20]]


async def test_s8_a_ready_made_character_brings_its_opening(web: Web) -> None:
    character = (await web.post("/characters/ready/maren", status=201))["id"]
    proposal = await web.get(f"/characters/{character}/kickoff")
    chat = await web.post(f"/characters/{character}/kickoff", proposal["opening"], status=201)
    drawer = await web.get(f"/chats/{chat['id']}/drawer")
    assert (chat["title"], proposal["notice"]) == ("The kettle and the static", "")
    assert drawer["scene"]["place"] == "the lighthouse kitchen"


async def test_s8_a_classifier_that_fails_leaves_a_form_with_a_notice(web: Web) -> None:
    character = (
        await web.post("/characters", {"name": "Hale", "kickoff": "Hale comes in with the rain."}, status=201)
    )["id"]
    web.script.shapes["Opening"] = "not an opening"
    proposal = await web.get(f"/characters/{character}/kickoff")
    assert proposal["notice"]
    await web.post(f"/characters/{character}/kickoff", proposal["opening"], status=201)


async def test_s12_a_turn_is_accepted_then_answered(web: Web) -> None:
    _, chat = await web.begin()
    web.script.replies = ["Tea first."]
    begun = await web.post(f"{chat}/turns", {"text": "Hello? ((is this on))"}, status=202)
    assert (begun["text"], begun["state"]) == (None, "open")
    await web.app.story.replies.wait(f"room:{chat.removeprefix('/chats/')}")
    page = await web.get(f"{chat}/turns")
    said, reply = page["turns"]
    assert (said["id"], reply["id"], reply["answers"]) == (begun["turn"], begun["reply"], begun["turn"])
    assert [segment["kind"] for segment in said["segments"]] == ["dialogue", "ooc"]
    assert (reply["text"], reply["state"], reply["name"]) == ("Tea first.", "done", "Maren Oke")


async def test_s12_with_wait_the_answer_is_the_reply(web: Web) -> None:
    _, chat = await web.begin()
    web.script.replies = ["Tea first."]
    reply = await web.post(f"{chat}/turns?wait=true", {"text": "Hello?"})
    assert (reply["text"], reply["state"]) == ("Tea first.", "done")


async def test_s12_the_same_key_is_the_same_message_even_while_it_is_answered(web: Web) -> None:
    _, chat = await web.begin()
    first = await web.post(f"{chat}/turns", {"text": "Hello?", "key": "k1"}, status=202)
    again = await web.post(f"{chat}/turns", {"text": "Hello?", "key": "k1"}, status=202)
    assert again == first
    waited = await web.post(f"{chat}/turns?wait=true", {"text": "Hello?", "key": "k1"})
    assert waited["reply"] == first["reply"]
    assert len(await web.texts(chat)) == 2
    inner = f"reply:{first['reply']}"
    other = await web.post(f"{chat}/turns?wait=true", {"text": "More.", "key": inner})
    assert other["turn"] != first["turn"], "a key of ours cannot be taken"


async def test_s20_during_a_reply_a_message_is_refused_with_a_reason(web: Web) -> None:
    _, chat = await web.begin()
    web.script.paused = True
    web.script.replies = ["Well now, tea first."]
    begun = await web.post(f"{chat}/turns", {"text": "Hello?"}, status=202)
    web.script.step(2)
    room = f"room:{chat.removeprefix('/chats/')}"
    async with asyncio.timeout(20):
        while (partial := web.app.story.replies.partial(room)) is None or partial.text != "Well now, ":
            await asyncio.sleep(0.01)
    refused = await web.post(f"{chat}/turns", {"text": "And?"}, status=409)
    assert refused == {"error": "A reply is still in progress.", "fix": "Wait for the reply, or press Stop."}
    await web.post(f"{chat}/regenerate", status=409)
    assert (await web.post(f"{chat}/stop"))["done"] is True
    assert (await web.post(f"{chat}/stop"))["done"] is False
    page = await web.get(f"{chat}/turns")
    cut = page["turns"][-1]
    assert (cut["id"], cut["state"], cut["why"]) == (begun["reply"], "truncated", "stopped")
    assert cut["text"] == "Well now, "


async def test_turns_come_in_pages(web: Web) -> None:
    _, chat = await web.begin()
    for number in range(4):
        await web.say(chat, f"message {number}")
    everything = await web.texts(chat)
    seen: list[str] = []
    before = ""
    while True:
        page = await web.get(f"{chat}/turns?limit=3{before}")
        seen = [turn["text"] for turn in page["turns"]] + seen
        if page["before"] is None:
            break
        before = f"&before={page['before']}"
    assert seen == everything
    assert len(seen) == 8


async def test_s22_regenerate_alternatives_and_choose(web: Web) -> None:
    _, chat = await web.begin()
    web.script.replies = ["First.", "Second.", "Third."]
    first = await web.say(chat, "Hello?")
    await web.post(f"{chat}/regenerate?wait=true")
    third = await web.post(f"{chat}/regenerate?wait=true", {"text": "Hello there?"})
    assert third["text"] == "Third."
    await web.settle()
    assert await web.texts(chat) == ["Hello there?", "Third."]
    options = await web.get(f"{chat}/alternatives")
    assert [(one["text"], one["chosen"]) for one in options] == [
        ("First.", False),
        ("Second.", False),
        ("Third.", True),
    ]
    chosen = await web.post(f"{chat}/choose", {"reply": first["reply"]})
    assert chosen["text"] == "First."
    assert (await web.texts(chat))[-1] == "First."
    await web.post(f"{chat}/choose", {"reply": "no such"}, status=404)


async def test_s22_a_fork_keeps_the_alternatives_it_inherited(web: Web) -> None:
    _, chat = await web.begin()
    web.script.replies = ["First.", "Second."]
    await web.say(chat, "Hello?")
    second = await web.post(f"{chat}/regenerate?wait=true")
    fork = await web.post(f"{chat}/fork", {"turn": second["reply"]}, status=201)
    options = await web.get(f"/chats/{fork['id']}/alternatives")
    assert [one["text"] for one in options] == ["First.", "Second."]
    await web.post(f"/chats/{fork['id']}/choose", {"reply": options[0]["reply"]})
    assert (await web.texts(f"/chats/{fork['id']}"))[-1] == "First."
    assert (await web.texts(chat))[-1] == "Second."


async def test_s23_rewind_with_preview_snapshot_and_undo(web: Web) -> None:
    _, chat = await web.begin()
    first = await web.say(chat, "one")
    await web.say(chat, "two")
    await web.say(chat, "three")
    before = await web.texts(chat)
    impact = await web.get(f"{chat}/rewind/{first['reply']}")
    assert impact["turns"] == 4
    assert impact["memories"] > 0
    assert impact["edges"] > 0
    assert [one["text"] for one in impact["lost"] if one["what"] == "turns"] == before[2:]
    await web.post(f"{chat}/rewind", {"turn": first["reply"]})
    assert await web.texts(chat) == before[:2]
    assert len(list(web.home.rewind_snapshots.iterdir())) == 1
    web.verify()
    await web.post(f"{chat}/undo")
    assert await web.texts(chat) == before
    await web.post(f"{chat}/rewind", {"turn": first["reply"]})
    await web.say(chat, "something else")
    assert "Fork" in (await web.post(f"{chat}/undo", status=400))["fix"]


async def test_s24_a_fork_shares_earlier_turns_only(web: Web) -> None:
    _, chat = await web.begin()
    first = await web.say(chat, "one")
    await web.say(chat, "the password is marzipan")
    fork = await web.post(f"{chat}/fork", {"turn": first["reply"], "title": "What if"}, status=201)
    assert (fork["title"], fork["forked"]) == ("What if", True)
    there = f"/chats/{fork['id']}"
    assert await web.texts(there) == (await web.texts(chat))[:2]
    await web.say(there, "what is the password?")
    assert "marzipan" not in web.script.prompt()
    listed = await web.get("/chats")
    assert {f"/chats/{one['id']}" for one in listed} == {chat, there}


async def test_s15_closing_a_scene_opens_the_next(web: Web) -> None:
    _, chat = await web.begin()
    await web.say(chat, "one")
    before = await web.get(chat)
    after = await web.post(f"{chat}/scene/close")
    assert after["scene"] not in (None, before["scene"])


async def test_s25_reset_requires_the_name_and_deletes_all_turns_and_memories(web: Web) -> None:
    character, chat = await web.begin()
    await web.say(chat, "I keep a tortoise.")
    assert web.app.memory.count(character) > 0
    refused = await web.post(f"/characters/{character}/reset", {"confirm": "maren"}, status=400)
    assert "Maren Oke" in refused["fix"]
    await web.post(f"/characters/{character}/reset", {"confirm": "Maren Oke"})
    assert await web.get("/chats") == []
    await web.get(chat, status=404)
    assert web.app.memory.count(character) == 0
    shown = await web.get(f"/characters/{character}")
    assert shown["kickoff"]
    again = await web.post(f"/characters/{character}/kickoff", {}, status=201)
    drawer = await web.get(f"/chats/{again['id']}/drawer")
    assert {edge["affinity"] for edge in drawer["edges"]} == {50}


async def test_s6_guests_come_and_go(web: Web) -> None:
    _, chat = await web.begin()
    guest = (await web.post("/characters/ready/io", status=201))["id"]
    joined = await web.post(f"{chat}/guests", {"character": guest}, status=201)
    assert joined["guests"] == [{"id": guest, "name": "Io"}]
    await web.post(f"{chat}/guests", {"character": guest}, status=409)
    reply = await web.say(chat, "Io, what do you count?")
    assert reply["speaker"] == guest
    picked = await web.say(chat, "And you?", speaker="Maren Oke")
    assert picked["speaker"] != guest
    whispered = await web.say(chat, "A secret.", to=[guest])
    page = await web.get(f"{chat}/turns")
    assert [turn["to"] for turn in page["turns"] if turn["id"] == whispered["turn"]] == [[guest]]
    answer = await web.client.delete(f"{chat}/guests/{guest}")
    assert answer.json()["guests"] == []
    assert (await web.client.delete(f"{chat}/guests/{guest}")).status_code == 404


async def test_s21_the_drawer(web: Web) -> None:
    character, chat = await web.begin(weather="rain", time="2031-05-04T08:00:00Z")
    await web.say(chat, "I keep a tortoise.")
    drawer = await web.get(f"{chat}/drawer")
    assert drawer["weather"] == "rain"
    assert drawer["clock"].startswith("2031-05-04T08")
    assert {(edge["of"], edge["toward"]) for edge in drawer["edges"]} == {("you", character), (character, "you")}
    assert set(drawer["activities"]) == {"you", character}
    seen = drawer["characters"][character]
    assert "I keep a tortoise." in [memory["text"] for memory in seen["memories"]]
    assert (seen["pins"], seen["most_pins"]) == (0, 8)


async def test_s13_the_prompt_is_shown_exactly_as_sent(web: Web) -> None:
    _, chat = await web.begin()
    reply = await web.say(chat, "Hello?")
    seen = await web.get(f"{chat}/prompt/{reply['reply']}")
    sent = web.script.prompt()
    for part in seen["parts"]:
        assert part["text"] in sent
        assert part["tokens"] > 0
    assert sum(part["tokens"] for part in seen["parts"]) == seen["tokens"]
    await web.get(f"{chat}/prompt/{reply['turn']}", status=404)


async def test_s29_no_secret_in_the_prompt_or_an_error(web: Web) -> None:
    redact.register("api-hidden-77")
    _, chat = await web.begin()
    reply = await web.say(chat, "my key is api-hidden-77")
    for path in (f"{chat}/prompt/{reply['reply']}", f"{chat}/export?format=md", f"{chat}/export?format=json",
                 f"{chat}/export?format=jsonl"):  # fmt: skip
        assert "api-hidden-77" not in (await web.client.get(path)).text, path
    assert "api-hidden-77" not in (await web.client.post("/characters/ready/api-hidden-77")).text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/chats/none", 404),
        ("GET", "/chats/none/turns", 404),
        ("GET", "/chats/none/drawer", 404),
        ("GET", "/chats/none/events", 404),
        ("GET", "/chats/none/alternatives", 404),
        ("GET", "/chats/none/export", 404),
        ("GET", "/chats/none/export?format=exe", 400),
        ("GET", "/chats/none/rewind/t", 404),
        ("GET", "/chats/none/turns?limit=0", 400),
        ("GET", "/characters/none", 404),
        ("GET", "/characters/none/kickoff", 404),
        ("GET", "/characters/none/export", 404),
        ("POST", "/chats/none/stop", 404),
        ("POST", "/chats/none/undo", 404),
        ("POST", "/chats/none/turns", 400),
        ("POST", "/characters", 400),
        ("POST", "/characters/none/chats/import", 404),
        ("PATCH", "/characters", 405),
        ("GET", "/nowhere", 404),
    ],
)
async def test_every_error_says_what_and_what_to_do(web: Web, method: str, path: str, status: int) -> None:
    answer = await web.client.request(method, path)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error", "fix"}
    assert all(answer.json().values())


async def test_a_validation_error_does_not_repeat_the_value(web: Web) -> None:
    answer = await web.client.post("/characters", json={"name": "A", "personna": "zzz-typo"})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("personna:")
    assert "zzz-typo" not in answer.text
    assert (await web.client.post("/characters", content=b"{not json")).status_code == 400
    assert (await web.client.post("/characters", json={"name": "x" * 500})).status_code == 400


async def test_a_full_disk_is_503(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: object, **__: object) -> None:
        raise DiskFull("No room.", "Make some.")

    monkeypatch.setattr(web.app.store, "append", full)
    assert await web.post("/characters", MARA, status=503) == {"error": "No room.", "fix": "Make some."}


async def test_every_route_is_described(web: Web) -> None:
    described = await web.get("/openapi.json")
    wanted = {
        "/health", "/you", "/characters", "/characters/import", "/characters/ready", "/characters/{character_id}",
        "/characters/{character_id}/kickoff",
        "/characters/{character_id}/reset",
        "/characters/{character_id}/export", "/characters/{character_id}/chats/import",
        "/chats", "/chats/{chat}", "/chats/{chat}/turns",
        "/chats/{chat}/stop", "/chats/{chat}/regenerate", "/chats/{chat}/alternatives", "/chats/{chat}/choose",
        "/chats/{chat}/rewind", "/chats/{chat}/rewind/{turn}", "/chats/{chat}/undo", "/chats/{chat}/fork",
        "/chats/{chat}/scene/close", "/chats/{chat}/guests", "/chats/{chat}/drawer", "/chats/{chat}/prompt/{reply}",
        "/chats/{chat}/export", "/chats/{chat}/events",
    }  # fmt: skip
    assert wanted <= described["paths"].keys()
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            assert route.get("summary"), (method, path)


async def test_two_clients_at_once_lose_nothing(web: Web) -> None:
    _, chat = await web.begin()
    answers = await asyncio.gather(
        *(web.client.post(f"{chat}/turns?wait=true", json={"text": f"m{number}"}) for number in range(6))
    )
    accepted = [answer for answer in answers if answer.status_code == 200]
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert len(await web.texts(chat)) == 2 * len(accepted)


async def test_d11_a_deleted_character_is_not_listed_and_its_chats_stay(web: Web) -> None:
    character, chat = await web.begin()
    await web.say(chat, "Hello.")
    name = (await web.get(f"/characters/{character}"))["name"]
    await web.post(f"/characters/{character}/delete", {"confirm": "somebody"}, status=400)
    await web.post(f"/characters/{character}/delete", {"confirm": name})
    assert await web.get("/characters") == []
    assert len(await web.get("/chats")) == 1
    assert (await web.texts(chat))[0] == "Hello."
    shown = await web.get(f"/characters/{character}")
    body = {key: shown[key] for key in ("name", "persona")}
    await web.client.put(f"/characters/{character}", json=body)
    assert [one["id"] for one in await web.get("/characters")] == [character]
