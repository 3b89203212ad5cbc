"""Documents, people and characters on a scripted model: what it says is written in the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coterie.base.clock import HeldClock
from coterie.cast.identity import Identity
from coterie.cast.people import People
from coterie.cast.roster import Bot, Cast, Roster
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
from coterie.modes.draft import Asked, Change, Drafting, Member, Person, Thread
from coterie.modes.draft.mode import views
from coterie.modes.draft.settings import DraftSettings

LAMP = """# The lamp

The lamp burns every night, and every night it burns.

Nobody knows who lights it. Nobody asks.

The boats come late in winter.
"""
ANN, BO = Person("ann", "Ann"), Person("bo", "Bo")


def change(original: str, proposed: str, reason: str = "Shorter.") -> str:
    return f"<change><original>{original}</original><proposed>{proposed}</proposed><reason>{reason}</reason></change>"


@dataclass
class Script:
    replies: list[str | Entry] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)

    def answer(self, request: Request) -> Entry:
        self.asked.append(request)
        said = self.replies.pop(0) if self.replies else "I have nothing to say."
        return said if isinstance(said, Entry) else Entry(say=said)

    def prompt(self, number: int = -1) -> str:
        return "\n".join(message.text for message in self.asked[number].prompt.messages)


class Stage:
    def __init__(self, folder: Path, clock: HeldClock, script: Script) -> None:
        self.folder = folder
        self.clock = clock
        self.script = script
        self.open()

    def open(self) -> None:
        self.store = Store.open(
            self.folder / "coterie.db",
            views=[Cast(), People(), Turns(), Memories(), Usage(), *views()],
            clock=self.clock,
        )
        settings = ModelsSettings(
            roles={"draft": ("embedded/script",)},
            tasks={"sceptic": ("embedded/other",)},
        )
        player = Player("embedded", otherwise=self.script.answer)
        self.models = Models(settings, clock=self.clock, store=self.store, providers={"embedded": player})
        self.roster = Roster(self.store)
        self.memory = Memory(self.store, clock=self.clock)
        self.linked: set[str] = set()
        self.draft = Drafting(
            self.store,
            self.roster,
            self.memory,
            self.models,
            DraftSettings(),
            self.clock,
            self.folder / "drafts",
            may_open=lambda: self.linked,
        )
        self.worker = Worker(self.store.jobs, self.draft.handlers(), clock=self.clock, bus=self.store.bus)

    async def begin(self, *names: str, text: str = LAMP) -> Thread:
        """A workspace with one document, and a thread about it."""
        self.workspace = await self.draft.open_workspace(self.folder / "text")
        await self.draft.create(self.workspace, "lamp.md", text, ANN)
        self.bots = [await self.meet(name) for name in names or ("Mara",)]
        members = [Member(bot=bot.id) for bot in self.bots]
        return await self.draft.open_thread(self.workspace, "lamp.md", members, ANN)

    async def meet(self, name: str) -> Bot:
        return await self.roster.author(Identity(name=name, persona=f"{name} edits."))

    async def say(self, thread: Thread, text: str, person: Person = ANN, **options: object) -> Asked:
        asked = await self.draft.say(thread.room, text, person, **options)  # type: ignore[arg-type]
        await self.draft.replies.wait(thread.room)
        await self.settle()
        return asked

    async def proposals(self, thread: Thread, *blocks: str) -> list[Change]:
        """A reply with these blocks in it."""
        self.script.replies.append(" And ".join(blocks))
        asked = await self.say(thread, "What would you change?")
        return self.draft.changes.of_reply(thread.room, asked.reply)

    def text(self) -> str:
        return self.draft.workspace(self.workspace).read("lamp.md", "main").text

    async def rewrite(self, old: str, new: str, person: Person = BO) -> None:
        version = await self.draft.read(self.workspace, "lamp.md")
        assert old in version.text
        await self.draft.save(self.workspace, "lamp.md", "main", version.text.replace(old, new), version.blob, person)

    async def settle(self) -> None:
        while await self.worker.drain():
            pass

    def verify(self) -> None:
        with self.store.reader.readers.snapshot() as rows:
            assert self.store.hashes() == {view.name: fold_aside(view, rows) for view in self.store.views}

    async def close(self) -> None:
        await self.draft.replies.close()
        await self.models.close()
        self.store.close()


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def stage(tmp_path: Path, clock: HeldClock, script: Script) -> AsyncIterator[Stage]:
    made = Stage(tmp_path, clock, script)
    yield made
    made.verify()
    await made.close()
