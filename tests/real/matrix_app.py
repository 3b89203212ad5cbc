"""Users with clients of their own, and our bot, on a real homeserver."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import SecretStr

from coterie.characters.workspace import Portrait
from coterie.messaging.files import RoomFiles
from coterie.messaging.protocol import RoomRef
from coterie.surfaces.matrix.homeserver import Homeserver
from coterie.surfaces.matrix.service import MatrixService
from coterie.surfaces.matrix.settings import MatrixSettings
from coterie.surfaces.matrix.sync import SyncLoop
from tests.contracts.surface_app import SurfaceApp
from tests.real.synapse import PASSWORD, Synapse

Anybody = TypeVar("Anybody", bound="MatrixUser")


class MatrixUser:
    """A user with an unencrypted client."""

    def __init__(self, server: Homeserver, user: str) -> None:
        self.server = server
        self.user = user
        self._count = 0
        self._since: str | None = None

    @classmethod
    async def arrive(cls, synapse: Synapse, name: str) -> Self:
        user = synapse.register(name)
        server = Homeserver(synapse.url)
        _, _, server.token = await server.login(user, PASSWORD)
        human = cls(server, user)
        await human.accept_invites()
        return human

    async def room_with(self, bot: str) -> str:
        return await self.server.create_room({"preset": "private_chat", "invite": [bot]})

    async def say(self, room: str, text: str, key: str | None = None, more: dict[str, Any] | None = None) -> str:
        self._count += 1
        response = {"msgtype": "m.text", "body": text, **(more or {})}
        return await self.server.send(room, "m.room.message", response, key or f"{self.user}.{self._count}")

    async def close(self) -> None:
        await self.server.close()

    async def accept_invites(self) -> list[str]:
        response = await self.server.sync(self._since, 0)
        self._since = response["next_batch"]
        invited = list(response.get("rooms", {}).get("invite", {}))
        for room in invited:
            await self.server.join(room)
        return invited

    async def events(self, room: str) -> list[dict[str, Any]]:
        """Everything in a room, oldest first."""
        start: str | None = None  # the homeserver answers a first sync from a cache for a while
        events: list[dict[str, Any]] = []
        while True:
            page = await self.server.messages_before(room, start, None)
            events += page["chunk"]
            if not page["chunk"] or "end" not in page:
                return events[::-1]
            start = page["end"]

    async def shown(self, room: str, by: str) -> list[str]:
        """What somebody's messages look like now, edits applied."""
        return [text for _, text in shown_by(await self.events(room), by)]


def shown_by(events: list[dict[str, Any]], by: str) -> list[tuple[str, str]]:
    texts: dict[str, str] = {}
    for event in events:
        content = event["content"]
        if event["type"] != "m.room.message" or event["sender"] != by or "body" not in content:
            continue
        relation = content.get("m.relates_to", {})
        if relation.get("rel_type") == "m.replace":
            texts[relation["event_id"]] = content["m.new_content"]["body"]
        else:
            texts[event["event_id"]] = content["body"]
    return list(texts.items())


class MatrixApp(SurfaceApp):
    """A test app whose bot syncs step by step, or continuously."""

    def __init__(
        self, path: Path, synapse: Synapse, name: str, owner: str, *, encrypted: bool = False, **options: Any
    ) -> None:
        super().__init__(path / "coterie.db", **options)
        self.folder = path / "matrix"
        self.workspaces = path / "workspaces"
        self.bot_user = f"@{name}:localhost"
        self.matrix = MatrixSettings(
            homeserver=synapse.url,
            user=self.bot_user,
            password=SecretStr(PASSWORD),
            owner=owner,
            encrypted=encrypted,
            sync_s=1,
        )
        self.portraits: dict[str, Portrait] = {}
        self._stack = AsyncExitStack()

    def files_in(self, room: RoomRef) -> RoomFiles:
        binding = self.router.chats.rooms.find(room)
        return RoomFiles(self.workspaces / (binding.character if binding is not None else "shared"))

    @property
    def bot(self) -> MatrixService:
        return self._bot

    async def connect(self) -> None:
        self._bot = MatrixService(
            self.router,
            self.store,
            self.matrix,
            self.folder,
            lambda who: RoomFiles(self.workspaces / who),
            self.portraits.get,
            supervisor=self.supervisor,
        )
        self.following: SyncLoop = await self._stack.enter_async_context(self._bot.connected())

    async def settle(self, rounds: int = 3) -> None:
        """Sync until every message is answered."""
        for _ in range(rounds):
            await self.following.sync_once(0)
            await self.router.wait_idle()

    async def restart(self) -> None:
        """A crash and a new start."""
        await self.crash()
        await self._stack.aclose()
        self._stack = AsyncExitStack()
        await self.connect()

    async def lose_database(self) -> None:
        """Everything that is not in the files beside it is lost, characters and people too."""
        await self.router.close()
        await self._stack.aclose()
        self._stack = AsyncExitStack()
        self.store.close()
        for file in self.path.parent.glob("coterie.db*"):
            file.unlink()
        self.open()

    async def close(self) -> None:
        await self._stack.aclose()
        await super().close()


def app_on(
    synapse: Synapse, path: Path, name: str, **options: Any
) -> AbstractAsyncContextManager[tuple[MatrixApp, MatrixUser]]:
    """An app with a bot of its own, and its owner with an unencrypted client."""
    return app_with(MatrixUser, synapse, path, name, **options)


@asynccontextmanager
async def app_with(
    client: type[Anybody], synapse: Synapse, path: Path, name: str, **options: Any
) -> AsyncIterator[tuple[MatrixApp, Anybody]]:
    """The same with this client for the owner. Rooms are encrypted if the client supports it."""
    path.mkdir(parents=True, exist_ok=True)
    ana = await client.arrive(synapse, f"ana-{name}")
    synapse.register(name)
    app = MatrixApp(path, synapse, name, ana.user, encrypted=client is not MatrixUser, **options)
    await app.create_character()
    await app.connect()
    await app.following.sync_once(0)
    try:
        yield app, ana
    finally:
        await app.close()
        await ana.close()
