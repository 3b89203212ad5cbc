"""A whole house with its doors open on loopback, as `coterie serve` opens them, and a desk in it."""

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

from coterie.app import App, Settings, open_store
from coterie.base.clock import SystemClock
from coterie.base.paths import Paths
from coterie.characters.identity import Identity
from coterie.eventstore.sqlite.replay import replayed_hash
from coterie.llm.recording import ReplayProvider
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.surfaces.openai_api.routes import openai_router
from coterie.surfaces.web.server import create_web
from coterie.surfaces.webhook.routes import webhook_router
from coterie.surfaces.webhook.surface import WebhookSettings
from tests.modes.desk.conftest import Script

KINDS = ("channel", "branch", "worker", "compactor", "cortex")


@dataclass
class Sink:
    """A program that is called back, and takes everything."""

    url: str
    got: list[dict[str, Any]] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [one["text"] for one in self.got]


@dataclass
class Open:
    house: App
    client: httpx.AsyncClient
    sink: Sink

    async def ask(self, method: str, path: str, told: object = None, status: int | None = None) -> Any:
        answer = await self.client.request(method, path, json=told)
        assert answer.is_success if status is None else answer.status_code == status, answer.text
        return answer.json()

    async def until(self, path: str, fits: Callable[[Any], bool], patience_s: float = 120) -> Any:
        """Look again until it is so."""
        async with asyncio.timeout(patience_s):
            while not fits(told := await self.ask("GET", path)):
                await asyncio.sleep(0.05)
        return told


@asynccontextmanager
async def open_desk(folder: Path, script: Script | None, **sections: object) -> AsyncIterator[Open]:
    """With a script, on a scripted model; without one, on the embedded model."""
    home = Paths.locate({"COTERIE_HOME": str(folder)})
    roles = {kind: (f"embedded/{kind}",) for kind in KINDS} if script is not None else {}
    async with _sink() as sink:
        settings = Settings.model_validate(
            {"models": ModelsSettings(roles=roles), "webhook": WebhookSettings(callbacks=(sink.url,)), **sections}
        )
        with open_store(home) as store:
            models = None
            if script is not None:
                player = ReplayProvider("embedded", default=script.answer)
                models = Models(settings.models, store=store, providers={"embedded": player})
            house = App(home, settings, store, models=models)
            if not house.characters.all():
                await house.characters.save(Identity(name="Mara", persona="Mara gets things done."))
            web = create_web(house)
            web.include_router(webhook_router(house.message_router, settings.webhook, house.room_files))
            web.include_router(openai_router(house.message_router, settings.api, SystemClock()))
            async with (
                house.running(),
                _listening(web) as url,
                httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as client,
            ):
                yield Open(house, client, sink)
            with store.reader.connections.snapshot() as rows:
                assert store.hashes() == {view.name: replayed_hash(view, rows) for view in store.projections}


@asynccontextmanager
async def _sink() -> AsyncIterator[Sink]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        sink.got.append(json.loads(await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    sink = Sink(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/sink")
    async with server:
        yield sink


@asynccontextmanager
async def _listening(web: object) -> AsyncIterator[str]:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        config = uvicorn.Config(web, log_config=None, log_level="warning", access_log=False, lifespan="off")  # type: ignore[arg-type]
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[door]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
        server.should_exit = True
        await serving
