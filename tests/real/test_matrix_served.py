"""The how-to page on Matrix, followed step by step: settings, `coterie serve`, an invitation, an encrypted chat.

With the embedded model: its text is not checked, only that messages are read, answered and kept.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from coterie.base.ids import new_id
from tests.e2e.server_process import Server, coterie
from tests.real.second_client import EncryptedMatrixUser
from tests.real.synapse import PASSWORD, Synapse

pytestmark = [pytest.mark.xdist_group("embedded"), pytest.mark.timeout(600)]
RECIPE = Path(__file__).parents[2] / "docs/how-to/matrix.md"
SHORT = "\n[story]\nreply_tokens = 16\nnarrative_budget_soft = 500\nnarrative_budget_hard = 800\n"


@pytest.fixture
def bot(synapse: Synapse) -> str:
    return synapse.register(f"coterie-{new_id().lower()}")


@pytest.fixture
async def ana(synapse: Synapse) -> AsyncIterator[EncryptedMatrixUser]:
    there = await EncryptedMatrixUser.arrive(synapse, f"ana-{new_id().lower()}")
    yield there
    await there.close()


@pytest.fixture
def served(synapse: Synapse, bot: str, ana: EncryptedMatrixUser, tmp_path: Path) -> Iterator[Server]:
    config = re.findall(r"```toml\n(.*?)```", RECIPE.read_text(), re.DOTALL)[0]
    for theirs, ours in {
        "https://matrix.example.org": synapse.url,
        "@coterie:example.org": bot,
        "env:MATRIX_PASSWORD": PASSWORD,
        "@you:example.org": ana.user,
    }.items():
        assert theirs in config
        config = config.replace(theirs, ours)
    app = tmp_path / "house"
    app.mkdir()
    (app / "config.toml").write_text(config + SHORT)
    server = Server(app, "coterie")
    yield server
    server.close()


async def is_space(ana: EncryptedMatrixUser, room: str) -> bool:
    created = await ana.server.state_event(room, "m.room.create")
    return bool(created.get("type") == "m.space")


async def first_room(ana: EncryptedMatrixUser, bot: str) -> str:
    await ana.room_with(bot)
    while True:
        for room in await ana.accept_invites():
            if not await is_space(ana, room):
                return room
        await asyncio.sleep(0.5)


async def chat_being_answered(served: Server) -> str:
    """The first chat, once it has an opening, a message and a started reply."""
    while True:
        for chat in served.client.get("/chats").json():
            if chat["turns"] == 3:
                return str(chat["id"])
        await asyncio.sleep(0.1)


async def replies(served: Server, chat: str) -> list[str]:
    """The character's complete reply."""
    while True:
        turns = served.client.get(f"/chats/{chat}/turns").json()["turns"]
        if len(turns) == 3 and turns[-1]["text"] and turns[-1]["state"] != "open":
            return [turn["text"] for turn in turns[0::2]]
        await asyncio.sleep(0.5)


async def test_p7_from_the_settings_to_an_encrypted_chat_across_a_restart(
    served: Server, bot: str, ana: EncryptedMatrixUser
) -> None:
    served.client.post("/characters/ready/maren").raise_for_status()
    room = await first_room(ana, bot)
    await ana.say(room, "Hello, is somebody there?")
    chat = await chat_being_answered(served)
    assert served.stop(signal.SIGTERM) == 0, "in the middle of the reply"
    logs = [json.loads(line) for line in served.logs.read_text().splitlines()]
    assert [line for line in logs if line["level"] not in ("info", "warning") or line["logger"] == "httpx"] == []

    again = Server(served.home, "coterie")
    try:
        opening, reply = await replies(again, chat)
        while reply not in (shown := await ana.shown(room, bot)):
            await asyncio.sleep(0.5)
        assert [shown.count(text) for text in (opening, reply)] == [1, 1]
        assert again.stop(signal.SIGTERM) == 0
    finally:
        again.close()
    assert coterie(served.home, "verify").returncode == 0
