"""Restoring records from the metadata of rooms, valid or not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from coterie.characters.identity import Identity
from coterie.characters.service import OWNER, OwnerProfile
from coterie.eventstore import NewEvent
from coterie.messaging.inbox import SurfaceSynced
from coterie.messaging.ports import NewChat
from coterie.messaging.rooms import RoomArchived, RoomForgotten, RoomListening, RoomShared
from coterie.surfaces.matrix.crypto.devices import CrossSigningIdentity
from coterie.surfaces.matrix.homeserver import Homeserver, Json
from coterie.surfaces.matrix.records import AccountRecords
from coterie.surfaces.matrix.rooms import CHAT, SPACE, CreatedRoom, MatrixRooms, Reconciler, room_metadata
from coterie.surfaces.matrix.schemas import SURFACE, room_ref
from coterie.surfaces.matrix.service import MatrixService
from coterie.surfaces.matrix.settings import MatrixSettings
from tests.contracts.surface_app import SurfaceApp

BOT, ANA = "@bot:here", "@ana:here"


class RecordingHomeserver(Homeserver):
    """Records state writes; any other request fails."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.written: list[tuple[str, str, Json]] = []
        self.own_data: dict[str, Json] = {}

    async def account_data(self, kinds: Sequence[str]) -> dict[str, Json]:
        return dict(self.own_data)

    async def put_account_data(self, user: str, kind: str, content: Json) -> None:
        self.written.append((user, kind, content))
        self.own_data[kind] = content

    async def put_state(self, room: str, kind: str, key: str, content: Json) -> None:
        self.written.append((room, kind, content))


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[SurfaceApp]:
    app = SurfaceApp(tmp_path / "coterie.db")
    await app.create_character()
    yield app
    await app.close()


@pytest.fixture
async def matrix_rooms() -> AsyncIterator[MatrixRooms]:
    server = RecordingHomeserver()
    yield MatrixRooms(server, BOT)
    await server.close()


def room(name: str, **about: Any) -> CreatedRoom:
    metadata = {"account": ANA, "key": name, "person": "you", "mode": "echo", "context": f"echo:{name}", **about}
    return CreatedRoom(name, metadata["account"], metadata, title=name.title())


def put(matrix_rooms: MatrixRooms, *rooms: CreatedRoom) -> None:
    matrix_rooms.rooms |= {room.room: room for room in rooms}


async def test_p10_rooms_people_and_numbers_are_restored(app: SurfaceApp, matrix_rooms: MatrixRooms) -> None:
    put(matrix_rooms, room("kitchen", number=1), room("hall", number=7, character_name="Echo"), room("attic"))
    put(matrix_rooms, CreatedRoom("space", ANA, {"account": ANA}, is_space=True))
    reconciler = Reconciler(app.router, matrix_rooms)
    report = await reconciler.run()
    await reconciler.write_metadata()
    assert report.restored == ["attic", "hall", "kitchen"] and not report.skipped and not report.conflicts
    restored = {
        binding.room.id: (binding.number, binding.context, binding.person)
        for binding in app.router.chats.rooms.on_surface(SURFACE)
    }
    assert restored["hall"] == (7, "echo:hall", "you") and restored["attic"][0] == 8
    assert app.people.by_account(SURFACE, ANA) == app.people.person("you")
    events = app.store.reader.last_id()
    again = await Reconciler(app.router, matrix_rooms).run()
    assert str(again) == "0 restored, 0 repaired, 0 skipped, 0 conflicts"
    assert app.store.reader.last_id() == events


async def test_p10_conflicts_are_reported_and_the_rest_is_restored(app: SurfaceApp, matrix_rooms: MatrixRooms) -> None:
    put(matrix_rooms, room("one", number=3), room("two", number=3), room("lost", person="", account="@nobody:here"))
    put(matrix_rooms, CreatedRoom("s1", ANA, {}, is_space=True), CreatedRoom("s2", ANA, {}, is_space=True))
    report = await Reconciler(app.router, matrix_rooms).run()
    assert report.restored == ["one", "two"]
    assert [line.partition(":")[0] for line in report.skipped] == ["lost"]
    assert len(report.conflicts) == 2 and any("two Spaces" in line for line in report.conflicts)
    assert {binding.number for binding in app.router.chats.rooms.on_surface(SURFACE)} == {3, 4}


