"""Homeserver restarts, rate limits, long absences and large files."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from coterie.base.ids import new_id
from coterie.messaging.protocol import OutgoingMessage
from coterie.surfaces.matrix.crypto.primitives import EncryptedFile
from coterie.surfaces.matrix.schemas import room_ref
from tests.real.matrix_app import MatrixApp, MatrixUser, app_with
from tests.real.second_client import EncryptedMatrixUser
from tests.real.synapse import Synapse

pytestmark = pytest.mark.timeout(900)
MB = 1_000_000


def bot_name() -> str:
    return f"bot-{new_id().lower()}"


async def test_p4_five_hundred_missed_messages_are_answered_once_in_order(synapse: Synapse, tmp_path: Path) -> None:
    """Two rooms have more messages than a sync returns: the rest is read in pages. Every other room is encrypted."""
    counts = [130, 120, *[14] * 16, *[13] * 2]
    assert (sum(counts), len(counts)) == (500, 20)
    async with app_with(EncryptedMatrixUser, synapse, tmp_path, bot_name()) as (app, ana):
        rooms = [
            await (MatrixUser.room_with(ana, app.bot_user) if n % 2 else ana.room_with(app.bot_user)) for n in range(20)
        ]
        await app.settle()

        async def write(room: str, count: int) -> None:
            for n in range(count):
                await ana.say(room, f"m{n}")

        await asyncio.gather(*(write(room, count) for room, count in zip(rooms, counts, strict=True)))
        await app.restart()
        await app.settle()
        for room, count in zip(rooms, counts, strict=True):
            texts = [text.partition(" [")[0] for text in await answers_in(ana, room, app)]
            assert texts == [f"m{n}" for n in range(count)]


async def test_p4_a_homeserver_restart_is_waited_for(synapse: Synapse, tmp_path: Path) -> None:
    async with app_with(EncryptedMatrixUser, synapse, tmp_path, bot_name()) as (app, ana):
        room = await ana.room_with(app.bot_user)
        await app.settle()
        await ana.say(room, "before")
        stop = asyncio.Event()
        await asyncio.to_thread(synapse.stop)
        following = asyncio.create_task(app.following.run(stop))
        await app.router.notify(OutgoingMessage(room=room_ref(room), text="said while it was away"), "away-1")
        await asyncio.sleep(0.5)
        await asyncio.to_thread(synapse.start)
        await ana.say(room, "after")
        await wait_for_messages(app, 2)
        stop.set()
        await following
        await app.router.wait_idle()
        texts = [text.partition(" [")[0] for text in await answers_in(ana, room, app)]
        assert sorted(texts) == ["after", "before", "said while it was away"], "once each, and no word about it"
        assert texts.index("before") < texts.index("after")


async def test_p5_the_homeservers_rate_limit_is_respected(synapse: Synapse, tmp_path: Path) -> None:
    async with app_with(EncryptedMatrixUser, synapse, tmp_path, bot_name()) as (app, ana):
        rooms = [await ana.room_with(app.bot_user) for _ in range(3)]
        await app.settle()
        synapse.slow_down(app.bot_user, 2, 2)
        text = " ".join(f"word{n}" for n in range(2_500))
        app.echo.script["tell me all"] = text
        app.echo.pause_s = 0.002
        before = refusals(synapse)
        await ana.say(rooms[0], "tell me all")
        for n in range(3):
            await ana.say(rooms[1], f"m{n}")
            await ana.say(rooms[2], f"m{n}")
        await app.settle()
        assert "".join(await answers_in(ana, rooms[0], app)) == text
        for room in rooms[1:]:
            texts = [one.partition(" [")[0] for one in await answers_in(ana, room, app)]
            assert texts == ["m0", "m1", "m2"]
        assert refusals(synapse) > before, "it did ask"
        assert app.router.delivery.outbox.uncertain() == []


@pytest.mark.parametrize("client", [MatrixUser, EncryptedMatrixUser], ids=["plain", "sealed"])
async def test_p6_fifty_megabytes_both_ways_in_little_memory(
    synapse: Synapse, tmp_path: Path, client: type[MatrixUser]
) -> None:
    async with app_with(client, synapse, tmp_path, bot_name()) as (app, ana):
        room = await ana.room_with(app.bot_user)
        await app.settle()
        await ana.say(room, "hello")
        await app.settle()
        size, mark = 50 * MB, hashlib.sha256()

        async def chunks() -> AsyncIterator[bytes]:
            chance = random.Random(5)
            for _ in range(size // MB):
                piece = chance.randbytes(MB)
                mark.update(piece)
                yield piece

        info = {"mimetype": "video/mp4", "size": size}
        if client is EncryptedMatrixUser:
            sealed = EncryptedFile(chunks())
            uri = await ana.server.upload(sealed.chunks(), size, "application/octet-stream", "")
            content = {"msgtype": "m.video", "file": sealed.metadata(uri), "info": info}
        else:
            content = {
                "msgtype": "m.video",
                "url": await ana.server.upload(chunks(), size, "video/mp4", ""),
                "info": info,
            }
        async with Memory() as memory:
            await ana.say(room, "film.mp4", more=content)
            await app.settle()
            (kept,) = app.echo.files
            film = OutgoingMessage(room=room_ref(room), text="", attachments=(kept,))
            await app.router.notify(film, "film-1")
            await app.router.wait_idle()
        character = app.router.chats.rooms.get(room_ref(room)).character
        saved = app.workspaces / character / kept.path
        assert hashlib.sha256(saved.read_bytes()).digest() == mark.digest() and kept.size == size
        ours = [one["content"] for one in await ana.events(room) if one["sender"] == app.bot_user]
        sent = next(one for one in ours if one.get("msgtype") == "m.video")
        if isinstance(ana, EncryptedMatrixUser):
            assert hashlib.sha256(await ana.fetch(sent["file"])).digest() == mark.digest()
        else:
            async with ana.server.download(sent["url"]) as parts:
                assert hashlib.sha256(b"".join([part async for part in parts])).digest() == mark.digest()
        assert memory.grew < 20 * MB


class Memory:
    """The peak memory of this process above its start."""

    async def __aenter__(self) -> Memory:
        self._process = psutil.Process()
        self._before = self._most = self._process.memory_info().rss
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            self._most = max(self._most, self._process.memory_info().rss)
            await asyncio.sleep(0.01)

    @property
    def grew(self) -> int:
        return self._most - self._before


async def answers_in(ana: MatrixUser, room: str, app: MatrixApp) -> list[str]:
    """The bot's messages after its welcome."""
    return [text for text in await ana.shown(room, app.bot_user) if not text.startswith("Your chats are")]


async def wait_for_messages(app: MatrixApp, count: int) -> None:
    async with asyncio.timeout(300):
        while len(app.echo.received) < count:
            await asyncio.sleep(0.1)


def refusals(synapse: Synapse) -> int:
    return sum(" 429 " in line for line in synapse.log.splitlines() if "Processed request" in line)
