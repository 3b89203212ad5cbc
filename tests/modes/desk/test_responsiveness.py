"""D1 in real time: the channel answers while fifty workers are blocked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coterie.base.clock import SystemClock
from coterie.messaging.ports import ReplyFinished
from coterie.modes.desk.agents.tools import AgentTool, make_tool
from coterie.modes.desk.service import DeskConversation
from tests.modes.desk.conftest import DeskHarness, Line, Script, calls


@pytest.fixture
def gate() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def blocked() -> list[int]:
    return []


@pytest.fixture
def extra_tools(gate: asyncio.Event, blocked: list[int]) -> list[AgentTool]:
    async def wait() -> str:
        """Wait for something that takes long."""
        blocked.append(1)
        await gate.wait()
        return "It came."

    return [make_tool(wait)]


@pytest.fixture
async def running(tmp_path: Path, script: Script, extra_tools: list[AgentTool]) -> AsyncIterator[DeskHarness]:
    harness = DeskHarness(tmp_path, SystemClock(), script, extra_tools)  # type: ignore[arg-type]
    stop = asyncio.Event()
    workers = [asyncio.create_task(worker.run(stop)) for worker in harness.desk.job_workers().values()]
    yield harness
    stop.set()
    await asyncio.gather(*workers)
    harness.verify()
    await harness.models.close()
    harness.store.close()


async def test_d1_messages_are_answered_while_fifty_workers_are_blocked(
    running: DeskHarness, script: Script, gate: asyncio.Event, blocked: list[int]
) -> None:
    room = await running.begin()
    conversation = DeskConversation(running.store, running.desk, running.characters)

    def respond(kind: str, request: object) -> Line:
        if kind == "worker":
            return "It came." if gate.is_set() else calls(("wait", {}))
        start = [("spawn_worker", {"task": f"task {n}"}) for n in range(50)]
        return "Still here." if running.desk.queries.processes(room) else calls(*start, ("reply", {"text": "Started."}))

    script.respond = respond

    async def ask(text: str) -> str:
        updates = conversation.send_message(room, text, person="ana", key=text)
        return "".join([update.text async for update in updates if isinstance(update, ReplyFinished)])

    async with asyncio.timeout(60):
        assert await ask("Start everything") == "Started."
        while len(blocked) < 50:
            await asyncio.sleep(0.02)
        for number in range(5):
            assert await ask(f"Are you there? {number}") == "Still here."
        assert running.states(room) == ["running"] * 50
        gate.set()
        while set(running.states(room)) != {"done"}:
            await asyncio.sleep(0.05)


async def test_running_work_is_interrupted_at_shutdown_and_resumed(
    harness: DeskHarness, script: Script, gate: asyncio.Event, blocked: list[int]
) -> None:
    room = await harness.begin()
    script.lines["channel"] = [calls(("spawn_worker", {"task": "wait"}), ("reply", {"text": "Yes."}))]
    script.lines["worker"] = [calls(("wait", {})), calls(("wait", {})), "It came."]
    await harness.say(room, "Go", settle=False)
    working = asyncio.create_task(harness.worker.drain())
    async with asyncio.timeout(60):
        while not blocked:
            await asyncio.sleep(0.01)
        harness.desk.processes.interrupt_all()
        await asyncio.wait({working})
    assert harness.states(room) == ["running"]
    gate.set()
    harness.restart()
    await harness.settle()
    assert harness.states(room) == ["done"] and len(blocked) == 2
