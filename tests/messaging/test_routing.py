"""The chats of rooms: begun once, with the character of the bindings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from coterie.characters.identity import Identity
from coterie.conversation.errors import PermissionDenied
from coterie.messaging.errors import NoSuchMode
from coterie.messaging.protocol import RoomRef
from coterie.messaging.settings import BindingRule, SurfacesSettings
from tests.contracts.surface_app import SurfaceApp

SETTINGS = SurfacesSettings(
    slow_notice_s=0,
    default_character="Io",
    bindings=(
        BindingRule(surface="matrix", room="!lamp", character="Mara"),
        BindingRule(person="bo", character="Teodor"),
    ),
)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[SurfaceApp]:
    app = SurfaceApp(tmp_path / "coterie.db", settings=SETTINGS)
    for name in ("Mara", "Io", "Teodor"):
        await app.roster.save(Identity(name=name, persona="Somebody."))
    yield app
    await app.close()


async def test_d12_the_first_matching_binding_sets_the_character(app: SurfaceApp) -> None:
    chats, you = app.router.chats, app.people.person("you")
    bo = await app.people.restore("bo", "Bo", [("matrix", "@bo:here", "")])
    lamp, other = RoomRef(surface="matrix", id="!lamp"), RoomRef(surface="telegram", id="!lamp")
    assert chats.default_character(lamp, you) == "Mara" and chats.default_character(other, you) == "Io"
    assert chats.default_character(lamp, bo) == "Mara" and chats.default_character(other, bo) == "Teodor"
    with pytest.raises(PermissionDenied):
        await chats.begin_chat(other, bo)
    await app.people.allow("bo", app.roster.find("Teodor").id)
    binding, _ = await chats.begin_chat(other, bo)
    assert (binding.person, app.roster.get(binding.character).name, binding.number) == ("bo", "Teodor", 1)


async def test_d12_a_binding_of_a_server_sets_character_and_mode(app: SurfaceApp) -> None:
    app.settings = SurfacesSettings(
        slow_notice_s=0,
        default_character="Io",
        bindings=(
            BindingRule(surface="discord", server="guild", mode="other"),
            BindingRule(surface="discord", server="guild", character="Mara"),
            BindingRule(surface="discord", character="Teodor"),
        ),
    )
    await app.crash()
    bo = await app.people.restore("bo", "Bo", [("discord", "1", "")])
    await app.people.allow("bo", app.roster.find("Mara").id)
    chats, room = app.router.chats, RoomRef(surface="discord", id="channel")
    binding, _ = await chats.begin_chat(room, bo, server="guild")
    assert (binding.mode, app.roster.get(binding.character).name) == ("other", "Mara"), (
        "a mode that guests cannot choose"
    )
    you, elsewhere = app.people.person("you"), RoomRef(surface="discord", id="another")
    binding, _ = await chats.begin_chat(elsewhere, you, server="another guild")
    assert (binding.mode, app.roster.get(binding.character).name) == ("echo", "Teodor")
    with pytest.raises(NoSuchMode):
        await chats.begin_chat(RoomRef(surface="discord", id="third"), bo, server="guild", mode="nothing")


def test_d12_a_binding_decides_something() -> None:
    with pytest.raises(ValidationError, match="a character or a mode"):
        BindingRule(surface="discord")


async def test_p2_a_chat_begins_once_under_concurrent_calls(app: SurfaceApp) -> None:
    room, you = RoomRef(surface="matrix", id="!new"), app.people.person("you")
    begun = await asyncio.gather(*(app.router.chats.begin_chat(room, you) for _ in range(5)))
    assert len({binding.context for binding, _ in begun}) == 1
    assert app.store.query("SELECT count(*) FROM event WHERE kind = 'room_bound'") == [(1,)]
