"""Restoring records from the metadata of rooms, valid or not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coterie.surfaces.matrix.homeserver import Homeserver, Json
from coterie.surfaces.matrix.rooms import CHAT, SPACE, CreatedRoom, MatrixRooms, Reconciler
from coterie.surfaces.matrix.schemas import SURFACE
from tests.contracts.surface_app import SurfaceApp

BOT, ANA = "@bot:here", "@ana:here"


class RecordingHomeserver(Homeserver):
    """Records state writes; any other request fails."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.written: list[tuple[str, str, Json]] = []

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
