"""Restoring records from the metadata of rooms, valid or not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coterie.surfaces.matrix.homeserver import Homeserver, Json
from coterie.surfaces.matrix.messages import SURFACE
from coterie.surfaces.matrix.rooms import CHAT, SPACE, CreatedRoom, MatrixRooms, Reconciler
from tests.contracts.surface_app import SurfaceApp

BOT, ANA = "@bot:here", "@ana:here"


class Quiet(Homeserver):
    """Records state writes; any other request fails."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.written: list[tuple[str, str, Json]] = []

    async def put_state(self, room: str, kind: str, key: str, content: Json) -> None:
        self.written.append((room, kind, content))


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[SurfaceApp]:
    made = SurfaceApp(tmp_path / "coterie.db")
    await made.create_character()
    yield made
    await made.close()


@pytest.fixture
async def topology() -> AsyncIterator[MatrixRooms]:
    server = Quiet()
    yield MatrixRooms(server, BOT)
    await server.close()


def room(name: str, **about: Any) -> CreatedRoom:
    metadata = {"account": ANA, "key": name, "person": "you", "mode": "echo", "context": f"echo:{name}", **about}
    return CreatedRoom(name, metadata["account"], metadata, title=name.title())


def put(topology: MatrixRooms, *rooms: CreatedRoom) -> None:
    topology.rooms |= {one.room: one for one in rooms}


async def test_p10_rooms_people_and_numbers_are_restored(app: SurfaceApp, topology: MatrixRooms) -> None:
    put(topology, room("kitchen", number=1), room("hall", number=7, character_name="Echo"), room("attic"))
    put(topology, CreatedRoom("space", ANA, {"account": ANA}, is_space=True))
    reconciler = Reconciler(app.router, topology)
    report = await reconciler.run()
    await reconciler.write_metadata()
    assert report.restored == ["attic", "hall", "kitchen"] and not report.skipped and not report.conflicts
    found = {one.room.id: (one.number, one.context, one.person) for one in app.router.chats.rooms.on_surface(SURFACE)}
    assert found["hall"] == (7, "echo:hall", "you") and found["attic"][0] == 8
    assert app.people.by_account(SURFACE, ANA) == app.people.person("you")
    events = app.store.reader.last_id()
    again = await Reconciler(app.router, topology).run()
    assert str(again) == "0 restored, 0 repaired, 0 skipped, 0 conflicts"
    assert app.store.reader.last_id() == events


async def test_p10_conflicts_are_reported_and_the_rest_is_restored(app: SurfaceApp, topology: MatrixRooms) -> None:
    put(topology, room("one", number=3), room("two", number=3), room("lost", person="", account="@nobody:here"))
    put(topology, CreatedRoom("s1", ANA, {}, is_space=True), CreatedRoom("s2", ANA, {}, is_space=True))
    report = await Reconciler(app.router, topology).run()
    assert report.restored == ["one", "two"]
    assert [line.partition(":")[0] for line in report.skipped] == ["lost"]
    assert len(report.conflicts) == 2 and any("two Spaces" in line for line in report.conflicts)
    assert {one.number for one in app.router.chats.rooms.on_surface(SURFACE)} == {3, 4}


async def test_p10_a_forged_state_event_is_ignored(topology: MatrixRooms) -> None:
    def state(creator: str, sender: str, kind: str = CHAT) -> list[Json]:
        made = {"type": "m.room.create", "state_key": "", "sender": creator, "content": {}}
        return [made, {"type": kind, "state_key": "", "sender": sender, "content": {"account": ANA, "person": "you"}}]

    class Told(Quiet):
        answer: list[Json]

        async def state(self, room: str) -> list[Json]:
            return self.answer

    server = Told()
    topology.server = server
    for creator, sender, believed in ((BOT, BOT, True), ("@eve:here", BOT, False), (BOT, "@eve:here", False)):
        for kind in (CHAT, SPACE):
            server.answer = state(creator, sender, kind)
            assert ((await topology.load("room")) is not None) is believed
    await server.close()
