"""A story on a scripted model, as benches play it: nothing is slow but the engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from coterie.base.clock import Clock, SystemClock
from coterie.cast.identity import Identity
from coterie.cast.people import People
from coterie.cast.roster import Bot, Cast, Roster, You
from coterie.engine.turns import Turns
from coterie.kernel import Store, View
from coterie.kernel.worker import Worker
from coterie.llm.messages import Request
from coterie.llm.player import Player
from coterie.llm.provider import Provider
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.llm.tape import Entry
from coterie.llm.usage import Usage
from coterie.memory import Memory
from coterie.memory.view import Memories
from coterie.modes.story.kickoff import Opening, Place
from coterie.modes.story.mode import one_chat_at_a_time, views
from coterie.modes.story.settings import StorySettings
from coterie.modes.story.story import Story

Answer = Callable[[Request], Entry]


def story_views() -> list[View]:
    return [Cast(), People(), Turns(), Memories(), Usage(), *views()]


class Stage:
    """Everything a story needs, around one database file."""

    def __init__(self, path: Path, provider: Provider, *, clock: Clock | None = None, lease_s: float = 60.0) -> None:
        self.clock = clock or SystemClock()
        self.store = Store.open(path, views=story_views(), clock=self.clock)
        roles = {"narrative": ("embedded/script",), "classifier": ("embedded/script",)}
        settings = ModelsSettings(roles=roles)
        self.models = Models(settings, clock=self.clock, store=self.store, providers={"embedded": provider})
        self.roster = Roster(self.store)
        self.memory = Memory(self.store, clock=self.clock)
        self.story = Story(self.store, self.roster, self.memory, self.models, StorySettings(), self.clock)
        self.worker = Worker(
            self.store.jobs,
            self.story.handlers(),
            clock=self.clock,
            bus=self.store.bus,
            lease_s=lease_s,
            longest_wait_s=0.05,
            apart=one_chat_at_a_time,
        )

    async def meet(self) -> Bot:
        await self.roster.author_you(You(name="Ana", pronouns="she/her", persona="A cartographer."))
        identity = Identity(
            name="Mara",
            persona="Mara keeps a lighthouse on a bare island and writes down every ship that passes.",
            traits=["patient", "dry"],
            voice_samples=["Ships come and go. The lamp stays."],
            initial_relationship="Ana came with the supply boat a week ago.",
        )
        return await self.roster.author(identity)

    async def begin(self, bot: Bot) -> str:
        opening = Opening(title="Evening", place=Place(name="the lighthouse"), weather="a gale from the west")
        return (await self.story.begin(bot.id, opening)).room

    async def close(self) -> None:
        await self.story.replies.close()
        await self.models.close()
        self.store.close()


def scripted(say: str = "The lamp is old, and so am I. Sit down.") -> Player:
    """Classifiers are told that nothing special happened."""

    def answer(request: Request) -> Entry:
        return Entry(say=json.dumps({}) if request.prompt.shape is not None else say)

    return Player("embedded", otherwise=answer)
