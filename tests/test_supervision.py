"""Every long-running task of the app comes back after an arbitrary failure, and the failure is visible."""

from __future__ import annotations

import ast
import asyncio
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import structlog
import uvicorn
import yaml
from pydantic import SecretStr

from coterie.app import App, open_store
from coterie.base.paths import Paths
from coterie.base.redaction import redact
from coterie.base.supervisor import STABLE_S
from coterie.characters.identity import Identity
from coterie.messaging import OutgoingNotification, RoomRef
from coterie.modes.crowd import ChatAuthor, ChatPost
from coterie.modes.crowd.settings import SHIPPED_CONFIGS
from coterie.modes.desk.settings import DeskSettings, McpServerSettings
from coterie.modes.draft import Update
from coterie.ops import running_server_check
from coterie.settings import Settings
from coterie.surfaces.discord import DiscordSettings
from coterie.surfaces.matrix import MatrixSettings
from coterie.surfaces.telegram import TelegramSettings
from coterie.surfaces.twitch import TwitchSettings
from coterie.surfaces.web.server import create_web
from coterie.surfaces.webhook import WebhookSettings
from tests.faulty_supervisor import SECRET, FaultySupervisor, until
from tests.modes.draft.conftest import ANN

pytest.importorskip("mcp", reason="needs coterie[mcp]")
ROOM = "kitchen-radio"
SOURCE = Path(__file__).resolve().parent.parent / "src" / "coterie"


STARTED_ELSEWHERE = {
    "modes/crowd/service.py": 1,  # the gateway of a room behind a broker: modes/crowd/test_cluster.py
    "messaging/message_router.py": 1,  # a command that is answered at once: messaging/test_batching.py
    "surfaces/matrix/service.py": 1,  # the updates of rooms, which need a homeserver: real/test_matrix.py
}
"""The tasks that have a test of their own, by file."""


def unseen_starts(seen: Collection[tuple[str, int]]) -> dict[str, int]:
    """The calls of a supervisor's `start` that did not happen, by file."""
    unseen: Counter[str] = Counter()
    for file in SOURCE.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and starts_supervised(call.func):
                lines = range(call.lineno, (call.end_lineno or call.lineno) + 1)
                if not any((str(file), line) in seen for line in lines):
                    unseen[file.relative_to(SOURCE).as_posix()] += 1
    return dict(unseen)


def starts_supervised(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "start"
        and getattr(function.value, "attr", getattr(function.value, "id", "")) in ("supervisor", "_supervisor")
    )


class Everything:
    """An app with every kind of background task, served on loopback. What it connects to is a closed port."""

    def __init__(self, home: Paths, closed_port: int) -> None:
        self.home = home
        self.closed = f"127.0.0.1:{closed_port}"
        self.supervisor = FaultySupervisor()
        command = (sys.executable, "-m", "tests.modes.desk.mcp_server")
        self.settings = Settings(
            matrix=MatrixSettings(homeserver=f"http://{self.closed}", user="@bot:x", password=SecretStr(SECRET)),
            desk=DeskSettings(tool_servers={"tiny": McpServerSettings(command=command)}),
            webhook=WebhookSettings(callbacks=(f"http://{self.closed}",)),
            telegram=TelegramSettings(api_url=f"http://{self.closed}", token=SecretStr("123456:telegram-token")),
            discord=DiscordSettings(api_url=f"http://{self.closed}", token=SecretStr("discord-token")),
            twitch=TwitchSettings(url=f"ws://{self.closed}"),
        )
        rooms = home.root / "configs" / "rooms"
        rooms.mkdir(parents=True)
        room = (SHIPPED_CONFIGS / "rooms" / f"{ROOM}.toml").read_text()
        (rooms / f"{ROOM}.toml").write_text(f'{room}\n[twitch]\nchannel = "streamer"\n')

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with open_store(self.home) as store:
            self.app = App(self.home, self.settings, store, supervisor=self.supervisor)
            self.socket = socket.create_server(("127.0.0.1", 0))
            self.port = self.socket.getsockname()[1]
            server = uvicorn.Server(uvicorn.Config(create_web(self.app), log_config=None, lifespan="off"))
            server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
            async with self.app.running():
                serving = asyncio.create_task(server._serve([self.socket]))
                try:
                    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=60) as self.client:
                        yield
                finally:
                    server.should_exit = True
                    await serving

    async def start_everything(self, folder: Path) -> None:
        """The tasks that exist only while something is used."""
        await self.app.characters.save(Identity(name="Helper", persona="Helps."))
        agent = {"backend": "remote", "base_url": f"ws://{self.closed}"}
        self.app.agents.file.write_text(yaml.safe_dump({"characters": {"Helper": agent}}))
        stream = folder / "stream.txt"
        stream.write_text("chat, which door?\n")
        await self.app.crowd.start(ROOM, str(stream), line_source="phrasebook")
        unreachable = OutgoingNotification(
            room=RoomRef(surface="webhook", id="desk"), text="done", thread=f"http://{self.closed}/cb"
        )
        await self.app.message_router.notify(unreachable, "token")
        self.workspace = await self.app.draft.workspaces.open(folder / "text")
        await self.app.draft.documents.create(self.workspace, "lamp.md", "lit\n", ANN)
        live = await self.app.draft.documents.live_document(self.workspace, "lamp.md")
        await self.app.draft.documents.add_updates(self.workspace, live, 0, [Update("ann", [[0, "Well "], 4])], ANN)

    async def health(self) -> dict[str, dict[str, object]]:
        """The parts with a problem, by name."""
        answer = (await self.client.get("/health")).json()
        return {part["name"]: part for part in answer.get("parts", ())}