async def test_p10_a_forged_state_event_is_ignored(matrix_rooms: MatrixRooms) -> None:
    def state(creator: str, sender: str, kind: str = CHAT) -> list[Json]:
        create_event = {"type": "m.room.create", "state_key": "", "sender": creator, "content": {}}
        return [
            create_event,
            {"type": kind, "state_key": "", "sender": sender, "content": {"account": ANA, "person": "you"}},
        ]

    class ScriptedHomeserver(RecordingHomeserver):
        answer: list[Json]

        async def state(self, room: str) -> list[Json]:
            return self.answer

    server = ScriptedHomeserver()
    matrix_rooms.server = server
    for creator, sender, accepted in ((BOT, BOT, True), ("@eve:here", BOT, False), (BOT, "@eve:here", False)):
        for kind in (CHAT, SPACE):
            server.answer = state(creator, sender, kind)
            assert ((await matrix_rooms.load("room")) is not None) is accepted
    await server.close()


def records(app: SurfaceApp, server: Homeserver, identity: Path, purged: Sequence[str] = ()) -> AccountRecords:
    return AccountRecords(server, BOT, identity, app.router, lambda stream: stream in purged)


@pytest.fixture
def identity(tmp_path: Path) -> Path:
    file = tmp_path / "identity.json"
    file.write_text(json.dumps(CrossSigningIdentity.new().seeds))
    return file


async def test_p10_characters_people_and_permissions_are_restored_and_unreadable_there(
    app: SurfaceApp, matrix_rooms: MatrixRooms, identity: Path, tmp_path: Path
) -> None:
    server = matrix_rooms.server
    assert isinstance(server, RecordingHomeserver)
    ines = await app.roster.save(Identity(name="Ines", persona="Keeps the lighthouse."))
    gone = await app.roster.save(Identity(name="Gone", persona="Was deleted."))
    await app.roster.save_owner(OwnerProfile("Ana", "she/her", "A sailor."))
    await app.people.link_owner("telegram", "77")
    bea = await app.people.add("Bea")
    await app.people.allow(bea.id, ines.id)
    await app.people.link(await app.people.issue_code(bea.id, 5), SURFACE, "@bea:here")
    before = records(app, server, identity)
    await before.restore()
    await before.write()
    await app.roster.delete(gone.id, "Gone")
    await before.write()
    stored = json.dumps(server.own_data)
    assert not any(text in stored for text in ("lighthouse", "sailor", "Bea", "@bea"))
    writes = len(server.written)
    await before.write()
    assert len(server.written) == writes, "what is unchanged is not written again"

    lost = SurfaceApp(tmp_path / "new.db")
    restored = await (again := records(lost, server, identity)).restore()
    assert sorted(restored) == ["Bea, with their permissions", "the character Echo", "the character Ines"]
    assert lost.roster.get(ines.id).identity == ines.identity and lost.roster.owner() == app.roster.owner()
    assert [one.name for one in lost.roster.all()] == ["Echo", "Ines"]
    person = lost.people.by_account(SURFACE, "@bea:here")
    assert person == bea and lost.people.allowed_characters(bea.id) == [ines.id]
    assert lost.people.by_account("telegram", "77") == lost.people.person(OWNER)
    events = lost.store.reader.last_id()
    await again.write()
    assert len(server.written) == writes and await records(lost, server, identity).restore() == []
    assert lost.store.reader.last_id() == events
    await lost.close()


async def test_p10_what_was_withdrawn_or_erased_here_does_not_come_back(
    app: SurfaceApp, matrix_rooms: MatrixRooms, identity: Path
) -> None:
    server = matrix_rooms.server
    assert isinstance(server, RecordingHomeserver)
    (echo,) = app.roster.all()
    bea = await app.people.add("Bea")
    await app.people.allow(bea.id, echo.id)
    await app.people.link_owner("telegram", "77")
    await records(app, server, identity).write()
    await app.store.append([NewEvent("surface:matrix", SurfaceSynced(surface=SURFACE, cursor="s1"))])
    # While the homeserver was not reachable:
    await app.people.allow(bea.id, echo.id, False)
    await app.people.unlink("telegram", "77")
    purged = await app.roster.save(Identity(name="Purged", persona="Erased."))
    await (other := records(app, server, identity)).restore()
    await other.write()
    kind = f"org.coterie.records.character.{purged.id}"
    assert server.own_data[kind]
    await app.store.purge(f"cast:{purged.id}")
    later = records(app, server, identity, [f"cast:{purged.id}"])
    assert await later.restore() == [] and app.people.by_account("telegram", "77") is None
    assert app.people.allowed_characters(bea.id) == []
    await later.write()
    assert server.own_data[kind] == {}, "erased there, too"


