"""A story service on a scripted model, whose replies a test sets and whose requests it can read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coterie.base.clock import ManualClock
from coterie.characters.identity import Identity
from coterie.characters.lorebooks import Lorebooks, LorebooksProjection
from coterie.characters.people import PeopleProjection
from coterie.characters.personas import Personas, PersonasProjection, PictureFiles
from coterie.characters.service import Character, Characters, CharactersProjection, OwnerProfile
from coterie.conversation.turns import TurnsProjection
from coterie.eventstore import Store
from coterie.eventstore.sqlite.replay import replayed_hash
from coterie.eventstore.worker import Worker
from coterie.llm.messages import CompletionRequest
from coterie.llm.recording import RecordedCall, ReplayProvider
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.llm.usage import UsageProjection
from coterie.memory import Memory
from coterie.memory.projection import MemoryProjection
from coterie.modes.story.analysis.turn_analysis import serialize_by_chat
from coterie.modes.story.opening import Opening, OpeningPlace
from coterie.modes.story.projections import story_projections
from coterie.modes.story.service import StoryService
from coterie.modes.story.settings import StorySettings
from coterie.modes.story.turns import StartedTurn


@dataclass
class ScriptedModel:
    """Gives the replies in order; a classifier call gets the JSON of its schema's name."""

    replies: list[str] = field(default_factory=list)
    shapes: dict[str, object] = field(default_factory=dict)
    asked: list[CompletionRequest] = field(default_factory=list)
    classified: list[CompletionRequest] = field(default_factory=list)
    faults: list[RecordedCall] = field(default_factory=list)
    """Failing calls, used before any replies."""

    def answer(self, request: CompletionRequest) -> RecordedCall:
        if request.prompt.output_schema is not None:
            self.classified.append(request)
            wanted = self.shapes.get(request.prompt.output_schema.name, {})
            return wanted if isinstance(wanted, RecordedCall) else RecordedCall(say=json.dumps(wanted))
        self.asked.append(request)
        if self.faults:
            return self.faults.pop(0)
        return RecordedCall(say=self.replies.pop(0) if self.replies else f"Reply number {len(self.asked)}.")

    def questions(self, shape: str) -> list[str]:
        """The prompts of classifier calls with a schema."""
        return ["\n".join(m.text for m in r.prompt.messages) for r in self.classified if _shape(r) == shape]

    def prompt(self, number: int = -1) -> str:
        """The whole prompt of a reply."""
        return "\n".join(message.text for message in self.asked[number].prompt.messages)


def _shape(request: CompletionRequest) -> str:
    return request.prompt.output_schema.name if request.prompt.output_schema else ""


class StoryHarness:
    def __init__(
        self, path: Path, clock: ManualClock, script: ScriptedModel, settings: StorySettings | None = None
    ) -> None:
        self.path = path
        self.clock = clock
        self.script = script
        self.settings = settings or StorySettings()
        self.open()

    def open(self) -> None:
        all_projections = [
            CharactersProjection(),
            PeopleProjection(),
            LorebooksProjection(),
            PersonasProjection(),
            TurnsProjection(),
            MemoryProjection(),
            UsageProjection(),
            *story_projections(),
        ]
        self.store = Store.open(self.path, projections=all_projections, clock=self.clock)
        roles = dict.fromkeys(("narrative", "classifier", "compactor"), ("embedded/script",))
        models = ModelsSettings(roles=roles)
        player = ReplayProvider("embedded", default=self.script.answer)
        self.models = Models(models, clock=self.clock, store=self.store, providers={"embedded": player})
        self.characters = Characters(self.store)
        self.personas = Personas(self.store)
        self.lorebooks = Lorebooks(self.store, self.characters)
        self.memory = Memory(self.store, clock=self.clock)
        self.pictures = PictureFiles(self.path.parent / "pictures")
        self.story = StoryService(
            self.store,
            self.characters,
            self.memory,
            self.models,
            self.settings,
            self.clock,
            pictures=self.pictures,
        )
        self.worker = Worker(
            self.store.jobs, self.story.handlers(), clock=self.clock, bus=self.store.bus, serialize_by=serialize_by_chat
        )

    async def create_character(self, name: str = "Mara", **fields: object) -> Character:
        identity = Identity.model_validate({"name": name, "persona": f"{name} keeps a lighthouse.", **fields})
        return await self.characters.save(identity)

    async def start_chat(self, host: Character, **fields: object) -> str:
        opening = Opening.model_validate({"title": "Evening", "place": OpeningPlace(name="the lighthouse"), **fields})
        return (await self.story.begin(host.id, opening)).room

    async def say(self, room: str, text: str, **options: object) -> StartedTurn:
        """A whole turn: the message, the reply, and all jobs."""
        begun = await self.story.send_message(room, text, **options)  # type: ignore[arg-type]
        await self.story.replies.wait(room)
        await self.run_jobs()
        return begun

    async def regenerate(self, room: str, **options: object) -> StartedTurn:
        begun = await self.story.regenerate(room, **options)  # type: ignore[arg-type]
        await self.story.replies.wait(room)
        await self.run_jobs()
        return begun

    def memories_of(self, owner: str, room: str | None = None) -> list[str]:
        return sorted(memory.text for memory in self.memory.browse(owner=owner, room=room))

    async def run_jobs(self) -> None:
        while await self.worker.drain():
            pass

    def texts(self, room: str) -> list[str]:
        return [turn.text for turn in self.story.timeline.latest(room, 1_000)]

    def verify(self) -> None:
        """Live projections equal a replay of the log."""
        with self.store.reader.connections.read_transaction() as rows:
            assert self.store.hashes() == {one.name: replayed_hash(one, rows) for one in self.store.projections}

    async def close(self) -> None:
        await self.story.replies.close()
        await self.models.close()
        self.store.close()


@pytest.fixture
def script() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
async def harness(tmp_path: Path, clock: ManualClock, script: ScriptedModel) -> AsyncIterator[StoryHarness]:
    harness = StoryHarness(tmp_path / "coterie.db", clock, script)
    await harness.characters.save_owner(OwnerProfile(name="Ana", pronouns="she/her", persona="A cartographer."))
    yield harness
    harness.verify()
    await harness.close()


@pytest.fixture
def restart(harness: StoryHarness) -> Callable[[], None]:
    def again() -> None:
        harness.store.close()
        harness.open()

    return again
