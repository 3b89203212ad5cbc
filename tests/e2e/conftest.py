"""A real server on loopback with a scripted model, and a real browser in front of it.

The server runs in this process, on an event loop of its own, so that a test can script the model's replies, pause
them between two words, and inspect the app while the page is open.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Error, Page, expect, sync_playwright
from sse_starlette.sse import AppStatus

from coterie.app import App, open_store
from coterie.base.clock import SystemClock
from coterie.base.ids import new_id
from coterie.base.paths import Paths
from coterie.conversation.events import AssistantTurn, AssistantTurnStarted, UserTurn
from coterie.eventstore import NewEvent
from coterie.llm.recording import ReplayProvider
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.modes.draft.settings import DraftSettings
from coterie.modes.story.settings import StorySettings
from coterie.settings import Settings
from coterie.surfaces.web.server import create_web
from tests.e2e.browser import describe_page, find_chromium
from tests.e2e.server_process import Server, Start
from tests.surfaces.web.conftest import Paced

T = TypeVar("T")
TIMEOUT_MS = 30_000
"""Long, so that tests pass on a busy machine."""
expect.set_options(timeout=TIMEOUT_MS)


class ShiftedClock(SystemClock):
    """The system time minus `behind`."""

    behind = timedelta()

    def now(self) -> datetime:
        return super().now() - self.behind


class Site:
    """A running server with a client and shortcuts for requests."""

    def __init__(self, folder: Path, story: StorySettings | None = None, script: Paced | None = None) -> None:
        self.script = script or Paced()
        self.clock = ShiftedClock()
        self._home = Paths.locate({"COTERIE_HOME": str(folder)})
        roles = dict.fromkeys(("narrative", "classifier", "compactor", "draft"), ("embedded/script",))
        roles |= {kind: (f"embedded/{kind}",) for kind in ("channel", "branch", "worker", "cortex", "crowd")}
        tags = DraftSettings(formats={"embedded": "tags"})
        self._settings = Settings(models=ModelsSettings(roles=roles), story=story or StorySettings(), draft=tags)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)
        self._thread.start()
        assert self._up.wait(30)
        self.client = httpx.Client(base_url=self.address, timeout=60)

    async def _run(self) -> None:
        with open_store(self._home, clock=self.clock) as store:
            player = ReplayProvider("embedded", default=self.script.answer, speed=1, sleep=self.script.sleep)
            models = Models(self._settings.models, store=store, providers={"embedded": player})
            self.app = App(self._home, self._settings, store, clock=self.clock, models=models)
            config = uvicorn.Config(create_web(self.app), log_config=None, lifespan="off", timeout_graceful_shutdown=1)
            self._server = uvicorn.Server(config)
            self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
            async with self.app.running():
                self._up.set()
                await self._server._serve([self._socket])
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine on the server's event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def call(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return self.do(run())

    def step(self, times: int = 1) -> None:
        """Let a paused model write this many more words."""
        self._loop.call_soon_threadsafe(self.script.step, times)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        answer = self.client.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def begin(self, name: str = "maren", **opening: object) -> str:
        """A chat with a ready-made character, as a path; you are Ana."""
        self.ask("PUT", "/you", {"name": "Ana"})
        bot = self.ask("POST", f"/characters/ready/{name}")["id"]
        body = {"title": "The lighthouse", "place": {"name": "the lamp room"}, **opening}
        return f"/chats/{self.ask('POST', f'/characters/{bot}/kickoff', body)['id']}"

    def host(self, chat: str) -> str:
        return str(self.ask("GET", chat)["host"]["id"])

    def say(self, chat: str, text: str, reply: str | None = None) -> Any:
        if reply is not None:
            self.script.replies.append(reply)
        return self.ask("POST", f"{chat}/turns?wait=true", {"text": text})

    def texts(self, chat: str) -> list[str]:
        return [turn["text"] for turn in self.ask("GET", f"{chat}/turns?limit=500")["turns"]]

    def add_exchanges(self, chat: str, exchanges: int) -> None:
        """Append messages and replies to the log."""
        room = f"room:{chat.removeprefix('/chats/')}"
        bot = self.host(chat)
        drafts: list[NewEvent] = []
        for number in range(exchanges):
            turn, reply = new_id(), new_id()
            said = UserTurn(turn=turn, author="you", text=f"Number {number}.", segments=())
            drafts += [
                NewEvent(room, said, "you", turn=turn),
                NewEvent(room, AssistantTurnStarted(reply=reply, speaker=bot, answers=turn), bot, turn=reply),
                NewEvent(room, AssistantTurn(reply=reply, text=f"Reply {number}."), bot, turn=reply),
            ]
        for at in range(0, len(drafts), 3_000):
            self.do(self.app.store.append(drafts[at : at + 3_000]))

    def reset(self) -> None:
        """End running replies and clear the script."""
        self.script.paused = False
        self.step(10_000)
        self.do(self.app.story.replies.close())
        self.do(self.app.draft.replies.close())
        self.script.__init__()  # type: ignore[misc]

    def close(self) -> None:
        self.client.close()
        self.script.paused = False
        self.step(10_000)
        AppStatus.should_exit = True  # as a signal to `coterie serve` does: open streams end in order
        self._server.should_exit = True
        self._thread.join(30)
        AppStatus.should_exit = False
        self._loop.close()
        self._socket.close()


@pytest.fixture(scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    running = Site(tmp_path_factory.mktemp("site") / "home")
    yield running
    running.close()


@pytest.fixture
def site(_site: Site) -> Site:
    """The module's server with an empty script; chats of earlier tests are still there."""
    _site.reset()
    return _site


@pytest.fixture
def new_site(tmp_path: Path) -> Iterator[Site]:
    """A server with an empty data folder."""
    running = Site(tmp_path / "home")
    yield running
    running.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    servers: list[Server] = []

    def begin(module: str = "coterie") -> Server:
        servers.append(Server(tmp_path / "home", module))
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state of all open pages to the report of a failed test."""
    report = yield
    browser = getattr(item, "funcargs", {}).get("browser")
    if report.when == "call" and report.failed and isinstance(browser, Browser):
        for page in [page for context in browser.contexts for page in context.pages]:
            with suppress(Error):
                report.sections.append(("Page", describe_page(page)))
    return report


# Not for the session: while Playwright runs, no event loop of another test can run in its thread.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        yield started
        started.close()


class Watched:
    """A browser context that records script errors, console errors and dialogs."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.errors: list[str] = []
        context.on("page", self._watch)

    def _watch(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.errors.append(f"error: {error}"))
        page.on("console", self._on_console)
        page.on("dialog", self._on_dialog)

    def _on_dialog(self, dialog: Dialog) -> None:
        self.errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_console(self, message: ConsoleMessage) -> None:
        # The page shows a failed request itself; the message of the browser is expected.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.errors.append(f"{message.type}: {message.text}")


@pytest.fixture
def watched(browser: Browser, site: Site) -> Iterator[Watched]:
    """Fails the test on any error of a page (script error, violation of the Content-Security-Policy)."""
    context = browser.new_context(base_url=site.address, viewport={"width": 1280, "height": 800}, accept_downloads=True)
    context.set_default_timeout(TIMEOUT_MS)
    recorder = Watched(context)
    yield recorder
    context.close()
    assert recorder.errors == []


@pytest.fixture
def page(watched: Watched) -> Page:
    return watched.context.new_page()
