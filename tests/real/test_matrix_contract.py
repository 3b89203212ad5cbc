"""The surface contract on a real homeserver, with injected faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from coterie.base.ids import new_id
from coterie.eventstore import NewEvent
from coterie.messaging.errors import PlatformRateLimited, PlatformRefused, PlatformUnreachable
from coterie.messaging.inbox import SurfaceSynced
from coterie.messaging.message_router import MessageRouter
from coterie.messaging.ports import Capabilities, EditPace, Surface
from coterie.surfaces.matrix.homeserver import Homeserver, Json
from coterie.surfaces.matrix.schemas import SURFACE
from coterie.surfaces.matrix.surface import MatrixSurface
from tests.contracts.loopback import Fault
from tests.contracts.surface_app import SurfaceApp
from tests.contracts.surface_contract import SurfaceContract
from tests.real.matrix_app import MatrixApp, MatrixUser, shown_by
from tests.real.second_client import EncryptedMatrixUser
from tests.real.synapse import Synapse

pytestmark = pytest.mark.timeout(600)


_UNTIL_HEARD = (0, 0.2, 0.5, 1, 2, 4)


class MatrixPlatform:
    """Users and rooms by short names, created when first needed; encrypted if the client is."""

    def __init__(
        self, synapse: Synapse, app: MatrixApp, monkeypatch: pytest.MonkeyPatch, client: type[MatrixUser]
    ) -> None:
        self._synapse = synapse
        self._app = app
        self._client = client
        self._people: dict[str, MatrixUser] = {}
        self._rooms: dict[str, str] = {}
        self._faults: list[Fault] = []
        self._making = asyncio.Lock()
        self._syncing = asyncio.Lock()
        self._sent = Homeserver.send

        async def send(server: Homeserver, room: str, kind: str, content: Json, transaction: str) -> str:
            return await self._send(server, room, kind, content, transaction)

        monkeypatch.setattr(Homeserver, "send", send)
        quick = {**{f: getattr(MatrixSurface.capabilities, f) for f in Capabilities.__dataclass_fields__}}
        quick |= {"pace": EditPace(min_interval_s=0.1, max_interval_s=0.3, idle_s=0.15)}
        monkeypatch.setattr(MatrixSurface, "capabilities", Capabilities(**quick))

    @property
    def surface(self) -> Surface:
        return self._app.router.surfaces[SURFACE]

    async def say(self, who: str, room: str, text: str, key: str, *, times: int = 1) -> None:
        human = await self.human(who)
        room_id = await self.room(human, room)
        event = await human.say(room_id, text, f"{room}.{key}")
        key = f"in:{SURFACE}/{room_id}:{event}"
        async with self._syncing:
            before = self._app.router.inbound.inbox.cursor(SURFACE)
            for wait_s in _UNTIL_HEARD:  # what is sealed is heard when its key has come, which may be a look later
                if self._app.store.query("SELECT 1 FROM event WHERE key = ?", (key,)):
                    break
                await self._app.following.sync_once(wait_s)
            for _ in range(times - 1):  # the homeserver tells it again, as after a crash
                back = SurfaceSynced(surface=SURFACE, cursor=before or "")
                await self._app.store.append([NewEvent(f"surface:{SURFACE}", back)])
                await self._app.following.sync_once(0)

    def account(self, who: str) -> str:
        return self._people[who].user

    def shown(self, room: str) -> list[str]:
        room_id = self._rooms[room]
        reader = next(person for person in self._people.values() if person.user in self._members(room))
        path = f"{self._synapse.url}/_matrix/client/v3/rooms/{room_id}/messages"
        headers = {"Authorization": f"Bearer {reader.server.token}"}
        events: list[Json] = []
        query = {"dir": "b", "limit": "100"}
        while True:
            page = httpx.get(path, params=query, headers=headers, trust_env=False, timeout=60).json()
            events += page["chunk"]
            if not page["chunk"] or "end" not in page:
                break
            query["from"] = page["end"]
        self._edits = [e for e in events if e["content"].get("m.relates_to", {}).get("rel_type") == "m.replace"]
        if isinstance(reader, EncryptedMatrixUser):
            messages = [event for event in events if "state_key" not in event]
            assert all(event["type"] == "m.room.encrypted" for event in messages), (
                "P7: nothing readable in encrypted rooms"
            )
            return [text for _, text in reader.shown_now(events[::-1], room_id, self._app.bot_user)]
        return [text for _, text in shown_by(events[::-1], self._app.bot_user)]

    def most_edits(self) -> int:
        counts: dict[str, int] = {}
        for edit in self._edits:
            target = edit["content"]["m.relates_to"]["event_id"]
            counts[target] = counts.get(target, 0) + 1
        return max(counts.values(), default=0)

    def fail_next(self, *faults: Fault) -> None:
        self._faults.extend(faults)

    def reconnect(self, router: MessageRouter) -> None:
        self._faults.clear()

    async def human(self, who: str) -> MatrixUser:
        async with self._making:
            if who not in self._people:
                self._people[who] = await self._client.arrive(self._synapse, f"{who}-{new_id().lower()}")
            return self._people[who]

    async def room(self, human: MatrixUser, room: str) -> str:
        async with self._making:
            if room not in self._rooms:
                async with self._syncing:  # an invitation that is seen is answered with a Space: here it is none
                    self._rooms[room] = await human.room_with(self._app.bot_user)
                    await self._app.bot.rooms.server.join(self._rooms[room])
            elif human.user not in self._members(room):
                await next(iter(self._people.values())).server.invite(self._rooms[room], human.user)
                await human.server.join(self._rooms[room])
            return self._rooms[room]

    def _members(self, room: str) -> set[str]:
        sql = "SELECT user_id FROM local_current_membership WHERE room_id = ? AND membership = 'join'"
        return {user for (user,) in self._synapse.query(sql, self._rooms[room])}

    async def close(self) -> None:
        for human in self._people.values():
            await human.close()

    async def _send(self, server: Homeserver, room: str, kind: str, content: Json, transaction: str) -> str:
        ours = server is self._app.bot.rooms.server
        fault = self._faults.pop(0) if ours and self._faults else None
        if fault == "patience":
            raise PlatformRateLimited("Too many messages.", 0.01)
        if fault == "hung up":
            raise PlatformUnreachable("The line is down.", ambiguous=False)
        if fault == "refused":
            raise PlatformRefused("Not this.", "It is not tried again.")
        event = await self._sent(server, room, kind, content, transaction)
        if fault == "taken, then hung up":
            raise PlatformUnreachable("The line broke.")
        if fault == "stuck after taking":
            await asyncio.Event().wait()
        return event


@pytest.mark.parametrize("client", [MatrixUser, EncryptedMatrixUser], ids=["plain", "sealed"])
class TestMatrix(SurfaceContract):
    messages_per_room = 2  # a homeserver on the same two cores is slow

    @pytest.fixture
    async def app(self, synapse: Synapse, tmp_path: Path) -> AsyncIterator[MatrixApp]:
        name = f"bot-{new_id().lower()}"
        synapse.register(name)
        app = MatrixApp(tmp_path, synapse, name, "")
        await app.create_character()
        await app.connect()
        await app.following.sync_once(0)
        yield app
        await app.close()

    @pytest.fixture
    async def platform(
        self, synapse: Synapse, app: MatrixApp, monkeypatch: pytest.MonkeyPatch, client: type[MatrixUser]
    ) -> AsyncIterator[MatrixPlatform]:
        platform = MatrixPlatform(synapse, app, monkeypatch, client)
        yield platform
        await platform.close()

    @pytest.fixture(autouse=True)
    async def ana(self, app: SurfaceApp, platform: MatrixPlatform) -> None:
        ana = await platform.human("ana")
        await app.people.link_owner(SURFACE, ana.user)

    async def crash(self, app: MatrixApp, platform: MatrixPlatform) -> None:  # type: ignore[override]
        platform.reconnect(app.router)
        await app.restart()
