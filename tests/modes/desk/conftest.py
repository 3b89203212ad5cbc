"""A desk with a scripted model: answers per kind of agent, and a record of its prompts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coterie.base.clock import ManualClock
from coterie.characters.identity import Identity
from coterie.characters.people import PeopleProjection
from coterie.characters.service import Characters, CharactersProjection
from coterie.characters.workspace import Workspaces
from coterie.conversation.turns import TurnQueries, TurnsProjection
from coterie.eventstore import Store
from coterie.eventstore.sqlite.replay import replayed_hash
from coterie.eventstore.worker import Worker
from coterie.llm.messages import CompletionRequest, Finished, TextDelta, Tokens, ToolCall, ToolCallRequested
from coterie.llm.recording import RecordedCall, ReplayProvider
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.llm.usage import UsageProjection
from coterie.memory import Memory
from coterie.memory.projection import MemoryProjection
from coterie.messaging import message_router
from coterie.messaging.protocol import OutgoingMessage
from coterie.modes.desk import projections as desk_mode
from coterie.modes.desk.agents.tools import AgentTool
from coterie.modes.desk.service import DeskService, serialization_key
from coterie.modes.desk.settings import DeskSettings

Line = RecordedCall | str


def calls(*tools: tuple[str, Mapping[str, object]], text: str = "") -> RecordedCall:
    """An answer of the model with tool calls."""
    chunks = [(0, TextDelta(text=text))] if text else []
    requests = [
        (0, ToolCallRequested(call=ToolCall(id=f"c{n}", name=name, arguments=json.dumps(dict(arguments)))))
        for n, (name, arguments) in enumerate(tools)
    ]
    end = Finished(reason="tool", tokens=Tokens(input=1, output=1), model="script")
    return RecordedCall(chunks=(*chunks, *requests, (0, end)))


@dataclass
class Script:
    lines: dict[str, list[Line]] = field(default_factory=dict)
    requests: list[tuple[str, CompletionRequest]] = field(default_factory=list)
    summary: RecordedCall | Mapping[str, object] = field(default_factory=lambda: {"summary": "They talked."})
    respond: Callable[[str, CompletionRequest], Line] | None = None
    """Computes answers from requests, in place of `lines`."""

    def answer(self, request: CompletionRequest) -> RecordedCall:
        kind = request.model
        self.requests.append((kind, request))
        if request.prompt.output_schema is not None:
            return (
                self.summary if isinstance(self.summary, RecordedCall) else RecordedCall(say=json.dumps(self.summary))
            )
        if self.respond is not None:
            line = self.respond(kind, request)
            return RecordedCall(say=line) if isinstance(line, str) else line
        waiting = self.lines.get(kind, [])
        line = waiting.pop(0) if waiting else "All right."
        return RecordedCall(say=line) if isinstance(line, str) else line

    def prompts(self, kind: str) -> list[str]:
        return ["\n".join(m.text for m in r.prompt.messages) for k, r in self.requests if k == kind]


class DeskHarness:
    def __init__(self, folder: Path, clock: ManualClock, script: Script, tools: list[AgentTool]) -> None:
        self.folder, self.clock, self.script, self.tools = folder, clock, script, tools
        self.character = ""
        self.notifications: dict[str, OutgoingMessage] = {}
        self.open()

    def open(self) -> None:
        projections = [
            CharactersProjection(),
            PeopleProjection(),
            TurnsProjection(),
            *message_router.messaging_projections(),
            MemoryProjection(),
            UsageProjection(),
            *desk_mode.desk_projections(),
        ]
        self.store = Store.open(self.folder / "coterie.db", projections=projections, clock=self.clock)
        kinds = ("channel", "branch", "worker", "compactor", "cortex")
        settings = ModelsSettings(roles={kind: (f"embedded/{kind}",) for kind in kinds})
        provider = ReplayProvider("embedded", default=self.script.answer)
        self.models = Models(settings, clock=self.clock, store=self.store, providers={"embedded": provider})
        self.characters = Characters(self.store)
        self.memory = Memory(self.store, clock=self.clock)
        self.workspaces = Workspaces(self.folder / "workspaces")
        self.desk = DeskService(
            self.store,
            self.characters,
            self.memory,
            self.models,
            self.workspaces,
            DeskSettings(),
            self.clock,
            self.tools,
            self.notify,
        )
        self.questions = self.desk.character_questions
        self.worker = Worker(
            self.store.jobs,
            self.desk.handlers(),
            clock=self.clock,
            bus=self.store.bus,
            serialize_by=serialization_key,
        )

    async def notify(self, outgoing: OutgoingMessage, token: str) -> None:
        self.notifications[token] = outgoing

    async def begin(self) -> str:
        character = await self.characters.save(Identity(name="Mara", persona="Mara gets things done."))
        self.character = character.id
        return await self.desk.open(character.id, "ana", "Work")

    async def say(self, room: str, text: str, *, settle: bool = True) -> str:
        turn = await self.desk.send_message(room, text, person="ana")
        if settle:
            await self.settle()
        return turn

    async def settle(self) -> None:
        """Run all jobs that are due, and those that follow within a second."""
        while await self.worker.drain():
            self.clock.advance(0.6)

    def restart(self) -> None:
        """Reopen the store as after a crash, when leases have expired."""
        self.store.close()
        self.clock.advance(61)
        self.open()

    def replies(self, room: str) -> list[str]:
        return [turn.text for turn in TurnQueries(self.store).latest(room, 1_000) if not turn.by_person]

    def states(self, room: str) -> list[str]:
        return [process.state for process in self.desk.queries.processes(room)]

    def verify(self) -> None:
        with self.store.reader.connections.read_transaction() as rows:
            assert self.store.hashes() == {
                projection.name: replayed_hash(projection, rows) for projection in self.store.projections
            }


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def extra_tools() -> list[AgentTool]:
    return []


@pytest.fixture
async def harness(
    tmp_path: Path, clock: ManualClock, script: Script, extra_tools: list[AgentTool]
) -> AsyncIterator[DeskHarness]:
    harness = DeskHarness(tmp_path, clock, script, extra_tools)
    yield harness
    harness.verify()
    await harness.models.close()
    harness.store.close()
