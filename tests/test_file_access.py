"""P6, D17, D20: files belong to the people of a conversation. Every way to a file is tried by everybody."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from coterie.app import App, open_store
from coterie.base.errors import CoterieError
from coterie.base.paths import Paths
from coterie.characters import OWNER, Identity, Person, people_folder
from coterie.conversation import TurnQueries
from coterie.llm import ToolCall
from coterie.messaging import Attachment, RoomRef, SurfacesSettings
from coterie.messaging.rooms import RoomShared
from coterie.modes.desk.agents.tools import Toolbox
from coterie.settings import Settings

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (apt install bubblewrap)")


async def chunks(text: str) -> AsyncIterator[bytes]:
    yield text.encode()


@dataclass
class People:
    """An instance with an owner and two guests, each with desks of one character, and a room that two of them share."""

    app: App
    character: str
    rooms: dict[str, RoomRef]
    files: dict[str, str]
    """The path of the file that was sent in each room."""

    async def use(self, room: str, tool: str, **arguments: object) -> str:
        """What a tool of a worker in the room's conversation returns."""
        desk = self.app.desk
        binding = self.app.message_router.chats.rooms.get(self.rooms[room])
        box = Toolbox(desk._tools(desk.queries.chat(binding.context)))
        return await box.use(ToolCall(id="1", name=tool, arguments=json.dumps(arguments)))

    async def upload(self, room: str, text: str, sender: str = "") -> str:
        files = self.app.room_files(self.character)
        saved = await files.save(self.rooms[room], f"{room}.txt", chunks(text), sender=sender)
        return saved.path

    def download(self, room: str, path: str) -> str:
        with self.app.room_files(self.character).open(path, self.rooms[room]) as file:
            return file.read().decode()


@pytest.fixture
async def people(tmp_path: Path) -> AsyncIterator[People]:
    home = Paths.locate({"COTERIE_HOME": str(tmp_path / "home")})
    settings = Settings(surfaces=SurfacesSettings(guest_modes=("desk",)))
    with open_store(home) as store:
        app = App(home, settings, store)
        character = (await app.characters.save(Identity(name="Mara"))).id
        everybody: dict[str, Person] = {"owner": app.people.person(OWNER)}
        for name in ("ann", "bo"):
            everybody[name] = await app.people.add(name)
            await app.people.allow(everybody[name].id, character)
        found = People(app, character, {}, {})
        for name in ("owner", "owner-2", "ann", "bo", "shared"):
            person = everybody["owner" if name == "shared" else name.removesuffix("-2")]
            found.rooms[name] = RoomRef(surface="webhook", id=name)
            await app.message_router.chats.begin_chat(found.rooms[name], person, character, mode="desk")
        shared = RoomShared(room=found.rooms["shared"], person=everybody["ann"].id)
        await app.message_router.chats.rooms.record(shared, OWNER)
        legacy = app.workspaces.folder(character) / "files/webhook-old/legacy.txt"
        legacy.parent.mkdir(parents=True)
        legacy.write_text("content of legacy")
        for name in found.rooms:
            found.files[name] = await found.upload(name, f"content of {name}")
        found.files["legacy"] = "files/webhook-old/legacy.txt"
        yield found


MAY_READ = {
    "owner": {"owner", "owner-2", "legacy"},
    "owner-2": {"owner", "owner-2", "legacy"},
    "ann": {"ann"},
    "bo": {"bo"},
    "shared": {"shared"},
}
"""By room: files that its people have, wherever they were sent."""


@pytest.mark.parametrize("room", MAY_READ)
async def test_p6_everybody_reaches_their_own_files_and_no_others(people: People, room: str) -> None:
    names = {
        file for file in people.files if f"content of {file}" in await people.use(room, "shell", command="cat */*")
    }
    assert names == MAY_READ[room], "by a command"
    listed = await people.use(room, "shell", command="find . /shared -type f")
    assert {file for file in people.files if f"/{file}.txt" in listed} == MAY_READ[room]
    found = await people.use(room, "file", action="search", text="content of")
    assert {file for file in people.files if f"/{file}.txt:1" in found} == MAY_READ[room], "by a search"
    for file, path in people.files.items():
        inside = path.split("/", 1 if path.startswith("files/") else 2)[-1]
        ways = [path, inside, f"../{path}", f"/{path}", f"../../{path}", f"/shared/../{path}", f"/workspace/{inside}"]
        read = [await people.use(room, "file", action="read", path=way) for way in ways]
        assert any(f"content of {file}" in text for text in read) == (file in MAY_READ[room]), "by the file tool"
        try:
            downloaded = people.download(room, path)
        except CoterieError:
            downloaded = ""
        assert (downloaded == f"content of {file}") == (file in MAY_READ[room]), "by a download or a delivery"


