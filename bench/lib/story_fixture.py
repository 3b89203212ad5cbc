"""A story with a scripted model that answers at once, for benches."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from coterie.base.clock import Clock, SystemClock
from coterie.characters.identity import Identity
from coterie.characters.lorebooks import LorebooksProjection
from coterie.characters.people import PeopleProjection
from coterie.characters.personas import PersonasProjection
from coterie.characters.service import Character, Characters, CharactersProjection, OwnerProfile
from coterie.conversation.turns import TurnsProjection
from coterie.eventstore import Projection, Store
from coterie.eventstore.worker import Worker
from coterie.llm.messages import CompletionRequest, Provider
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

Answer = Callable[[CompletionRequest], RecordedCall]


def bench_projections() -> list[Projection]:
    return [
        CharactersProjection(),
        PeopleProjection(),
        LorebooksProjection(),
        PersonasProjection(),
        TurnsProjection(),
        MemoryProjection(),
        UsageProjection(),
        *story_projections(),
    ]


class StoryFixture:
    """A story service with its dependencies on one database file."""

    def __init__(
        self,
        path: Path,
        provider: Provider,
        *,
        clock: Clock | None = None,
        lease_s: float = 60.0,
        projections: Sequence[Projection] = (),
    ) -> None:
        self.clock = clock or SystemClock()
        self.store = Store.open(path, projections=projections or bench_projections(), clock=self.clock)
        roles = {"narrative": ("embedded/script",), "classifier": ("embedded/script",)}
        settings = ModelsSettings(roles=roles)
        self.models = Models(settings, clock=self.clock, store=self.store, providers={"embedded": provider})
        self.characters = Characters(self.store)
        self.memory = Memory(self.store, clock=self.clock)
        self.story = StoryService(self.store, self.characters, self.memory, self.models, StorySettings(), self.clock)
        self.worker = Worker(
            self.store.jobs,
            self.story.handlers(),
            clock=self.clock,
            bus=self.store.bus,
            lease_s=lease_s,
            max_wait_s=0.05,
            serialize_by=serialize_by_chat,
        )

    async def create_character(self) -> Character:
        await self.characters.save_owner(OwnerProfile(name="Ana", pronouns="she/her", persona="A cartographer."))
        identity = Identity(
            name="Mara",
            persona="Mara keeps a lighthouse on a bare island and writes down every ship that passes.",
            traits=["patient", "dry"],
            voice_samples=["Ships come and go. The lamp stays."],
            initial_relationship="Ana came with the supply boat a week ago.",
        )
        return await self.characters.save(identity)

    async def open_chat(self, character: Character) -> str:
        opening = Opening(title="Evening", place=OpeningPlace(name="the lighthouse"), weather="a gale from the west")
        return (await self.story.begin(character.id, opening)).room

    async def close(self) -> None:
        await self.story.replies.close()
        await self.models.close()
        self.store.close()


def scripted_model(say: str = "The lamp is old, and so am I. Sit down.") -> ReplayProvider:
    """A model that always gives the same reply, and empty objects to classifiers."""

    def answer(request: CompletionRequest) -> RecordedCall:
        return RecordedCall(say=json.dumps({}) if request.prompt.output_schema is not None else say)

    return ReplayProvider("embedded", default=answer)
