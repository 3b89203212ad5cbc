"""Whatever a tool is called with, and whatever it raises, becomes a result for the model, and the turn goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from coterie.base.clock import ManualClock
from coterie.llm.messages import CompletionRequest, ToolCall
from coterie.llm.recording import RecordedCall
from coterie.modes.desk.agents.tools import AgentTool, Toolbox, make_tool
from coterie.modes.desk.agents.workers import worker_tools
from coterie.modes.desk.sandbox.files import Workspace, WorkspaceFiles
from coterie.modes.desk.sandbox.sandbox import Sandbox
from coterie.modes.desk.settings import DeskSettings
from tests.modes.desk.conftest import DeskHarness, Script, calls

EXCEPTIONS = (OverflowError, ValueError, KeyError, RecursionError, OSError, UnicodeDecodeError, TimeoutError, TypeError)
NUMBERS = st.sampled_from([0, -1, 10**30, -(10**30), 2**63, 1e17, 1e308, 0.5, 20]) | st.integers() | st.floats()
TEXTS = st.text(max_size=20) | st.sampled_from(
    [
        "",
        "\0",
        "../..",
        "x" * 5_000,
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+05:00",
        "* * * * *",
        "UTC",
        "Europe",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


def values_of(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema names, without its limits."""
    if options := schema.get("anyOf"):
        return st.one_of([values_of(option) for option in options])
    if choices := schema.get("enum"):
        return st.sampled_from(choices)
    return {
        "string": TEXTS,
        "number": NUMBERS,
        "integer": NUMBERS,
        "boolean": st.booleans(),
        "array": st.lists(TEXTS, max_size=3),
        "null": st.none(),
    }.get(schema.get("type", ""), JSON)


@st.composite
def arguments_of(draw: st.DrawFn, schema: dict[str, Any]) -> str:
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    chosen = {
        name: draw(values_of(one) if draw(st.integers(0, 9)) else JSON)
        for name, one in properties.items()
        if name in required or draw(st.booleans())
    }
    return json.dumps(chosen if draw(st.integers(0, 9)) else draw(JSON))


def error_of(kind: type[Exception]) -> Exception:
    return UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad") if kind is UnicodeDecodeError else kind("boom")


@pytest.mark.parametrize("kind", EXCEPTIONS)
async def test_any_exception_of_a_tool_becomes_its_result(kind: type[Exception]) -> None:
    async def burst(text: str = "") -> str:
        raise error_of(kind)

    result = await Toolbox([make_tool(burst)]).use(ToolCall(id="1", name="burst", arguments="{}"))
    assert result.startswith("Error: burst failed unexpectedly")


async def test_a_schedule_beyond_all_time_is_refused_and_the_turn_goes_on(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    script.lines["channel"] = [calls(("schedule", {"prompt": "Remind me", "every_minutes": 1e17})), "That is too long."]
    await harness.say(room, "Remind me in a hundred quadrillion minutes")
    assert harness.replies(room) == ["That is too long."]
    assert "every_minutes" in script.prompts("channel")[-1]
    assert harness.desk.schedules.queries.all(room) == []


async def test_a_file_is_read_at_any_offset(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("Walnuts.")
    box = Toolbox(worker_tools(Sandbox(DeskSettings()), WorkspaceFiles(Workspace(tmp_path))))

    async def read(offset: int) -> str:
        arguments = json.dumps({"action": "read", "path": "notes.md", "offset": offset})
        return await box.use(ToolCall(id="1", name="file", arguments=arguments))

    assert "Walnuts." in await read(0)
    assert "Error: Invalid arguments" in await read(10**30)
    assert "Error" not in await read(2**63 - 1)


class _Answers:
    """A model that calls all of its tools once, with drawn arguments, and then answers."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self._called: set[str] = set()

    def __call__(self, kind: str, request: CompletionRequest) -> RecordedCall | str:
        first = kind not in self._called
        self._called.add(kind)
        if not first or kind not in ("channel", "branch", "worker"):
            return "Done."
        drawn: list[tuple[str, Any]] = []
        for tool in request.prompt.tools:
            if tool.name in ("reply", "skip", "finish"):  # these end the turn
                continue
            drawn.append((tool.name, self._data.draw(arguments_of(tool.parameters), label=tool.name)))
        valid = [("branch", '{"thought": "walnuts"}'), ("spawn_worker", '{"task": "crack them"}')]
        return _raw_calls([*drawn, *(valid if kind == "channel" else [])])


def _raw_calls(drawn: list[tuple[str, str]]) -> RecordedCall:
    made = calls(*((name, {}) for name, _ in drawn))
    chunks = []
    texts = [arguments for _, arguments in drawn]
    for at, chunk in made.all_chunks():
        call = getattr(chunk, "call", None)
        if call is not None:
            chunk = chunk.model_copy(update={"call": call.model_copy(update={"arguments": texts.pop(0)})})
        chunks.append((at, chunk))
    return RecordedCall(chunks=tuple(chunks))


@settings(max_examples=15, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.data(), st.sampled_from(EXCEPTIONS))
async def test_every_tool_of_every_agent_accepts_arbitrary_arguments_and_the_turn_goes_on(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    data: st.DataObject,
    kind: type[Exception],
) -> None:
    async def run(*_: object, **__: object) -> None:
        raise error_of(kind)

    async def fetch(**_: object) -> str:
        raise error_of(kind)

    monkeypatch.setattr(Sandbox, "run", run)
    mcp_tool = make_tool(fetch, name="far_fetch") if data.draw(st.booleans()) else None
    tools: list[AgentTool] = [mcp_tool] if mcp_tool is not None else []
    harness = DeskHarness(tmp_path_factory.mktemp("desk"), ManualClock(), Script(respond=_Answers(data)), tools)
    room = await harness.begin()
    await harness.say(room, "Try everything")
    assert harness.replies(room)[0] == "Done."
    states = {process.kind: process.state for process in harness.desk.queries.processes(room)}
    assert set(states.values()) <= {"done", "waiting", "cancelled"}
    assert "dead" not in harness.store.reader.jobs.count_by_state()
    harness.verify()
    await harness.models.close()
    harness.store.close()
