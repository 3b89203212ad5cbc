"""Sealed rooms on a real homeserver, with another client on the other side. P7

What the homeserver's own database holds is looked at: nothing that anybody said may stand there readable.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coterie.base.ids import new_id
from coterie.surfaces.matrix.inbound import NAME
from tests.real.matrix_house import MatrixHouse
from tests.real.matrix_house import house_on as any_house_on
from tests.real.second_client import SealedHuman
from tests.real.synapse import Synapse

pytestmark = pytest.mark.timeout(600)


_SAID = "SELECT json FROM event_json NATURAL JOIN events WHERE room_id = ? AND state_key IS NULL"


def house_on(synapse: Synapse, path: Path):  # type: ignore[no-untyped-def]
    return any_house_on(synapse, path, f"bot-{new_id().lower()}", SealedHuman)


async def first_room(house: MatrixHouse, ana: SealedHuman) -> str:
    await ana.room_with(house.bot_user)
    await house.settle()
    await ana.accept_invites()
    await house.settle(1)
    (bound,) = house.board.talk.rooms.all_on(NAME)
    return bound.room.id


def readable(synapse: Synapse, *rooms: str) -> list[str]:
    """What in these rooms can be read by whoever runs the homeserver: kinds of events that are no state."""
    found = []
    for room in rooms:
        for (told,) in synapse.query("SELECT json FROM event_json WHERE room_id = ?", room):
            event = json.loads(told)
            if "state_key" not in event and event["type"] != "m.room.encrypted":
                found.append(f"{event['type']} {event['content']}")
    return found


async def test_p7_rooms_we_make_are_sealed_and_both_sides_read_each_other(synapse: Synapse, tmp_path: Path) -> None:
    async with house_on(synapse, tmp_path) as (house, ana):
        room = await first_room(house, ana)
        state = {event["type"]: event["content"] for event in await ana.server.state(room)}
        assert state["m.room.encryption"]["algorithm"] == "m.megolm.v1.aes-sha2"
        await ana.say(room, "Hello, is this sealed?")
        await house.settle()
        assert (await ana.shown(room, house.bot_user))[-1].startswith("Hello, is this sealed? [echo:")
        await house.restart()
        await ana.say(room, "And after a restart?")
        await house.settle()
        assert (await ana.shown(room, house.bot_user))[-1].startswith("And after a restart? [echo:")
        assert readable(synapse, room) == []
        said = [told for (told,) in synapse.query(_SAID, room)]
        assert said and not any("sealed?" in told or "echo:" in told for told in said)
