"""A real instance with a scripted model, served on loopback as `coterie serve` does."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import uvicorn

from coterie.app import App, open_store
from coterie.base.clock import ManualClock
from coterie.base.paths import Paths
from coterie.characters.identity import Identity
from coterie.eventstore.sqlite.replay import replayed_hash
from coterie.eventstore.worker import Worker
from coterie.llm.recording import ReplayProvider
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.settings import Settings
from coterie.surfaces.openai_api.routes import openai_router
from coterie.surfaces.web.server import create_web
from coterie.surfaces.webhook.routes import webhook_router
from coterie.surfaces.webhook.surface import attached
from tests.modes.story.conftest import ScriptedModel


@dataclass
class Served:
    url: str
    app: App
    script: ScriptedModel
    clock: ManualClock
    client: httpx.AsyncClient

    async def settle(self) -> None:
        """Wait for the jobs after replies, such as the extraction of memories."""
        await self.app.message_router.wait_idle()
        worker = Worker(self.app.store.jobs, self.app.story.handlers(), clock=self.clock, bus=self.app.store.bus)
        while await worker.drain():
            pass


Serve = Callable[..., AbstractAsyncContextManager[Served]]


@asynccontextmanager
async def serving(folder: Path, clock: ManualClock, **sections: object) -> AsyncIterator[Served]:
    home = Paths.locate({"COTERIE_HOME": str(folder)})
    roles = {"narrative": ("embedded/script",), "classifier": ("embedded/script",)}
    settings = Settings.model_validate({"models": ModelsSettings(roles=roles), **sections})
    script = ScriptedModel()
    with open_store(home, clock=clock) as store:
        provider = ReplayProvider("embedded", default=script.answer, speed=1)
        models = Models(settings.models, clock=clock, store=store, providers={"embedded": provider})
        app = App(home, settings, store, clock=clock, models=models)
        if not app.characters.all():
            await app.characters.save(Identity(name="Mara", persona="Keeps a lighthouse."))
        web = create_web(app)
        web.include_router(webhook_router(app.message_router, settings.webhook, app.room_files))
        web.include_router(
            openai_router(app.message_router, settings.api, clock, app.api_keys, files_of=app.room_files)
        )
        async with (
            attached(app.message_router, settings.webhook),
            _serve_http(web) as url,
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as client,
        ):
            yield Served(url, app, script, clock, client)
        await app.message_router.close()
        await app.story.replies.close()
        with store.reader.connections.read_transaction() as rows:
            assert store.hashes() == {
                projection.name: replayed_hash(projection, rows) for projection in store.projections
            }
        await models.close()


@pytest.fixture
def serve(tmp_path: Path, clock: ManualClock) -> Serve:
    return functools.partial(serving, tmp_path / "app", clock)


@asynccontextmanager
async def _serve_http(web: object) -> AsyncIterator[str]:
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