async def test_p6_a_guest_who_joins_sees_no_earlier_files_and_who_leaves_no_later_ones(people: People) -> None:
    ann = people.app.people.find("ann").id
    rooms = people.app.message_router.chats.rooms
    await rooms.record(RoomShared(room=people.rooms["owner"], person=ann), OWNER)
    assert "content of" not in await people.use("owner", "file", action="search", text="content of owner")
    later = await people.upload("owner", "said to both")
    assert "said to both" in await people.use("owner", "file", action="search", text="said to both")
    assert people.download("owner", people.files["owner"]) == "content of owner", "it was sent in this very room"
    await rooms.record(RoomShared(room=people.rooms["owner"], person=ann, shared=False), OWNER)
    assert "content of owner" in await people.use("owner", "file", action="search", text="content of owner")
    assert "said to both" not in await people.use("ann", "file", action="search", text="said to both")
    with pytest.raises(CoterieError):
        people.download("ann", later)


async def test_p6_the_first_file_of_a_room_without_a_chat_belongs_to_its_sender(people: People) -> None:
    bo = people.app.people.find("bo").id
    people.rooms["new"] = RoomRef(surface="webhook", id="new")
    path = await people.upload("new", "the first", sender=bo)
    assert path.startswith(f"people/{bo}/")
    assert "the first" in await people.use("bo", "file", action="search", text="the first")
    assert "the first" not in await people.use("owner", "file", action="search", text="the first")


async def test_p6_a_message_at_the_desk_names_its_files_as_workers_see_them(people: People) -> None:
    for room, person in (("owner", OWNER), ("bo", people.app.people.find("bo").id)):
        context = people.app.message_router.chats.rooms.get(people.rooms[room]).context
        file = Attachment(name=f"{room}.txt", path=people.files[room], media_type="text/plain", size=1)
        desk = people.app.message_router.chats.conversation("desk")
        replies = desk.send_message(context, "Read this.", person=person, key=room, attachments=[file])
        waiting = asyncio.ensure_future(anext(replies))
        while not (turns := TurnQueries(people.app.store).latest(context, 1)) and not waiting.done():
            await asyncio.sleep(0.01)
        if waiting.done():
            waiting.result()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        named = turns[0].text.partition(f"{room}.txt, ")[2].rstrip(")")
        assert f"content of {room}" in await people.use(room, "file", action="read", path=named)


async def test_d22_everybody_reads_what_the_character_shares_and_nobody_changes_it(people: People) -> None:
    folder = people.app.workspaces.folder(people.character)
    (folder / "SOUL.md").write_text("speaks softly")
    (folder / "USER.md").write_text("about the owner")
    (folder / "skills/tea").mkdir(parents=True)
    (folder / "skills/tea/SKILL.md").write_text("---\ndescription: tea\n---\nBoil water.")
    for room in people.rooms:
        assert "speaks softly" in await people.use(room, "file", action="read", path="/shared/SOUL.md")
        assert "Boil water." in await people.use(room, "shell", command="cat /shared/skills/tea/SKILL.md")
        assert "Boil water." in await people.use(room, "file", action="search", path="/shared/skills/tea", text="boil")
        assert "SOUL.md" in await people.use(room, "file", action="list", path="/shared")
        assert "about the owner" not in await people.use(room, "shell", command="cat /shared/* /shared/*/*/*")
        assert "only be read" in await people.use(room, "file", action="write", path="/shared/SOUL.md", text="x")
        await people.use(room, "shell", command="echo x > /shared/SOUL.md; rm -rf /shared/skills; ln -s / /shared/out")
    assert (folder / "SOUL.md").read_text() == "speaks softly" and (folder / "skills/tea/SKILL.md").exists()
    await people.app.desk.skills.switch(people.character, "tea", on=False)
    assert "Boil water." not in await people.use("ann", "shell", command="cat /shared/skills/tea/SKILL.md")


@pytest.mark.parametrize(
    "ids", [["../owner"], ["a/b"], ["."], [".."], [""], ["group.x"], [OWNER, "ann"], ["\ud800"], []]
)
def test_p6_no_id_of_a_person_leads_to_the_files_of_others(ids: list[str]) -> None:
    folder = people_folder(ids)
    assert folder.startswith("people/group.") and folder.count("/") == 1
    assert folder not in (people_folder([OWNER]), people_folder(["ann"]), people_folder(["ann", "bo"]))
