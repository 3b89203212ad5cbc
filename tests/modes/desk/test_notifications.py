"""P2, D3: the desk on a surface, and results that are sent without a message."""

from __future__ import annotations

import asyncio

import pytest

from coterie.messaging.ports import ReplyFinished
from coterie.messaging.protocol import RoomRef
from coterie.messaging.rooms import Rooms
from coterie.modes.desk.errors import DeskError
from coterie.modes.desk.service import DeskConversation
from tests.modes.desk.conftest import DeskHarness, Script, calls


async def bound_conversation(harness: DeskHarness, script: Script) -> tuple[DeskConversation, str]:
    await harness.begin()
    conversation = DeskConversation(harness.store, harness.desk, harness.characters)
    opened = await conversation.open("ana", harness.character, "Work")
    room = RoomRef(surface="matrix", id="!room")
    await Rooms(harness.store).bind(room, "ana", "desk", harness.character, opened, "Work")
    return conversation, opened.context


async def send_message(
    harness: DeskHarness, conversation: DeskConversation, room: str, text: str, key: str
) -> list[ReplyFinished]:
    async def read() -> list[ReplyFinished]:
        return [
            update
            async for update in conversation.send_message(room, text, person="ana", key=key)
            if isinstance(update, ReplyFinished)
        ]

    reading = asyncio.create_task(read())
    while not reading.done():
        await harness.settle()
        await asyncio.sleep(0.01)
    return await reading


async def test_p2_the_same_key_returns_the_same_answer(harness: DeskHarness, script: Script) -> None:
    conversation, room = await bound_conversation(harness, script)
    script.lines["channel"] = ["Good morning."]
    assert await send_message(harness, conversation, room, "Hello", "1") == [ReplyFinished("Good morning.", "Mara")]
    assert await send_message(harness, conversation, room, "Hello", "1") == [ReplyFinished("Good morning.", "Mara")]
    assert len(script.requests) == 1
    script.lines["channel"] = [calls(("skip", {"why": "nothing to add"}))]
    assert await send_message(harness, conversation, room, "Hm", "2") == [ReplyFinished("", "Mara")]
    assert harness.notifications == {}


async def test_d3_a_result_is_sent_to_the_surface_room_once(harness: DeskHarness, script: Script) -> None:
    conversation, room = await bound_conversation(harness, script)
    script.lines["channel"] = [calls(("spawn_worker", {"task": "x"}), ("reply", {"text": "On it."})), "It is done."]
    assert await send_message(harness, conversation, room, "Do it", "1") == [ReplyFinished("On it.", "Mara")]
    await harness.settle()
    assert [(sent.room.id, sent.text) for sent in harness.notifications.values()] == [("!room", "It is done.")]


async def test_p2_stop_cancels_all_processes_and_rename_changes_the_title(harness: DeskHarness, script: Script) -> None:
    conversation, room = await bound_conversation(harness, script)
    script.lines["channel"] = [
        calls(("spawn_worker", {"task": "wait", "interactive": True}), ("reply", {"text": "On it."}))
    ]
    await send_message(harness, conversation, room, "Do it", "1")
    await harness.settle()
    assert [name.split()[0] for name, _ in conversation.status(room).notes] == ["worker"]
    assert await conversation.stop(room)
    assert not await conversation.stop(room)
    assert harness.states(room) == ["cancelled"]
    await conversation.rename(room, "Play")
    assert conversation.status(room).title == "Play"
    with pytest.raises(DeskError):
        conversation.retry(room, person="ana")
