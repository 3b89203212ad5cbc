"""The API of a real instance on a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from coterie.app import App, open_store
from coterie.base.clock import SystemClock
from coterie.base.paths import Paths
from coterie.eventstore.sqlite.replay import replayed_hash
from coterie.eventstore.worker import Worker
from coterie.llm.messages import CompletionRequest
from coterie.llm.recording import RecordedCall, ReplayProvider
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.settings import Settings
from coterie.surfaces.web.server import create_web
from tests.modes.story.conftest import ScriptedModel


class Paced(ScriptedModel):
    """With `paused`, each word of a reply waits for a `step`."""

    paused = False

    def __init__(self) -> None:
        super().__init__()
        self.steps = asyncio.Semaphore(0)

    def answer(self, request: CompletionRequest) -> RecordedCall:
        entry = super().answer(request)
        if not self.paused or request.prompt.output_schema is not None:
            return entry
        return RecordedCall(chunks=tuple((at + 1, chunk) for at, (_, chunk) in enumerate(entry.all_chunks())))

    async def sleep(self, _: float) -> None:
        await self.steps.acquire()

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.steps.release()


@dataclass
class Web:
    asgi: FastAPI
    app: App
    client: httpx.AsyncClient
    script: Paced
    home: Paths

    async def get(self, path: str, status: int = 200) -> Any:
        answer = await self.client.get(path)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def post(self, path: str, body: object = None, status: int = 200) -> Any:
        answer = await self.client.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def begin(self, name: str = "maren", **opening: object) -> tuple[str, str]:
        """A ready-made character and a chat with it."""
        bot = (await self.post(f"/characters/ready/{name}", status=201))["id"]
        chat = await self.post(f"/characters/{bot}/kickoff", {"place": {"name": "the jetty"}, **opening}, status=201)
        return bot, f"/chats/{chat['id']}"

    async def say(self, chat: str, text: str, **more: object) -> Any:
        reply = await self.post(f"{chat}/turns?wait=true", {"text": text, **more})
        await self.settle()
        return reply

    async def settle(self) -> None:
        worker = Worker(self.app.store.jobs, self.app.story.handlers(), clock=SystemClock(), bus=self.app.store.bus)
        while await worker.drain():
            pass

    async def texts(self, chat: str) -> list[str]:
        page = await self.get(f"{chat}/turns")
        return [turn["text"] for turn in page["turns"]]

    def verify(self) -> None:
        store = self.app.store
        with store.reader.connections.read_transaction() as rows:
            assert store.hashes() == {view.name: replayed_hash(view, rows) for view in store.projections}


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    home = Paths.locate({"COTERIE_HOME": str(tmp_path / "home")})
    roles = {"narrative": ("embedded/script",), "classifier": ("embedded/script",)}
    settings = Settings(models=ModelsSettings(roles=roles))
    script = Paced()
    with open_store(home) as store:
        player = ReplayProvider("embedded", default=script.answer, speed=1, sleep=script.sleep)
        models = Models(settings.models, store=store, providers={"embedded": player})
        app = App(home, settings, store, models=models)
        asgi = create_web(app)
        transport = httpx.ASGITransport(asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            running = Web(asgi, app, client, script, home)
            yield running
        await app.story.replies.close()
        running.verify()
        await models.close()
