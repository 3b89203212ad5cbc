"""A server on loopback in this process, and the system's Chromium, for benches of pages."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright
from sse_starlette.sse import AppStatus

from bench.lib.story_fixture import scripted_model
from coterie.app import App, open_store
from coterie.base.paths import Paths
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.settings import Settings
from coterie.surfaces.web.server import create_web, open_listener

T = TypeVar("T")
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class BenchServer:
    """Runs on its own event loop in a thread; `cpu` is its CPU time including helper threads."""

    def __init__(self, folder: Path, model: str | None = None) -> None:
        """`model` is the address of an OpenAI-compatible server; without it a script answers at once."""
        self._paths = Paths.locate({"COTERIE_HOME": str(folder)})
        self._model = model
        self._socket = open_listener("127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)
        self._thread.start()
        if not self._started.wait(60):
            raise RuntimeError("The server did not start.")

    async def _run(self) -> None:
        roles = dict.fromkeys(
            ("narrative", "classifier", "compactor"), "local/script" if self._model else "embedded/script"
        )
        provider = {"base_url": self._model, "flat_rate": True, "native_schema": True}
        values = {"roles": roles, "providers": {"local": provider} if self._model else {}}
        settings = Settings(models=ModelsSettings.model_validate(values))
        with open_store(self._paths) as store:
            models = Models(settings.models, store=store, providers={"embedded": scripted_model()})
            self.app = App(self._paths, settings, store, models=models)
            config = uvicorn.Config(
                create_web(self.app), log_config=None, lifespan="off", access_log=False, timeout_graceful_shutdown=1
            )
            self._server = uvicorn.Server(config)
            async with self.app.running():
                self._started.set()
                await self._server._serve([self._socket])
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(600)

    def cpu(self) -> float:
        """CPU seconds of all threads except the one that controls the browser."""
        own = threading.get_native_id()
        threads = (task for task in Path("/proc/self/task").iterdir() if int(task.name) != own)
        return sum(int((task / "schedstat").read_text().split()[0]) for task in threads) / 1e9

    def close(self) -> None:
        AppStatus.should_exit = True  # ends open streams
        self._server.should_exit = True
        self._thread.join(30)
        AppStatus.should_exit = False
        self._loop.close()
        self._socket.close()


@contextmanager
def chromium() -> Iterator[Browser]:
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        raise RuntimeError("This bench needs Chromium: apt install chromium, or CHROMIUM=/path/to/it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def seen_script(selector: str) -> str:
    """Records when 50 of these elements are laid out and the newest is on screen."""
    return f"""(() => {{ const check = () => {{
        const found = document.querySelectorAll({selector!r});
        const box = found.length >= 50 && found[found.length - 1].getBoundingClientRect();
        if (box && box.height && box.top < innerHeight && box.bottom > 0) window.last_50_seen = performance.now();
        else requestAnimationFrame(check);
    }}; requestAnimationFrame(check); }})()"""


def last_50_seen(page: Page) -> float:
    """Milliseconds since the start of the navigation."""
    page.wait_for_function("() => window.last_50_seen")
    return float(page.evaluate("window.last_50_seen"))