async def test_p10_records_of_another_identity_are_left_alone(
    app: SurfaceApp, matrix_rooms: MatrixRooms, identity: Path
) -> None:
    server = matrix_rooms.server
    assert isinstance(server, RecordingHomeserver)
    foreign = {"org.coterie.records.character.x": {"v": 1, "data": "bm9uc2Vuc2U"}, "org.coterie.records.y": {}}
    server.own_data |= foreign
    ours = records(app, server, identity)
    assert await ours.restore() == []
    await ours.write()
    assert {kind: server.own_data[kind] for kind in foreign} == foreign
    identity.unlink()
    without = records(app, server, identity)
    await without.restore()
    writes = len(server.written)
    await without.write()
    assert len(server.written) == writes, "without the identity nothing is stored"


async def test_p10_archived_rooms_guests_and_numbers_are_restored(
    app: SurfaceApp, matrix_rooms: MatrixRooms, identity: Path, tmp_path: Path
) -> None:
    server = matrix_rooms.server
    bea = await app.people.add("Bea")
    await app.people.link_owner(SURFACE, ANA)
    rooms = app.router.chats.rooms
    for number in range(1, 5):
        ref = room_ref(f"r{number}")
        await rooms.bind(ref, OWNER, "echo", app.roster.all()[0].id, NewChat(f"echo:{number}", ()), f"R{number}")
    await rooms.record(RoomArchived(room=room_ref("r1")), OWNER)
    await rooms.record(RoomListening(room=room_ref("r2"), to_all=True), OWNER)
    await rooms.record(RoomShared(room=room_ref("r2"), person=bea.id), OWNER)
    await rooms.record(RoomForgotten(room=room_ref("r4")), OWNER)
    assert rooms.next_number(OWNER, SURFACE) == 5, "a number is not used again"
    put(
        matrix_rooms,
        *(
            CreatedRoom(one.room.id, ANA, {"account": ANA, "key": one.room.id, **room_metadata(one, app.router)})
            for one in rooms.on_surface(SURFACE)
        ),
    )
    await records(app, server, identity).write()

    lost = SurfaceApp(tmp_path / "new.db")
    await records(lost, server, identity).restore()
    report = await Reconciler(lost.router, matrix_rooms).run()
    assert report.restored == ["r1", "r2", "r3"]
    again = lost.router.chats.rooms
    assert [one.archived for one in again.on_surface(SURFACE)] == [True, False, False]
    assert again.listens_to_all(room_ref("r2")) and again.guests(room_ref("r2")) == [bea.id]
    assert again.next_number(OWNER, SURFACE) == 5
    await lost.close()


async def test_p10_concurrent_updates_leave_the_state_of_the_last_change(
    app: SurfaceApp, matrix_rooms: MatrixRooms, tmp_path: Path
) -> None:
    class SlowThenQuick(RecordingHomeserver):
        """Its first write arrives last."""

        async def put_state(self, room: str, kind: str, key: str, content: Json) -> None:
            if not self.own_data:
                self.own_data["first"] = {}
                await asyncio.sleep(0.05)
            await super().put_state(room, kind, key, content)

    await matrix_rooms.server.close()
    matrix_rooms.server = server = SlowThenQuick()
    service = MatrixService(
        app.router, app.store, MatrixSettings(), tmp_path, lambda _: app.files_in_workspace("shared")
    )
    service.rooms, kitchen = matrix_rooms, room_ref("kitchen")
    rooms = app.router.chats.rooms
    await rooms.bind(kitchen, OWNER, "echo", app.roster.all()[0].id, NewChat("echo:1", ()), "Kitchen")
    put(matrix_rooms, CreatedRoom("kitchen", ANA, {"account": ANA, "key": "kitchen"}))
    first = asyncio.create_task(service.update_room(kitchen))
    await asyncio.sleep(0.01)
    await rooms.record(RoomArchived(room=kitchen), OWNER)
    await asyncio.gather(first, service.update_room(kitchen), service.update_room(kitchen))
    assert [content["archived"] for _, _, content in server.written] == [False, True]
    assert matrix_rooms.rooms["kitchen"].metadata["archived"]
