"""D1 with all hands at work, in real time: the channel answers while fifty workers are stuck."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coterie.base.clock import SystemClock
from coterie.messaging.ports import ReplyFinished
from coterie.modes.desk.agents.tools import AgentTool, make_tool
from coterie.modes.desk.service import DeskConversation
from tests.modes.desk.conftest import Line, Script, Stage, calls


@pytest.fixture
def gate() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def stuck() -> list[int]:
    return []


@pytest.fixture
def more_tools(gate: asyncio.Event, stuck: list[int]) -> list[AgentTool]:
    async def wait() -> str:
        """Wait for something that takes long."""
        stuck.append(1)
        await gate.wait()
        return "It came."

    return [make_tool(wait)]


@pytest.fixture
async def running(tmp_path: Path, script: Script, more_tools: list[AgentTool]) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path, SystemClock(), script, more_tools)  # type: ignore[arg-type]
    stop = asyncio.Event()
    lanes = [asyncio.create_task(lane.run(stop)) for lane in stage.desk.job_workers()]
    yield stage
    stop.set()
    await asyncio.gather(*lanes)
    stage.verify()
    await stage.models.close()
    stage.store.close()


async def test_d1_people_are_answered_while_fifty_workers_are_stuck(
    running: Stage, script: Script, gate: asyncio.Event, stuck: list[int]
) -> None:
    room = await running.begin()
    talk = DeskConversation(running.store, running.desk, running.roster)

    def brain(kind: str, request: object) -> Line:
        if kind == "worker":
            return "It came." if gate.is_set() else calls(("wait", {}))
        hire = [("spawn_worker", {"task": f"task {n}"}) for n in range(50)]
        return "Still here." if running.desk.queries.processes(room) else calls(*hire, ("reply", {"text": "Started."}))

    script.brain = brain

    async def ask(text: str) -> str:
        said = talk.send_message(room, text, person="ana", key=text)
        return "".join([speech.text async for speech in said if isinstance(speech, ReplyFinished)])

    async with asyncio.timeout(60):
        assert await ask("Start everything") == "Started."
        while len(stuck) < 50:
            await asyncio.sleep(0.02)
        for number in range(5):
            assert await ask(f"Are you there? {number}") == "Still here."
        assert running.states(room) == ["running"] * 50
        gate.set()
        while set(running.states(room)) != {"done"}:
            await asyncio.sleep(0.05)


async def test_what_is_under_way_when_coterie_stops_is_broken_off_and_taken_up_again(
    stage: Stage, script: Script, gate: asyncio.Event, stuck: list[int]
) -> None:
    room = await stage.begin()
    script.lines["channel"] = [calls(("spawn_worker", {"task": "wait"}), ("reply", {"text": "Yes."}))]
    script.lines["worker"] = [calls(("wait", {})), calls(("wait", {})), "It came."]
    await stage.say(room, "Go", settle=False)
    working = asyncio.create_task(stage.worker.drain())
    async with asyncio.timeout(60):
        while not stuck:
            await asyncio.sleep(0.01)
        stage.desk.processes.interrupt_all()
        await asyncio.wait({working})
    assert stage.states(room) == ["running"]
    gate.set()
    stage.restart()
    await stage.settle()
    assert stage.states(room) == ["done"] and len(stuck) == 2
