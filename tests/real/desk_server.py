"""A complete server on loopback, as `coterie serve` starts it, with a desk."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from coterie.app import App, open_store
from coterie.base.clock import SystemClock
from coterie.base.paths import Paths
from coterie.characters.identity import Identity
from coterie.eventstore.sqlite.replay import replayed_hash
from coterie.llm.recording import ReplayProvider
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.settings import Settings
from coterie.surfaces.openai_api.routes import openai_router
from coterie.surfaces.web.server import create_web
from coterie.surfaces.webhook.routes import webhook_router
from coterie.surfaces.webhook.surface import WebhookSettings
from tests.modes.desk.conftest import Script

KINDS = ("channel", "branch", "worker", "compactor", "cortex")


@dataclass
class CallbackReceiver:
    """Receives webhook callbacks."""

    url: str
    received: list[dict[str, Any]] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [message["text"] for message in self.received]


@dataclass
class DeskServer:
    app: App
    client: httpx.AsyncClient
    receiver: CallbackReceiver

    async def ask(self, method: str, path: str, body: object = None, status: int | None = None) -> Any:
        answer = await self.client.request(method, path, json=body)
        assert answer.is_success if status is None else answer.status_code == status, answer.text
        return answer.json()

    async def until(self, path: str, condition: Callable[[Any], bool], timeout_s: float = 120) -> Any:
        """Poll a path until the condition holds; returns the answer."""
        async with asyncio.timeout(timeout_s):
            while not condition(answer := await self.ask("GET", path)):
                await asyncio.sleep(0.05)
        return answer


@asynccontextmanager
async def open_desk(folder: Path, script: Script | None, **sections: object) -> AsyncIterator[DeskServer]:
    """A server with a scripted model, or with the embedded one if there is no script."""
    paths = Paths.locate({"COTERIE_HOME": str(folder)})
    roles = {kind: (f"embedded/{kind}",) for kind in KINDS} if script is not None else {}
    async with _callback_receiver() as receiver:
        settings = Settings.model_validate(
            {"models": ModelsSettings(roles=roles), "webhook": WebhookSettings(callbacks=(receiver.url,)), **sections}
        )
        with open_store(paths) as store:
            models = None
            if script is not None:
                provider = ReplayProvider("embedded", default=script.answer)
                models = Models(settings.models, store=store, providers={"embedded": provider})
            app = App(paths, settings, store, models=models)
            if not app.characters.all():
                await app.characters.save(Identity(name="Mara", persona="Mara gets things done."))
            web = create_web(app)
            web.include_router(webhook_router(app.message_router, settings.webhook, app.room_files))
            web.include_router(
                openai_router(app.message_router, settings.api, SystemClock(), app.api_keys, files_of=app.room_files)
            )
            async with (
                app.running(),
                _serve(web) as url,
                httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as client,
            ):
                yield DeskServer(app, client, receiver)
            with store.reader.connections.read_transaction() as rows:
                assert store.hashes() == {
                    projection.name: replayed_hash(projection, rows) for projection in store.projections
                }


@asynccontextmanager
async def _callback_receiver() -> AsyncIterator[CallbackReceiver]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        receiver.received.append(json.loads(await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    receiver = CallbackReceiver(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/sink")
    async with server:
        yield receiver


@asynccontextmanager
async def _serve(web: object) -> AsyncIterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(web, log_config=None, log_level="warning", access_log=False, lifespan="off")  # type: ignore[arg-type]
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        await serving