@pytest.fixture
def everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Everything:
    monkeypatch.setattr("coterie.modes.draft.live_document.COMMIT_PAUSE_S", 3_600)
    monkeypatch.setattr("coterie.modes.draft.live_document.COMMIT_LATEST_S", 3_600)
    redact.register(SECRET)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return Everything(Paths.locate({"COTERIE_HOME": str(tmp_path / "home")}), port)


async def test_every_task_that_fails_comes_back_and_is_shown(everything: Everything, tmp_path: Path) -> None:
    supervisor = everything.supervisor
    with structlog.testing.capture_logs() as logs:
        async with everything.running():
            await everything.start_everything(tmp_path)
            typed = f"commit of typed text: lamp.md (main, {everything.workspace})"
            expected = {
                *("jobs", "notices", "snapshots", "crowd metrics", "crowd files", "stalled desk processes", "agents"),
                *("desk jobs: messages", "desk jobs: branches", "desk jobs: workers", "desk maintenance"),
                *("MCP server: tiny", "Matrix", "agent: Helper", f"crowd room: {ROOM}", f"crowd session: {ROOM}"),
                *("outgoing messages: webhook/desk", typed, "embedding of memories"),
                *("Telegram", "Discord", f"twitch: {ROOM}"),
            }
            # Each of these runs another one, which ends with it.
            parents = {"Matrix set-up", "Telegram set-up", "Discord set-up", "twitch"}
            await until(lambda: expected | parents <= supervisor.runs.keys())
            assert {state.name for state in supervisor.states()} == expected | parents

            for name in sorted(parents):
                supervisor.kill(name)
            await until(lambda: all(supervisor.runs[name] == 2 for name in parents))
            assert parents <= (await everything.health()).keys()
            await until(lambda: expected <= {state.name for state in supervisor.states()})
            supervisor.clock.advance(STABLE_S)
            supervisor.runs.clear()
            for name in sorted(expected):
                supervisor.kill(name)
            await until(lambda: all(supervisor.runs[name] == 1 for name in expected))
            parts = await everything.health()
            assert parts.keys() == expected
            assert {(part["status"], part["failures"]) for part in parts.values()} == {("retrying", 1)}
            assert all("ZeroDivisionError: arbitrary failure" in str(part["error"]) for part in parts.values())
            doctor = await asyncio.to_thread(
                lambda: list(running_server_check(everything.home, "127.0.0.1", everything.port)())
            )
            assert {result.what.rpartition(": ZeroDivisionError")[0] for result in doctor} == expected
            assert {result.state for result in doctor} == {"bad"}
            page = (await everything.client.get("/ops", headers={"Accept": "text/html"})).text
            metrics = everything.app.metrics().decode()
            for name in expected:
                assert f'<th scope="row">{name}</th>' in page
                assert f'coterie_task_failures_total{{task="{name}"}} 1.0' in metrics
            assert page.count("starting again") == len(expected)
            assert SECRET not in page + str(parts) + str(doctor)

            # All of them work again, or say themselves what they miss.
            room = await everything.app.crowd.room(ROOM)
            author = ChatAuthor(name="ana", kind="human")
            message = await room.gateway.post(ChatPost(id="p1", room=ROOM, author=author, text="hello there"))
            await until(lambda: room.fanout.last_sent >= message.number)
            await until(lambda: everything.app.desk.mcp_servers.states["tiny"].connected)
            await until(lambda: room.state == "live")
            supervisor.clock.advance(STABLE_S)
            await until(lambda: len(supervisor.problems()) == 5)
            parts = await everything.health()
            assert {name: part["status"] for name, part in parts.items()} == {
                **dict.fromkeys(("Matrix", "Telegram", "Discord", f"twitch: {ROOM}", "agent: Helper"), "degraded"),
            }
            assert "does not answer" in str(parts["Matrix"]["error"])
            assert "cannot be reached" in str(parts["agent: Helper"]["error"])
    assert unseen_starts(supervisor.places) == STARTED_ELSEWHERE
    failed = [line["task"] for line in logs if line["event"] == "background task failed"]
    assert Counter(failed) == Counter(expected | parents)
    assert not [line for line in logs if SECRET in str(line.get("error"))]
    committed = everything.app.draft.workspaces.repository(everything.workspace).read("lamp.md", "main")
    assert committed.text == "Well lit\n"


async def test_a_server_that_does_not_answer_is_reported_by_doctor(everything: Everything) -> None:
    check = running_server_check(everything.home, "127.0.0.1", int(everything.closed.rpartition(":")[2]))
    assert list(check()) == []  # none runs
    with open_store(everything.home):
        (result,) = check()
    assert (result.about, result.state) == ("Background tasks", "note")
    assert "does not answer" in result.what
