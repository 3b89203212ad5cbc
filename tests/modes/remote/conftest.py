"""A server with one character that an agent plays and one that echoes, on an in-memory platform."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from coterie.base.clock import SystemClock
from coterie.characters.identity import Identity
from coterie.characters.people import People, PeopleProjection
from coterie.characters.service import Characters, CharactersProjection
from coterie.conversation.turns import TurnsProjection
from coterie.eventstore import Store
from coterie.eventstore.sqlite.replay import replayed_hash
from coterie.messaging.agents import AgentRegistry
from coterie.messaging.files import RoomFiles
from coterie.messaging.message_router import MessageRouter, messaging_projections
from coterie.messaging.ports import Conversation
from coterie.messaging.settings import SurfacesSettings
from coterie.modes.remote.connections import AgentConnections, AgentsSettings
from coterie.modes.remote.conversation import RemoteConversation
from coterie.modes.remote.events import RemoteChatProjection, RemoteChatQueries
from tests.contracts.loopback import Loopback
from tests.contracts.surface_app import EchoConversation

TOKEN = "a token of some length"


class RemoteHarness:
    def __init__(self, folder: Path, settings: AgentsSettings | None = None) -> None:
        self.folder = folder
        self.settings = settings or AgentsSettings(silence_timeout_s=1, heartbeat_s=0.5, max_retry_pause_s=0.05)
        self.surfaces = SurfacesSettings(slow_notice_s=0)
        self.platform = Loopback()
        self.echo = EchoConversation()
        self.open()

    def open(self) -> None:
        clock = SystemClock()
        all_projections = [
            CharactersProjection(),
            PeopleProjection(),
            TurnsProjection(),
            RemoteChatProjection(),
            *messaging_projections(),
        ]
        self.store = Store.open(self.folder / "coterie.db", projections=all_projections, clock=clock)
        self.characters, self.people = Characters(self.store), People(self.store, clock)
        self.registry = AgentRegistry(self.folder / "agents.yaml")
        self.agents = AgentConnections(
            self.registry,
            self.characters,
            RemoteChatQueries(self.store),
            self.settings,
            notify=lambda outgoing, token: self.router.notify(outgoing, token),
            room_of=lambda context: self.router.chats.rooms.room_of(context),
        )
        remote = RemoteConversation(self.store, self.characters, self.agents, self.settings, self.files)
        conversations: dict[str, Conversation] = {"echo": self.echo, "remote": remote}
        self.router = MessageRouter(
            self.store, clock, self.characters, self.people, conversations, self.surfaces, self.registry
        )

    def files(self, character: str) -> RoomFiles:
        return RoomFiles(self.folder / "workspaces" / character)

    def register(self, **fields: object) -> None:
        """Write a registry in which Helper has these fields."""
        registry = {"people": {"owner": "Helper"}, "characters": {"Helper": fields}}
        self.registry.file.write_text(yaml.safe_dump(registry))

    def remote(self, url: str, **fields: object) -> None:
        self.register(backend="remote", base_url=url, token=TOKEN, **fields)

    async def say(self, text: str, room: str = "desk", key: str = "1") -> None:
        await self.platform.say("ana", room, text, key)

    async def ask(self, text: str, room: str = "desk", key: str = "1") -> list[str]:
        await self.say(text, room, key)
        await self.router.wait_idle()
        return self.platform.shown(room)

    async def crash(self) -> None:
        async def never(*_: object, **__: object) -> list[object]:
            raise asyncio.CancelledError

        self.store.append = never  # type: ignore[assignment,method-assign]
        await self.router.close()
        await self.agents.close()
        self.store.close()
        self.open()
        self.platform.reconnect(self.router)

    async def close(self) -> None:
        await self.router.close()
        await self.agents.close()
        with self.store.reader.connections.read_transaction() as rows:
            assert self.store.hashes() == {one.name: replayed_hash(one, rows) for one in self.store.projections}
        self.store.close()


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[RemoteHarness]:
    harness = RemoteHarness(tmp_path)
    for name in ("Helper", "Echo"):
        await harness.characters.save(Identity(name=name, persona=f"{name}."))
    harness.platform.reconnect(harness.router)
    await harness.people.link_owner("loopback", "ana")
    yield harness
    await harness.close()
