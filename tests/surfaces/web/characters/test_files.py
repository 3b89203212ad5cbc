"""S9, S26: import and export of files through the API lose nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coterie.base.redaction import redact
from coterie.characters.cards import Card, TavernChat, export_card, import_card
from coterie.characters.identity import Identity
from tests.surfaces.web.conftest import Web

PICTURE = Identity(name="Nils", persona="A ferryman.", traits=["slow"]).to_card()


def tavern() -> bytes:
    header = {"user_name": "Ana", "character_name": "Nils", "chat_metadata": {}}
    lines: list[dict[str, Any]] = [
        {"name": "Nils", "is_user": False, "mes": "Aye?", "swipes": ["Ahoy.", "Aye?"], "swipe_id": 1},
        {"name": "Ana", "is_user": True, "mes": '*sits* "Across, please."'},
        {
            "name": "Nils",
            "is_user": False,
            "mes": "Two coins.",
            "swipes": ["Free.", "Two coins.", "No."],
            "swipe_id": 1,
        },
        {"name": "System", "is_system": True, "mes": "The player paused."},
        {"name": "Ana", "is_user": True, "mes": "Here."},
        {"name": "Nils", "is_user": False, "mes": "Mind the step."},
    ]
    return b"\n".join(json.dumps(line).encode() for line in (header, *lines))


async def imported(web: Web, data: bytes, name: str = "") -> Any:
    answer = await web.client.post("/characters/import", content=data, params={"name": name})
    assert answer.status_code == 201, answer.text
    return answer.json()["character"]


@pytest.mark.parametrize("kind", ["json", "png", "charx"])
async def test_s9_an_imported_card_is_exported_unchanged(web: Web, kind: Any) -> None:
    sent = export_card(PICTURE, kind).data
    character = await imported(web, sent, f"nils.{kind}")
    assert (character["name"], character["has_card"], character["traits"]) == ("Nils", True, ["slow"])
    answer = await web.client.get(f"/characters/{character['id']}/export", params={"format": kind})
    assert import_card(answer.content, "x").card == import_card(sent, "x").card
    assert answer.headers["content-disposition"].startswith("attachment")


async def test_s9_pictures_and_files_of_a_card_are_kept(web: Web) -> None:
    icon = export_card(PICTURE, "png").data
    document = {
        **PICTURE.document,
        "data": {
            **PICTURE.document["data"],
            "assets": [{"type": "icon", "uri": "embeded://assets/icon/main.png", "name": "main", "ext": "png"}],
        },
    }
    card = Card.read(document, {"assets/icon/main.png": icon})
    character = await imported(web, export_card(card, "charx").data, "nils.charx")
    answer = await web.client.get(f"/characters/{character['id']}/export", params={"format": "charx"})
    assert import_card(answer.content, "x").card == card


@pytest.mark.parametrize("data", [b"", b"hello", b"{}", b"\x89PNG\r\n\x1a\nnot", b'{"format": "coterie-character"}',
                                  b'{"format": "coterie-character", "version": 1, "versions": []}'])  # fmt: skip
async def test_s9_an_invalid_file_is_refused_and_creates_no_character(web: Web, data: bytes) -> None:
    answer = await web.client.post("/characters/import", content=data)
    assert answer.status_code == 400
    assert set(answer.json()) == {"error", "fix"}
    assert await web.get("/characters") == []


async def test_s9_a_file_that_is_too_large_is_refused_during_the_upload(web: Web) -> None:
    async def endless() -> Any:
        for _ in range(200):
            yield b" " * 1_000_000

    answer = await web.client.post("/characters/import", content=endless())
    assert answer.status_code == 413


async def test_s9_a_sillytavern_chat_has_its_turns_and_swipes(web: Web) -> None:
    character = await imported(web, export_card(PICTURE, "json").data)
    answer = await web.client.post(
        f"/characters/{character['id']}/chats/import", content=tavern(), params={"title": "Ferry"}
    )
    assert answer.status_code == 201
    chat = f"/chats/{answer.json()['id']}"
    page = await web.get(f"{chat}/turns")
    assert [turn["text"] for turn in page["turns"]] == [
        "Aye?", '*sits* "Across, please."', "Two coins.", "((The player paused.))", "Here.", "Mind the step.",
    ]  # fmt: skip
    assert [segment["kind"] for segment in page["turns"][3]["segments"]] == ["ooc"]
    swipes = await web.get(f"{chat}/alternatives?turn={page['turns'][1]['id']}")
    assert [(one["text"], one["chosen"]) for one in swipes] == [("Free.", False), ("Two coins.", True), ("No.", False)]
    openings = await web.get(f"{chat}/alternatives?turn={page['turns'][0]['id']}")
    assert [one["text"] for one in openings] == ["Ahoy.", "Aye?"]
    web.verify()
    drawer = await web.get(f"{chat}/drawer")
    remembered = {memory["text"] for memory in drawer["characters"][character["id"]]["memories"]}
    assert "Two coins." in remembered
    assert not {"Free.", "No.", "The player paused."} & remembered
    await web.say(chat, "And back again?")
    assert "The player paused" not in web.script.prompt()


async def test_s26_exported_jsonl_is_imported_unchanged(web: Web) -> None:
    character = await imported(web, export_card(PICTURE, "json").data)
    answer = await web.client.post(f"/characters/{character['id']}/chats/import", content=tavern())
    first = await web.client.get(f"/chats/{answer.json()['id']}/export?format=jsonl")
    read = TavernChat.read(first.content)
    assert [turn.swipes for turn in read.turns][2] == ["Free.", "Two coins.", "No."]
    again = await web.client.post(f"/characters/{character['id']}/chats/import", content=first.content)
    second = TavernChat.read((await web.client.get(f"/chats/{again.json()['id']}/export?format=jsonl")).content)
    same = [(turn.speaker, turn.name, turn.text, turn.swipes, turn.chosen) for turn in read.turns]
    assert [(turn.speaker, turn.name, turn.text, turn.swipes, turn.chosen) for turn in second.turns] == same


async def test_s26_a_chat_as_markdown_and_json(web: Web) -> None:
    _, chat = await web.begin(title="Rain\n# not a heading")
    web.script.replies = ["Tea first.", "Tea, then."]
    await web.say(chat, "Hello?")
    await web.post(f"{chat}/regenerate?wait=true")
    text = (await web.client.get(f"{chat}/export")).text
    assert text.startswith("# Rain # not a heading\n")
    assert "**You**: Hello?" in text
    assert "**Maren Oke**: Tea, then." in text
    assert "Tea first." not in text
    exported = (await web.client.get(f"{chat}/export?format=json")).json()
    assert exported["turns"][-1]["alternatives"] == ["Tea first.", "Tea, then."]
    assert exported["turns"][-1]["chosen"] == 1


async def lived(web: Web) -> tuple[str, str]:
    character, chat = await web.begin()
    web.script.shapes["TurnAnalysis"] = {
        "pairs": [{"of": "Maren Oke", "toward": "You", "affinity_delta": 7, "knowledge_facts": ["Has a tortoise."]}]
    }
    await web.say(chat, "I keep a tortoise called Zeno.")
    return character, chat


def feelings(web: Web, character: str) -> set[tuple[int, int, str, tuple[str, ...]]]:
    edges = web.app.story.relationships.in_world("main")
    return {(edge.affinity, edge.trust, edge.summary, edge.knowledge) for edge in edges if edge.of == character}


async def test_s26_a_whole_character_moves_to_another_instance(web: Web, tmp_path: Path) -> None:
    character, _ = await lived(web)
    packed = (await web.client.get(f"/characters/{character}/export?format=character")).content
    texts = {record.text for record in web.app.memory.browse(owner=character)}
    before = feelings(web, character)
    twin = await imported(web, packed)
    assert twin["id"] != character, "beside its former self it is somebody new"
    assert {record.text for record in web.app.memory.browse(owner=twin["id"])} == texts
    assert feelings(web, twin["id"]) == before
    assert next(iter(before))[0] == 57
    chat = await web.post(f"/characters/{twin['id']}/kickoff", {}, status=201)
    for number in range(8):
        await web.say(f"/chats/{chat['id']}", f"Nothing in particular, {number}.")
    await web.say(f"/chats/{chat['id']}", "What is my tortoise called?")
    assert "Zeno" in web.script.prompt()
    again = json.loads((await web.client.get(f"/characters/{twin['id']}/export?format=character")).content)
    zeno = [memory for memory in again["memories"] if "Zeno" in memory["text"]]
    assert twin["id"] in zeno[0]["witnesses"]
    await web.post(f"/characters/{twin['id']}/reset", {"confirm": "Maren Oke"})
    assert web.app.memory.count(twin["id"]) == 0, "S25: imported memories are cleared too"
    assert web.app.memory.count(character) > 0


async def test_s26_turns_of_a_fork_are_not_exported(web: Web) -> None:
    character, chat = await lived(web)
    turns = await web.get(f"{chat}/turns")
    fork = await web.post(f"{chat}/fork", {"turn": turns["turns"][-1]["id"]}, status=201)
    await web.say(f"/chats/{fork['id']}", "The vault opens with rhubarb.")
    packed = await web.client.get(f"/characters/{character}/export?format=character")
    assert "rhubarb" not in packed.text
    assert "Zeno" in packed.text


async def test_s29_no_secret_is_exported_with_a_character(web: Web) -> None:
    character, chat = await web.begin()
    redact.register("travel-hidden-31")
    web.app.memory.add("the key is travel-hidden-31", owner=character, room=f"room:{chat.removeprefix('/chats/')}")
    assert "travel-hidden-31" not in (await web.client.get(f"/characters/{character}/export?format=character")).text


@pytest.mark.parametrize("hostile", ["../../etc", "a/b", "", "x" * 500, "nul\0"])
async def test_s26_an_id_from_a_file_is_not_used_as_a_path(web: Web, hostile: str) -> None:
    packed = {"format": "coterie-character", "version": 1, "versions": [{"id": hostile, "name": "Eve"}]}
    character = await imported(web, json.dumps(packed).encode())
    assert character["id"].isalnum()
    assert {folder.name for folder in (web.home.root / "workspaces").iterdir()} == {character["id"]}


async def test_s26_an_invalid_memory_creates_no_character(web: Web) -> None:
    packed = {"format": "coterie-character", "version": 1, "versions": [{"id": "e1", "name": "Eve"}],
              "memories": [{"text": "fine", "room": "r", "owner": "e1"}, {"text": 7}]}  # fmt: skip
    answer = await web.client.post("/characters/import", content=json.dumps(packed).encode())
    assert answer.status_code == 400
    assert await web.get("/characters") == []


async def test_s9_dates_of_an_imported_chat_are_kept_where_there_are_any(web: Web) -> None:
    character = await imported(web, export_card(PICTURE, "json").data)
    lines = [
        {"user_name": "Ana", "character_name": "Nils"},
        {"is_user": True, "name": "Ana", "mes": "Across?", "send_date": "July 8, 2023 3:14pm"},
        {
            "is_user": False,
            "name": "Nils",
            "mes": "Aye.",
            "send_date": 1688829300000,
            "swipes": ["No.", "Aye."],
            "swipe_id": 1,
        },
        {"is_user": True, "name": "Ana", "mes": "Now?", "send_date": "who knows"},
    ]
    sent = b"\n".join(json.dumps(line).encode() for line in lines)
    chat = (await web.client.post(f"/characters/{character['id']}/chats/import", content=sent)).json()["id"]
    turns = (await web.get(f"/chats/{chat}/turns"))["turns"]
    assert [turn["at"][:16] for turn in turns[:2]] == ["2023-07-08T15:14", "2023-07-08T15:15"]
    assert turns[2]["at"] > "2024"  # the time of the import
    exported = (await web.client.get(f"/chats/{chat}/export", params={"format": "jsonl"})).text.splitlines()
    assert [json.loads(line) for line in exported] == lines
