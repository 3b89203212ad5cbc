"""Servers of tools (MCP), really: one by its standard streams, one by HTTP. D19, D20"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr, ValidationError

from coterie.llm.messages import ToolCall
from coterie.modes.desk.agents.tools import McpServers, Toolbox
from coterie.modes.desk.settings import McpServerSettings
from tests.modes.desk.conftest import Script, Stage, calls

pytest.importorskip("mcp", reason="needs coterie[mcp]")
HERE = (sys.executable, "-m", "tests.modes.desk.mcp_server")
LOOKS = ("add", "surroundings", "fail")


@asynccontextmanager
async def running(servers: McpServers) -> AsyncIterator[McpServers]:
    stop = asyncio.Event()
    keeping = asyncio.create_task(servers.run(stop))
    async with asyncio.timeout(60):
        while not all(state.connected for state in servers.states.values()):
            await asyncio.sleep(0.02)
    yield servers
    stop.set()
    await keeping


async def test_d20_tools_of_a_program_are_described_used_marked_and_asked_about(
    stage: Stage, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOT_GRANTED", "ours")
    settings = McpServerSettings(command=HERE, env={"GRANTED": SecretStr("theirs")}, without_asking=LOOKS)
    changes: list[int] = []
    async with running(McpServers({"tiny": settings}, lambda: changes.append(1))) as servers:
        box = Toolbox(servers.tools)
        add = next(schema for schema in box.schemas if schema.name == "tiny_add")
        assert add.description == "Add two numbers." and set(add.parameters["properties"]) == {"a", "b"}
        told = await box.use(ToolCall(id="1", name="tiny_add", arguments='{"a": 2, "b": 40}'))
        assert "The sum is 42." in told and "〔data" in told
        around = await box.use(ToolCall(id="2", name="tiny_surroundings", arguments="{}"))
        assert "granted=theirs other=\n" in around
        assert "Error" in await box.use(ToolCall(id="3", name="tiny_fail", arguments="{}"))
        unfit = await box.use(ToolCall(id="4", name="tiny_add", arguments='{"a": "two"}'))
        assert "Error" in unfit
        letter = ToolCall(id="5", name="tiny_post_letter", arguments='{"to": "Bo"}')
        assert box.needs_confirmation(letter) and not box.needs_confirmation(
            ToolCall(id="6", name="tiny_add", arguments="{}")
        )
        assert "needs a confirmation" in await box.use(letter)
        assert "Sent to Bo." in await box.use(letter, confirmed=True)
        leak = ToolCall(id="7", name="tiny_add", arguments='{"a": "ghp_0123456789abcdefghijABCDEFGHIJ012345"}')
        assert "held back" in await box.use(leak)
        assert changes

        stage.desk.add_tools(servers.tools)
        room = await stage.begin()
        script.lines["channel"] = [calls(("spawn_worker", {"task": "add"}), ("reply", {"text": "Yes."}))]
        script.lines["worker"] = [calls(("tiny_add", {"a": 1, "b": 2})), "Three."]
        await stage.say(room, "Add")
        assert "The sum is 3." in script.prompts("worker")[-1]
    assert servers.tools == [] and not servers.states["tiny"].connected


async def test_tools_by_http_and_a_server_that_is_away_says_why(stage: Stage) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    away = McpServers({"away": McpServerSettings(url=f"http://127.0.0.1:{port}/mcp")}, lambda: None)
    stop = asyncio.Event()
    keeping = asyncio.create_task(away.run(stop))
    async with asyncio.timeout(60):
        while "not tried" in away.states["away"].why:
            await asyncio.sleep(0.02)
    assert away.states["away"].why and away.tools == []

    process = await asyncio.create_subprocess_exec(*HERE, str(port))
    try:
        async with asyncio.timeout(90):
            while not away.states["away"].connected:  # it is tried again by itself
                await asyncio.sleep(0.05)
        told = await Toolbox(away.tools).use(
            ToolCall(id="1", name="away_add", arguments='{"a": 2, "b": 3}'), confirmed=True
        )
        assert "The sum is 5." in told
    finally:
        stop.set()
        await keeping
        process.terminate()
        await process.wait()


def test_a_server_is_in_one_place() -> None:
    for fields in ({}, {"command": ["x"], "url": "http://127.0.0.1/"}):
        with pytest.raises(ValidationError):
            McpServerSettings.model_validate(fields)
