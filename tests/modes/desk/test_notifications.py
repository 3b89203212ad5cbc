"""P2: the desk on a surface; D3: what nobody asked for is brought to where the conversation is held."""

from __future__ import annotations

import asyncio

import pytest

from coterie.messaging.ports import ReplyFinished
from coterie.messaging.protocol import RoomRef
from coterie.messaging.rooms import Rooms
from coterie.modes.desk.errors import DeskError
from coterie.modes.desk.service import DeskConversation
from tests.modes.desk.conftest import Script, Stage, calls


async def held(stage: Stage, script: Script) -> tuple[DeskConversation, str]:
    await stage.begin()
    talk = DeskConversation(stage.store, stage.desk, stage.roster)
    opened = await talk.open("ana", stage.character, "Work")
    place = RoomRef(surface="matrix", id="!room")
    await Rooms(stage.store).bind(place, "ana", "desk", stage.character, opened, "Work")
    return talk, opened.context


async def heard(stage: Stage, talk: DeskConversation, room: str, text: str, key: str) -> list[ReplyFinished]:
    async def listen() -> list[ReplyFinished]:
        return [
            speech
            async for speech in talk.send_message(room, text, person="ana", key=key)
            if isinstance(speech, ReplyFinished)
        ]

    listening = asyncio.create_task(listen())
    while not listening.done():
        await stage.settle()
        await asyncio.sleep(0.01)
    return await listening


async def test_p2_the_answer_comes_back_and_the_same_key_gives_it_again(stage: Stage, script: Script) -> None:
    talk, room = await held(stage, script)
    script.lines["channel"] = ["Good morning."]
    assert await heard(stage, talk, room, "Hello", "1") == [ReplyFinished("Good morning.", "Mara")]
    assert await heard(stage, talk, room, "Hello", "1") == [ReplyFinished("Good morning.", "Mara")]
    assert len(script.asked) == 1
    script.lines["channel"] = [calls(("skip", {"why": "nothing to add"}))]
    assert await heard(stage, talk, room, "Hm", "2") == [ReplyFinished("", "Mara")]
    assert stage.told == {}


async def test_d3_a_result_is_told_where_the_conversation_is_held_and_once(stage: Stage, script: Script) -> None:
    talk, room = await held(stage, script)
    script.lines["channel"] = [calls(("spawn_worker", {"task": "x"}), ("reply", {"text": "On it."})), "It is done."]
    assert await heard(stage, talk, room, "Do it", "1") == [ReplyFinished("On it.", "Mara")]
    await stage.settle()
    assert [(told.room.id, told.text) for told in stage.told.values()] == [("!room", "It is done.")]


async def test_p2_stopping_ends_everything_and_the_title_can_change(stage: Stage, script: Script) -> None:
    talk, room = await held(stage, script)
    script.lines["channel"] = [
        calls(("spawn_worker", {"task": "wait", "interactive": True}), ("reply", {"text": "On it."}))
    ]
    await heard(stage, talk, room, "Do it", "1")
    await stage.settle()
    assert [name.split()[0] for name, _ in talk.status(room).notes] == ["worker"]
    assert await talk.stop(room)
    assert not await talk.stop(room)
    assert stage.states(room) == ["cancelled"]
    await talk.rename(room, "Play")
    assert talk.status(room).title == "Play"
    with pytest.raises(DeskError):
        talk.retry(room, person="ana")
