"""A whole SillyTavern folder is imported: everything is accounted for, again without doubles, and after a kill."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coterie.app import App, open_store
from coterie.base.errors import ConfirmationNeeded, CoterieError
from coterie.base.paths import Paths
from coterie.characters import Identity, TavernChat
from coterie.eventstore import Worker
from coterie.eventstore.sqlite.verify import verify
from coterie.modes.story import export_chat
from coterie.modes.story.sillytavern.records import ImportedItem
from coterie.modes.story.sillytavern.source import NotSillyTavern, find_data_folder
from coterie.settings import Settings
from tests.modes.story.sillytavern.tavern_folder import (
    BOOK,
    CHAT,
    GROUP,
    HEADER,
    card,
    make_folder,
    said,
    write_lines,
)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    home = Paths.locate({"COTERIE_HOME": str(tmp_path / "home")})
    with open_store(home) as store:
        yield App(home, Settings(), store)
        assert verify(store.reader, store.projections).problems == []


@pytest.fixture
def tavern(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "SillyTavern")


async def take(app: App, folder: Path) -> dict[str, ImportedItem]:
    run = await app.sillytavern.start(str(folder), confirmed=True)
    await app.sillytavern.run(run)
    return {item.path: item for item in app.sillytavern.queries.items(run)}


async def exported(app: App, room: str) -> list[object]:
    data = await export_chat(app.story, room, "jsonl")
    return [json.loads(line) for line in data.splitlines()]


async def test_s26_everything_of_a_folder_is_taken_or_left_with_a_reason(app: App, tavern: Path) -> None:
    items = await take(app, tavern)
    outcomes = {path: item.outcome for path, item in items.items()}
    assert outcomes == {
        "TextGen Settings/Warm.json": "taken",
        "settings.json#a.png": "taken",
        "settings.json#b.png": "taken",
        "characters/Nils.png": "taken",
        "characters/Runa.png": "taken",
        "worlds/Harbour.json": "taken",
        "chats/Nils/First trip.jsonl": "changed",
        "groups/77.json": "taken",
        "group chats/Crew night.jsonl": "taken",
    }
    assert all(item.notes for item in items.values() if item.outcome in ("left", "changed"))
    assert sorted(character.name for character in app.characters.all()) == ["Nils", "Runa"]
    assert (app.characters.owner().name, app.characters.owner().persona) == ("Ana", "A cartographer.")
    (persona,) = app.personas.all()
    assert (persona.id, persona.name) == (items["settings.json#b.png"].target, "Bo")
    book = app.lorebooks.get(items["worlds/Harbour.json"].target)
    assert (book.name, book.book.document) == ("Harbour", BOOK)
    assert app.model_setup.samplers()["Warm"].min_p == 0.05
    assert items["worlds/Harbour.json"].counts == {"entries": 2}
    run = app.sillytavern.queries.runs()[0]
    assert app.sillytavern.queries.document(run.id, "lorebook", "worlds/Harbour.json") == BOOK
    assert (run.done, run.items, run.ended is not None) == (9, 9, True)
    portrait = app.workspaces.card_with_files(app.characters.find("Nils")).picture
    assert portrait is None  # the card has a blank picture


async def test_s26_an_imported_chat_is_exported_equal_field_by_field(app: App, tavern: Path) -> None:
    items = await take(app, tavern)
    assert await exported(app, items["chats/Nils/First trip.jsonl"].target) == [HEADER, *CHAT]
    group = items["group chats/Crew night.jsonl"].target
    assert await exported(app, group) == [{**HEADER, "character_name": "unused"}, *GROUP]
    chat = app.story.chats.chat(group)
    assert [app.characters.get(one).name for one in chat.characters] == ["Nils", "Runa"]
    speakers = [turn.speaker for turn in app.story.timeline.latest(group, 10) if not turn.by_person]
    assert [app.characters.get(one).name for one in speakers] == ["Nils", "Runa", "Nils"]
    for character in chat.characters:
        assert {"Hello.", "Hm."} <= {memory.text for memory in app.memory.browse(owner=character, room=group)}


async def test_s26_what_is_played_since_is_exported_with_the_imported_lines(app: App, tavern: Path) -> None:
    room = (await take(app, tavern))["chats/Nils/First trip.jsonl"].target
    turns = app.story.timeline.latest(room, 10)
    other = next(one for one in await app.story.alternatives(room, turns[2].id) if one.text == "Free.")
    await app.story.rewind(room, turns[2].id)
    await app.story.choose(room, other.reply)
    lines = await exported(app, room)
    assert lines[:3] == [HEADER, *CHAT[:2]]
    assert isinstance(lines[3], dict)
    assert (lines[3]["mes"], lines[3]["swipe_id"], lines[3]["swipes"]) == ("Free.", 0, CHAT[2]["swipes"])
    fork = await app.story.fork(room, turns[1].id)
    assert await exported(app, fork.room) == [HEADER, *CHAT[:2]]


async def test_s26_a_second_import_makes_no_doubles(app: App, tavern: Path) -> None:
    await take(app, tavern)

    def counts() -> list[int]:
        everything = (app.characters.all(), app.story.chats.chats(), app.model_setup.samplers(), app.personas.all())
        return [len(one) for one in (*everything, app.lorebooks.all())]

    before = counts()
    again = await take(app, tavern)
    assert {item.outcome for item in again.values()} == {"known"}
    assert counts() == before
    moved = tavern.with_name("elsewhere")
    shutil.copytree(tavern, moved)
    assert {item.outcome for item in (await take(app, moved)).values()} == {"known"}


async def test_s26_a_chat_that_grew_gets_its_new_messages(app: App, tavern: Path) -> None:
    path = "chats/Nils/First trip.jsonl"
    room = (await take(app, tavern))[path].target
    more = [said("Ana", "Thanks.", user=True), said("Nils", "Aye.", swipes=["Aye.", "Hm."], swipe_id=0)]
    write_lines(tavern / "data/default-user" / path, HEADER, *CHAT, *more)
    grown = (await take(app, tavern))[path]
    assert (grown.outcome, grown.target) == ("changed", room)
    assert await exported(app, room) == [HEADER, *CHAT, *more]
    # Something else was said here meanwhile: the new messages become another chat.
    turns = app.story.timeline.latest(room, 20)
    await app.story.rewind(room, turns[-2].id)
    write_lines(tavern / "data/default-user" / path, HEADER, *CHAT, *more, said("Ana", "Bye.", user=True))
    other = (await take(app, tavern))[path]
    assert other.target != room
    assert app.story.timeline.count(room) == len(turns) - 1


async def test_s26_a_changed_card_is_a_new_version_unless_it_was_changed_here(app: App, tavern: Path) -> None:
    character = app.characters.get((await take(app, tavern))["characters/Nils.png"].target)
    file = tavern / "data/default-user/characters/Nils.png"
    file.write_bytes(card("Nils", description="Nils sold the ferry."))
    assert (await take(app, tavern))["characters/Nils.png"].outcome == "changed"
    assert app.characters.get(character.id).identity.persona == "Nils sold the ferry."
    await app.character_importer.author(Identity(id=character.id, name="Nils", persona="Mine."))
    file.write_bytes(card("Nils", description="Nils bought it back."))
    assert (await take(app, tavern))["characters/Nils.png"].outcome == "left"
    assert app.characters.get(character.id).identity.persona == "Mine."


async def test_s26_an_interrupted_import_is_continued_by_its_job(app: App, tavern: Path) -> None:
    run = await app.sillytavern.start(str(tavern), confirmed=True)

    class Killed(Exception):
        pass

    def stop(item: object) -> None:
        if len(app.sillytavern.queries.items(run)) == 7:
            raise Killed

    with pytest.raises(Killed):
        await app.sillytavern.run(run, stop)
    assert await app.sillytavern.start(str(tavern), confirmed=True) == run  # the same import goes on
    worker = Worker(app.store.jobs, app.sillytavern.handlers(), clock=app._clock, bus=app.store.bus)
    await worker.drain()
    found = app.sillytavern.queries.run(run)
    assert found is not None
    assert (found.done, found.ended is not None) == (9, True)
    assert len(app.story.chats.chats()) == 2


async def test_s26_hostile_files_are_left_and_links_not_followed(app: App, tavern: Path, tmp_path: Path) -> None:
    user = tavern / "data/default-user"
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps(BOOK))
    (user / "worlds" / "link.json").symlink_to(secret)
    (user / "characters" / "Link.png").symlink_to(user / "characters" / "Nils.png")
    (user / "backgrounds").symlink_to(tmp_path)
    (user / "characters" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnot a picture")
    (user / "worlds" / "deep.json").write_text("[" * 100_000)
    (user / "worlds" / "huge.json").write_text('{"entries": [' + "0," * 1_200_000 + "0]}")
    (user / "chats" / "Nils" / "garbage.jsonl").write_bytes(os.urandom(5_000))
    (user / "chats" / "Nils" / "empty.jsonl").write_text("")
    os.mkfifo(user / "worlds" / "pipe.json")
    (user / "group chats" / "nobody.jsonl").write_text(json.dumps(said("X", "y")))
    (user / "groups" / "odd.json").write_text('{"members": 7, "chats": {"a": "\\ud800"}}')
    items = await take(app, tavern)
    for path in ("worlds/link.json", "characters/Link.png", "backgrounds", "characters/broken.png", "worlds/deep.json",
                 "worlds/huge.json", "chats/Nils/garbage.jsonl", "chats/Nils/empty.jsonl", "worlds/pipe.json",
                 "group chats/nobody.jsonl", "groups/odd.json"):  # fmt: skip
        assert items[path].outcome == "left", path
        assert items[path].notes[0], path
    assert items["chats/Nils/First trip.jsonl"].outcome == "changed"


async def test_s26_half_characters_in_names_and_notes_stop_nothing(app: App, tavern: Path) -> None:
    """A name whose bytes are not UTF-8, as archives from other systems have them, and a note with half an emoji."""
    chats = tavern / "data/default-user/chats/Nils"
    write_lines(chats / "\udcff.jsonl", HEADER, *CHAT)
    write_lines(
        chats / "Note.jsonl", {**HEADER, "chat_metadata": {"note_prompt": "half \ud83d", "note_role": 1.0}}, *CHAT
    )
    items = await take(app, tavern)
    assert items["chats/Nils/\\udcff.jsonl"].outcome == "left"
    assert "not valid UTF-8" in items["chats/Nils/\\udcff.jsonl"].notes[0]
    room = items["chats/Nils/Note.jsonl"].target
    assert app.story.prompts.choices.for_chat(room).note.text == "half \ufffd"


async def test_s26_chats_of_a_missing_character_are_taken(app: App, tavern: Path) -> None:
    write_lines(
        tavern / "data/default-user/chats/Old friend/1.jsonl", {**HEADER, "character_name": "Old Friend"}, *CHAT
    )
    items = await take(app, tavern)
    assert items["characters/Old friend.png"].outcome == "changed"
    assert app.story.chats.chat(items["chats/Old friend/1.jsonl"].target).host == app.characters.find("Old Friend").id


async def test_s26_the_page_may_only_name_folders_that_were_found(app: App, tavern: Path) -> None:
    for folder in (str(tavern), "/etc", "relative", "\0"):
        with pytest.raises(ConfirmationNeeded):
            await app.sillytavern.start(folder, confirmed=False)
        with pytest.raises(ConfirmationNeeded):
            await app.sillytavern.preview(folder, confirmed=False)
    shutil.copytree(tavern, app.sillytavern.drop_folder)
    (found,) = app.sillytavern.found_folders()
    preview = await app.sillytavern.preview(str(found), confirmed=False)
    assert preview.kinds == {
        "preset": 1, "persona": 2, "character": 2, "lorebook": 1, "chat": 1, "group": 1, "group chat": 1,
    }  # fmt: skip


def test_s26_a_folder_without_data_is_refused(tmp_path: Path, tavern: Path) -> None:
    assert find_data_folder(tavern) == find_data_folder(tavern / "data/default-user")
    for folder in (tmp_path / "nothing", tmp_path):
        with pytest.raises(NotSillyTavern):
            find_data_folder(folder)
    shutil.copytree(tavern / "data/default-user", tavern / "data/other")
    assert find_data_folder(tavern).name == "default-user"
    shutil.move(tavern / "data/default-user", tavern / "data/third")
    with pytest.raises(NotSillyTavern, match="other, third"):
        find_data_folder(tavern)


LINES = st.lists(
    st.fixed_dictionaries(
        {"mes": st.text(max_size=20) | st.none() | st.integers()},
        optional={
            "name": st.sampled_from(["Ana", "Nils", "Runa", ""]),
            "is_user": st.booleans(),
            "is_system": st.booleans(),
            "swipes": st.lists(st.text(max_size=8), max_size=4) | st.none(),
            "swipe_id": st.integers(-1, 5) | st.text(max_size=3),
            "send_date": st.text(max_size=8) | st.integers(),
            "extra": st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=3),
            "swipe_info": st.lists(st.just({"extra": {}}), max_size=4),
        },
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=LINES)
async def test_s26_any_chat_is_exported_equal_field_by_field(app: App, tavern: Path, lines: list[dict]) -> None:  # type: ignore[type-arg]
    from coterie.modes.story import import_tavern_chat, read_tavern_chat

    character = next(iter(app.characters.all()), None) or await app.character_importer.author(Identity(name="Nils"))
    data = "\n".join(json.dumps(line) for line in [HEADER, *lines]).encode()
    try:
        chat = await read_tavern_chat(data)
    except CoterieError:
        return
    assert isinstance(chat, TavernChat)
    imported = await import_tavern_chat(app.story, app.store, app.memory, character, chat)
    assert app.story.timeline.count(imported.room) == len(lines)
    assert await exported(app, imported.room) == [HEADER, *lines]


async def test_s26_expressions_and_the_gallery_are_taken(app: App, tavern: Path) -> None:
    user = tavern / "data/default-user"
    joy, sea = (b"\x89PNG\r\n\x1a\n" + name for name in (b"joy", b"sea"))
    for path, data in {
        "characters/Nils/joy.png": joy,
        "characters/Nils/notes.txt": b"Not a picture.",
        "characters/Nobody/joy.png": joy,
        "user/images/Runa/At sea.png": sea,
        "user/images/Runa/broken.png": b"This is no picture.",
        "user/files/a.bin": b"1",
    }.items():
        (user / path).parent.mkdir(parents=True, exist_ok=True)
        (user / path).write_bytes(data)
    items = await take(app, tavern)
    outcomes = {path: item.outcome for path, item in items.items()}
    assert outcomes["characters/Nils/joy.png"] == outcomes["user/images/Runa/At sea.png"] == "taken"
    for path in ("characters/Nobody/joy.png", "user/images/Runa/broken.png", "characters/Nils", "user"):
        assert outcomes[path] == "left", path
        assert items[path].notes
    assert items["user"].name == "user (1 files)"
    nils, runa = items["characters/Nils.png"].target, items["characters/Runa.png"].target
    assert [one.name for one in app.character_pictures.all(nils, "expression")] == ["joy"]
    assert [one.name for one in app.character_pictures.all(runa, "gallery")] == ["at sea"]
    again = await take(app, tavern)
    assert again["characters/Nils/joy.png"].outcome == "known"
    (user / "characters/Nils/joy.png").write_bytes(joy + b"!")
    changed = await take(app, tavern)
    assert changed["characters/Nils/joy.png"].outcome == "changed"
    shown = app.character_pictures.for_mood(nils, "happy")
    assert shown is not None
    assert shown.picture == changed["characters/Nils/joy.png"].checksum
