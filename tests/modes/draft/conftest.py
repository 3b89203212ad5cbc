"""A draft service with a scripted model, whose replies are given by the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coterie.base.clock import ManualClock
from coterie.characters.identity import Identity
from coterie.characters.people import PeopleProjection
from coterie.characters.service import Character, Characters, CharactersProjection
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
from coterie.modes.draft import Contributor, DraftService, Member, Proposal, StartedReply, Thread
from coterie.modes.draft.projections import draft_projections
from coterie.modes.draft.settings import DraftSettings

LAMP = """# The lamp

The lamp burns every night, and every night it burns.

Nobody knows who lights it. Nobody asks.

The boats come late in winter.
"""
ANN, BO = Contributor("ann", "Ann"), Contributor("bo", "Bo")


def change(original: str, proposed: str, reason: str = "Shorter.") -> str:
    return f"<change><original>{original}</original><proposed>{proposed}</proposed><reason>{reason}</reason></change>"


@dataclass
class Script:
    """The replies of the model, and the requests it got."""

    replies: list[str | RecordedCall] = field(default_factory=list)
    requests: list[CompletionRequest] = field(default_factory=list)

    def answer(self, request: CompletionRequest) -> RecordedCall:
        self.requests.append(request)
        reply = self.replies.pop(0) if self.replies else "I have nothing to say."
        return reply if isinstance(reply, RecordedCall) else RecordedCall(say=reply)

    def prompt(self, number: int = -1) -> str:
        return "\n".join(message.text for message in self.requests[number].prompt.messages)


class DraftHarness:
    def __init__(self, folder: Path, clock: ManualClock, script: Script) -> None:
        self.folder = folder
        self.clock = clock
        self.script = script
        self.open()

    def open(self) -> None:
        self.store = Store.open(
            self.folder / "coterie.db",
            projections=[
                CharactersProjection(),
                PeopleProjection(),
                TurnsProjection(),
                MemoryProjection(),
                UsageProjection(),
                *draft_projections(),
            ],
            clock=self.clock,
        )
        settings = ModelsSettings(
            roles={"draft": ("embedded/script",)},
            tasks={"sceptic": ("embedded/other",)},
        )
        provider = ReplayProvider("embedded", default=self.script.answer)
        self.models = Models(settings, clock=self.clock, store=self.store, providers={"embedded": provider})
        self.character_service = Characters(self.store)
        self.memory = Memory(self.store, clock=self.clock)
        self.draft = DraftService(
            self.store,
            self.character_service,
            self.memory,
            self.models,
            DraftSettings(),
            self.clock,
            self.folder / "drafts",
        )
        self.worker = Worker(self.store.jobs, self.draft.handlers(), clock=self.clock, bus=self.store.bus)

    async def open_thread(self, *names: str, text: str = LAMP) -> Thread:
        """Create a workspace with one document, and open a thread about it."""
        self.workspace = await self.draft.workspaces.open(self.folder / "text")
        await self.draft.documents.create(self.workspace, "lamp.md", text, ANN)
        self.characters = [await self.create_character(name) for name in names or ("Mara",)]
        members = [Member(bot=character.id) for character in self.characters]
        return await self.draft.threads.open_thread(self.workspace, "lamp.md", members, ANN)

    async def create_character(self, name: str) -> Character:
        return await self.character_service.save(Identity(name=name, persona=f"{name} edits."))

    async def send_message(
        self, thread: Thread, text: str, person: Contributor = ANN, **options: object
    ) -> StartedReply:
        started = await self.draft.threads.send_message(thread.room, text, person, **options)  # type: ignore[arg-type]
        await self.draft.replies.wait(thread.room)
        await self.run_jobs()
        return started

    async def propose(self, thread: Thread, *blocks: str) -> list[Proposal]:
        """Let the model reply with these blocks; returns its proposals."""
        self.script.replies.append(" And ".join(blocks))
        started = await self.send_message(thread, "What would you change?")
        return self.draft.proposal_queries.of_reply(thread.room, started.reply)

    def text(self) -> str:
        return self.draft.workspaces.repository(self.workspace).read("lamp.md", "main").text

    async def replace_text(self, old: str, new: str, person: Contributor = BO) -> None:
        version = await self.draft.documents.read(self.workspace, "lamp.md")
        assert old in version.text
        await self.draft.documents.save(
            self.workspace, "lamp.md", "main", version.text.replace(old, new), version.blob, person
        )

    async def run_jobs(self) -> None:
        while await self.worker.drain():
            pass

    def verify(self) -> None:
        """Check that a replay of the log gives the same rows."""
        with self.store.reader.connections.read_transaction() as rows:
            assert self.store.hashes() == {
                projection.name: replayed_hash(projection, rows) for projection in self.store.projections
            }

    async def close(self) -> None:
        await self.draft.replies.close()
        await self.models.close()
        self.store.close()


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def harness(tmp_path: Path, clock: ManualClock, script: Script) -> AsyncIterator[DraftHarness]:
    opened = DraftHarness(tmp_path, clock, script)
    yield opened
    opened.verify()
    await opened.close()
