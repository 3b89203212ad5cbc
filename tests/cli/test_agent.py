"""`coterie agent`: listing the registry, checking an agent, and serving a command as an agent."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from coterie.base.paths import Paths
from tests.cli.conftest import Call
from tests.modes.remote.conftest import TOKEN, RemoteHarness
from tests.modes.remote.conftest import harness as harness

REGISTRY = """
people: {{owner: Helper}}
characters:
  Helper: {{backend: remote, base_url: "{url}", token: "env:HELPER_TOKEN"}}
  Pebble: {{backend: stand-in}}
"""


def test_p12_the_registry_is_listed_without_its_secrets(
    home: Paths, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no " in call("agent", "list").out
    (home.root / "agents.yaml").write_text(REGISTRY.format(url="ws://127.0.0.1:9"))
    missing = call("agent", "list")
    assert missing.code == 2 and "HELPER_TOKEN, which is not set" in missing.err
    monkeypatch.setenv("HELPER_TOKEN", TOKEN)
    listed = call("agent", "list")
    assert listed.code == 0 and "Helper: remote at ws://127.0.0.1:9" in listed.out and "Pebble: stand-in" in listed.out
    assert "owner talks with Helper" in listed.out and TOKEN not in listed.out + listed.err
    refused = call("agent", "check", "Helper")
    assert refused.code == 34 and "cannot be reached" in refused.err and "agents.yaml" in refused.err
    assert "No remote agent plays Nobody" in call("agent", "check", "Nobody").err
    public = call("agent", "serve", "--host", "0.0.0.0")
    assert public.code == 2 and "COTERIE_AGENT_TOKEN" in public.err


async def test_p12_a_command_is_an_agent(harness: RemoteHarness, tmp_path: Path) -> None:
    program = tmp_path / "louder.py"
    program.write_text("import sys\nprint(sys.stdin.read().upper() + '!', end='')\nsys.exit('FAIL' in sys.argv)\n")
    command = [sys.executable, "-m", "coterie", "agent", "serve", "--port", "0", "--", sys.executable, str(program)]
    environ = {**os.environ, "COTERIE_AGENT_TOKEN": TOKEN}
    agent = await asyncio.create_subprocess_exec(*command, env=environ, stdout=asyncio.subprocess.PIPE)
    try:
        assert agent.stdout is not None
        url = (await agent.stdout.readline()).decode().split()[2].rstrip(";")
        harness.settings = harness.settings.model_copy(update={"silence_timeout_s": 60.0})
        await harness.crash()
        harness.remote(url)
        assert await harness.ask("Hello there") == ["HELLO THERE!"]
    finally:
        agent.terminate()
        await agent.wait()


def test_p12_the_doctor_checks_the_registry(home: Paths, call: Call) -> None:
    (home.root / "agents.yaml").write_text("characters: [")
    result = call("doctor")
    assert "The registry of agents cannot be read" in result.out + result.err
