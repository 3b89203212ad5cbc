"""The surface contract on the webhook: messages are posted, and answers arrive at a callback server with faults."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from urllib.parse import unquote

import httpx
import pytest
from fastapi import FastAPI

from coterie.messaging.message_router import MessageRouter
from coterie.messaging.ports import Surface
from coterie.messaging.protocol import RoomRef
from coterie.surfaces.webhook.routes import webhook_router
from coterie.surfaces.webhook.surface import NAME, WebhookSettings, WebhookSurface
from tests.contracts.loopback import Fault, Feature, ShownMessage
from tests.contracts.surface_app import SurfaceApp
from tests.contracts.surface_contract import SurfaceContract


class WebhookPlatform:
    """A program that posts messages and receives the answers."""

    features: frozenset[Feature] = frozenset()

    def __init__(self, app: SurfaceApp) -> None:
        self._app = app
        self._faults: list[Fault] = []
        self._received: dict[str, list[ShownMessage]] = defaultdict(list)
        self._surfaces: list[WebhookSurface] = []
        self._connections: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self._url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self.reconnect(self._app.router)

    async def close(self) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._client.aclose()
        for surface in self._surfaces:
            await surface.close()

    def reconnect(self, router: MessageRouter) -> None:
        self._faults.clear()
        settings = WebhookSettings(callbacks=(self._url,))
        web = FastAPI()
        web.include_router(webhook_router(router, settings, lambda _: self._app.files_in(self.room_ref("any"))))
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://coterie")
        surface = WebhookSurface(settings)
        self._surfaces.append(surface)
        router.attach(surface)

    @property
    def surface(self) -> Surface:
        return self._surfaces[-1]

    async def say(
        self,
        who: str,
        room: str,
        text: str,
        key: str,
        *,
        times: int = 1,
        reply_to: str | None = None,
        thread: str | None = None,
        mention: bool = False,
    ) -> str:
        text = f"/{text[1:]}" if text.startswith("!") else text
        body = {"text": text, "room": room, "id": key, "from": who, "callback": f"{self._url}/{room}"}
        for _ in range(times):
            response = await self._client.post("/webhook", json=body)
            assert response.status_code == 202, response.text
        return key

    async def press(self, who: str, room: str, label: str) -> None:
        raise NotImplementedError("programs have no buttons")

    async def send_file(self, who: str, room: str, name: str, data: bytes) -> None:
        raise NotImplementedError("tests/surfaces/webhook/test_files.py tests them")

    async def join(self, who: str, room: str) -> None:
        raise NotImplementedError("the webhook has no groups")

    async def leave(self, who: str, room: str) -> None:
        raise NotImplementedError("the webhook has no groups")

    async def rename(self, who: str, room: str, title: str) -> None:
        raise NotImplementedError("callers name the rooms")

    def room_ref(self, room: str) -> RoomRef:
        return RoomRef(surface=NAME, id=room)

    def notice_thread(self, room: str) -> str | None:
        return f"{self._url}/{room}"

    def is_in(self, room: str) -> bool:
        return True

    def account(self, who: str) -> str:
        return who

    def messages(self, room: str) -> list[ShownMessage]:
        return self._received[room]

    def shown(self, room: str) -> list[str]:
        return [message.text for message in self.messages(room)]

    def fail_next(self, *faults: Fault) -> None:
        self._faults.extend(faults)

    def refuse_edits(self) -> None:
        """Nothing is edited."""

    def most_edits(self) -> int:
        return 0

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one answer; connections are not kept."""
        if (task := asyncio.current_task()) is not None:
            self._connections.append(task)
        try:
            await self._answer(reader, writer)
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(line.partition(":")[2]) for line in head.splitlines() if line.lower().startswith("content-l"))
        body = json.loads(await reader.readexactly(length))
        room = unquote(head.split(" ")[1].removeprefix("/"))
        assert body["room"] == room
        fault = self._faults.pop(0) if self._faults else None
        status = {"patience": "429 Slow", "hung up": "503 Away", "refused": "400 No"}.get(fault or "", "200 OK")
        if status == "200 OK":
            self._received[room].append(ShownMessage(body["token"], body["text"]))
        if fault == "stuck after taking":
            await asyncio.Event().wait()
        if fault != "taken, then hung up":
            more = "Retry-After: 0\r\n" if fault == "patience" else ""
            writer.write(f"HTTP/1.1 {status}\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()


class TestWebhook(SurfaceContract):
    @pytest.fixture
    async def platform(self, app: SurfaceApp) -> AsyncIterator[WebhookPlatform]:
        platform = WebhookPlatform(app)
        await platform.start()
        yield platform
        await platform.close()
