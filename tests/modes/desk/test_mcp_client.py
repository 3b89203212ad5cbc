"""Real MCP servers: one over standard streams, one over HTTP."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr, ValidationError

from coterie.base.supervisor import Supervisor
from coterie.llm.messages import ToolCall
from coterie.modes.desk.agents.tools import McpServers, Toolbox
from coterie.modes.desk.settings import McpServerSettings
from tests.modes.desk.conftest import DeskHarness, Script, calls

pytest.importorskip("mcp", reason="needs coterie[mcp]")
COMMAND = (sys.executable, "-m", "tests.modes.desk.mcp_server")
READ_ONLY = ("add", "environment", "fail")


@asynccontextmanager
async def running(servers: McpServers) -> AsyncIterator[McpServers]:
    stop, supervisor = asyncio.Event(), Supervisor()
    tasks = servers.start(supervisor, stop)
    async with asyncio.timeout(60):
        while not all(state.connected for state in servers.states.values()):
            await asyncio.sleep(0.02)
    yield servers
    stop.set()
    await asyncio.gather(*(task.finish() for task in tasks))


async def test_d20_tools_of_a_program_work_and_need_confirmation(
    harness: DeskHarness, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOT_GRANTED", "ours")
    settings = McpServerSettings(command=COMMAND, env={"GRANTED": SecretStr("theirs")}, without_asking=READ_ONLY)
    async with running(McpServers({"tiny": settings})) as servers:
        box = Toolbox(servers.tools)
        add = next(schema for schema in box.schemas if schema.name == "tiny_add")
        assert add.description == "Add two numbers." and set(add.parameters["properties"]) == {"a", "b"}
        text = await box.use(ToolCall(id="1", name="tiny_add", arguments='{"a": 2, "b": 40}'))
        assert "The sum is 42." in text and "〔data" in text
        environment = await box.use(ToolCall(id="2", name="tiny_environment", arguments="{}"))
        assert "granted=theirs other=\n" in environment
        assert "Error" in await box.use(ToolCall(id="3", name="tiny_fail", arguments="{}"))
        assert "Error" in await box.use(ToolCall(id="4", name="tiny_add", arguments='{"a": "two"}'))
        letter = ToolCall(id="5", name="tiny_post_letter", arguments='{"to": "Bo"}')
        assert box.needs_confirmation(letter) and not box.needs_confirmation(
            ToolCall(id="6", name="tiny_add", arguments="{}")
        )
        assert "needs a confirmation" in await box.use(letter)
        assert "Sent to Bo." in await box.use(letter, confirmed=True)
        leak = ToolCall(id="7", name="tiny_add", arguments='{"a": "ghp_0123456789abcdefghijABCDEFGHIJ012345"}')
        assert "was not sent" in await box.use(leak)

        harness.desk.add_tools(servers.tools)
        room = await harness.begin()
        script.lines["channel"] = [calls(("spawn_worker", {"task": "add"}), ("reply", {"text": "Yes."}))]
        script.lines["worker"] = [calls(("tiny_add", {"a": 1, "b": 2})), "Three."]
        await harness.say(room, "Add")
        assert "The sum is 3." in script.prompts("worker")[-1]
    assert servers.tools == [] and not servers.states["tiny"].connected


async def test_tools_over_http_and_the_reason_of_a_missing_connection(harness: DeskHarness) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    servers = McpServers({"remote": McpServerSettings(url=f"http://127.0.0.1:{port}/mcp")})
    stop, supervisor = asyncio.Event(), Supervisor()
    tasks = servers.start(supervisor, stop)
    async with asyncio.timeout(60):
        while "Not connected yet" in servers.states["remote"].why:
            await asyncio.sleep(0.02)
    assert servers.states["remote"].why and servers.tools == []
    (problem,) = supervisor.problems()
    assert (problem.name, problem.status) == ("MCP server: remote", "degraded")
    assert "not connected" in problem.error and "[desk.tool_servers.remote]" in problem.fix

    process = await asyncio.create_subprocess_exec(*COMMAND, str(port))
    try:
        async with asyncio.timeout(90):
            while not servers.states["remote"].connected:
                await asyncio.sleep(0.05)
        text = await Toolbox(servers.tools).use(
            ToolCall(id="1", name="remote_add", arguments='{"a": 2, "b": 3}'), confirmed=True
        )
        assert "The sum is 5." in text
        assert supervisor.problems() == []
    finally:
        stop.set()
        await asyncio.gather(*(task.finish() for task in tasks))
        process.terminate()
        await process.wait()


def test_a_server_has_either_a_command_or_a_url() -> None:
    for fields in ({}, {"command": ["x"], "url": "http://127.0.0.1/"}):
        with pytest.raises(ValidationError):
            McpServerSettings.model_validate(fields)
