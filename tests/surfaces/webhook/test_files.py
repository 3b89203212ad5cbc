"""Uploads and downloads of the webhook."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from urllib.parse import quote

import psutil

from coterie.messaging.files import FILES_FOLDER, room_folder_name
from coterie.messaging.protocol import IncomingMessage, OutgoingMessage, RoomRef
from tests.messaging.test_files import HOSTILE_NAMES, hostile_names
from tests.surfaces.webhook.conftest import Serve, Served

MB = 1_000_000


class PeakMemory:
    """The growth of the peak memory of this process, which is server and client."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._before = self._process.memory_info().rss
        self.most = 0

    def measure(self) -> None:
        self.most = max(self.most, self._process.memory_info().rss - self._before)


async def upload(served: Served, content: bytes | AsyncIterator[bytes], name: str, room: str = "main") -> str:
    answer = await served.client.post(f"/webhook/files?name={quote(name, safe='')}&room={room}", content=content)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["file"])


async def test_p6_an_uploaded_file_reaches_the_character(serve: Serve) -> None:
    async with serve() as served:
        file = await upload(served, b"# Tides\n", "tides.md")
        call = {"text": "Read this.", "files": [file], "wait": True}
        assert (await served.client.post("/webhook", json=call)).status_code == 200
        assert "hands over a file: tides.md" in served.script.prompt()
        for bad in ("../../coterie.db", "/etc/passwd", "not there.txt", "..", ""):
            answer = await served.client.post("/webhook", json={**call, "files": [bad]})
            assert answer.status_code >= 400, bad
        elsewhere = await served.client.post("/webhook", json={**call, "room": "elsewhere"})
        assert elsewhere.status_code >= 400, "what was sent to one room is not another's"
        assert len(served.script.asked) == 1


async def test_p6_hostile_names_over_http_stay_in_the_workspace(serve: Serve) -> None:
    async with serve() as served:
        root = served.app.paths.root
        await upload(served, b"x", "first.txt")
        before = {path for path in root.rglob("*") if path.is_file()}
        names = [*HOSTILE_NAMES, *hostile_names(200)]
        for name in names:
            printable = name.encode("utf-8", "replace").decode()[:300]
            await upload(served, b"x", printable)
        new = {path for path in root.rglob("*") if path.is_file()} - before
        room = RoomRef(surface="webhook", id="main")
        folder = (
            served.app.workspaces.folder(served.app.characters.find("Mara").id) / FILES_FOLDER / room_folder_name(room)
        )
        logs = {path for path in new if path.name.startswith("coterie.db")}
        assert {path.parent for path in new - logs} == {folder} and len(new - logs) == len(names)


async def test_p6_fifty_megabytes_both_ways_over_http_in_little_memory(serve: Serve) -> None:
    piece = os.urandom(50_000)
    expected = hashlib.sha256(piece * 1_000).hexdigest()
    async with serve() as served:
        await upload(served, piece, "warm up.bin")
        peak = PeakMemory()

        async def pieces() -> AsyncIterator[bytes]:
            for n in range(1_000):
                if n % 50 == 0:
                    peak.measure()
                yield piece

        file = await upload(served, pieces(), "film.bin")
        # The character sends it back: an answer with the file, as a mode that makes files gives it.
        router = served.app.message_router
        call = {"text": "/help", "id": "k", "wait": True}
        await served.client.post("/webhook", json=call)
        room = RoomRef(surface="webhook", id="main")
        await router.chats.begin_chat(room, served.app.people.person("you"))
        await _answer_with(served, room, file)
        digest, size = hashlib.sha256(), 0
        async with served.client.stream("GET", "/webhook/m/files/0") as answer:
            assert answer.status_code == 200 and answer.headers["content-length"] == str(50 * MB)
            async for chunk in answer.aiter_bytes():
                digest.update(chunk)
                size += len(chunk)
                if size % (5 * MB) < len(chunk):
                    peak.measure()
        assert (size, digest.hexdigest()) == (50 * MB, expected)
        assert peak.most < 20 * MB
        too_large = await served.client.post("/webhook/files?name=x.bin", content=_zeros(51))
        assert too_large.status_code >= 400 and "larger than 50 MB" in too_large.text
        assert (await served.client.get("/webhook/m/files/1")).status_code == 404
        assert (await served.client.get("/webhook/m/files/0?room=other")).status_code == 404


async def _zeros(megabytes: int) -> AsyncIterator[bytes]:
    for _ in range(megabytes):
        yield bytes(MB)


async def _answer_with(served: Served, room: RoomRef, file: str) -> None:
    """A message whose reply has the file."""
    router, name = served.app.message_router, "webhook"

    @router.dispatcher.on(IncomingMessage, surface=name)
    async def send_back(incoming: IncomingMessage) -> AsyncIterator[OutgoingMessage]:
        yield OutgoingMessage(room=room, text="Here.", attachments=incoming.attachments)

    answer = await served.client.post("/webhook", json={"text": "Back?", "id": "m", "files": [file], "wait": True})
    assert answer.json()["files"] == [
        {"name": "film.bin", "media_type": answer.json()["files"][0]["media_type"], "size": 50 * MB, "number": 0}
    ]
