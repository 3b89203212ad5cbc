"""A story on a scripted model: what it says is written in the test, what it was asked can be looked at."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coterie.base.clock import HeldClock
from coterie.cast.identity import Identity
from coterie.cast.people import People
from coterie.cast.roster import Bot, Cast, Roster, You
from coterie.engine.turns import Turns
from coterie.kernel import Store
from coterie.kernel.fold import fold_aside
from coterie.kernel.worker import Worker
from coterie.llm.messages import Request
from coterie.llm.player import Player
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.llm.tape import Entry
from coterie.llm.usage import Usage
from coterie.memory import Memory
from coterie.memory.view import Memories
from coterie.modes.story.kickoff import Opening, Place
from coterie.modes.story.mode import one_chat_at_a_time, views
from coterie.modes.story.settings import StorySettings
from coterie.modes.story.story import Begun, Story


@dataclass
class Script:
    """Answers in order for replies; classifiers get JSON by the name of what they are asked for."""

    replies: list[str] = field(default_factory=list)
    shapes: dict[str, object] = field(default_factory=dict)
    asked: list[Request] = field(default_factory=list)
    classified: list[Request] = field(default_factory=list)
    faults: list[Entry] = field(default_factory=list)
    """Answers that go wrong, before any others."""

    def answer(self, request: Request) -> Entry:
        if request.prompt.shape is not None:
            self.classified.append(request)
            wanted = self.shapes.get(request.prompt.shape.name, {})
            return wanted if isinstance(wanted, Entry) else Entry(say=json.dumps(wanted))
        self.asked.append(request)
        if self.faults:
            return self.faults.pop(0)
        return Entry(say=self.replies.pop(0) if self.replies else f"Reply number {len(self.asked)}.")

    def questions(self, shape: str) -> list[str]:
        """What classifiers were asked, by the name of what they were asked for."""
        return ["\n".join(m.text for m in r.prompt.messages) for r in self.classified if _shape(r) == shape]

    def prompt(self, number: int = -1) -> str:
        """Everything a model was told for a reply."""
        return "\n".join(message.text for message in self.asked[number].prompt.messages)


def _shape(request: Request) -> str:
    return request.prompt.shape.name if request.prompt.shape else ""


class Stage:
    def __init__(self, path: Path, clock: HeldClock, script: Script, settings: StorySettings | None = None) -> None:
        self.path = path
        self.clock = clock
        self.script = script
        self.settings = settings or StorySettings()
        self.open()

    def open(self) -> None:
        all_views = [Cast(), People(), Turns(), Memories(), Usage(), *views()]
        self.store = Store.open(self.path, views=all_views, clock=self.clock)
        roles = dict.fromkeys(("narrative", "classifier", "compactor"), ("embedded/script",))
        models = ModelsSettings(roles=roles)
        player = Player("embedded", otherwise=self.script.answer)
        self.models = Models(models, clock=self.clock, store=self.store, providers={"embedded": player})
        self.roster = Roster(self.store)
        self.memory = Memory(self.store, clock=self.clock)
        self.story = Story(self.store, self.roster, self.memory, self.models, self.settings, self.clock)
        self.worker = Worker(
            self.store.jobs, self.story.handlers(), clock=self.clock, bus=self.store.bus, apart=one_chat_at_a_time
        )

    async def meet(self, name: str = "Mara", **fields: object) -> Bot:
        identity = Identity.model_validate({"name": name, "persona": f"{name} keeps a lighthouse.", **fields})
        return await self.roster.author(identity)

    async def begin(self, bot: Bot, **fields: object) -> str:
        opening = Opening.model_validate({"title": "Evening", "place": Place(name="the lighthouse"), **fields})
        return (await self.story.begin(bot.id, opening)).room

    async def say(self, room: str, text: str, **options: object) -> Begun:
        """A whole turn: the message, the reply, and everything it led to."""
        begun = await self.story.say(room, text, **options)  # type: ignore[arg-type]
        await self.story.replies.wait(room)
        await self.settle()
        return begun

    async def again(self, room: str, **options: object) -> Begun:
        begun = await self.story.regenerate(room, **options)  # type: ignore[arg-type]
        await self.story.replies.wait(room)
        await self.settle()
        return begun

    def remembered(self, owner: str, room: str | None = None) -> list[str]:
        return sorted(memory.text for memory in self.memory.browse(owner=owner, room=room))

    async def settle(self) -> None:
        while await self.worker.drain():
            pass

    def texts(self, room: str) -> list[str]:
        return [turn.text for turn in self.story.timeline.latest(room, 1_000)]

    def verify(self) -> None:
        """The law: what is live is what the log says."""
        with self.store.reader.readers.snapshot() as rows:
            assert self.store.hashes() == {view.name: fold_aside(view, rows) for view in self.store.views}

    async def close(self) -> None:
        await self.story.replies.close()
        await self.models.close()
        self.store.close()


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def stage(tmp_path: Path, clock: HeldClock, script: Script) -> AsyncIterator[Stage]:
    made = Stage(tmp_path / "coterie.db", clock, script)
    await made.roster.author_you(You(name="Ana", pronouns="she/her", persona="A cartographer."))
    yield made
    made.verify()
    await made.close()


@pytest.fixture
def restart(stage: Stage) -> Callable[[], None]:
    def again() -> None:
        stage.store.close()
        stage.open()

    return again
