"""The surface contract on a real homeserver, with injected faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from nio.crypto.attachments import decrypt_attachment

from coterie.base.ids import new_id
from coterie.eventstore import NewEvent
from coterie.messaging.errors import PlatformRateLimited, PlatformRefused, PlatformUnreachable
from coterie.messaging.inbox import SurfaceSynced
from coterie.messaging.message_router import MessageRouter
from coterie.messaging.ports import Capabilities, EditPace, Surface
from coterie.messaging.protocol import RoomRef
from coterie.messaging.quarantine import SkippedInputs
from coterie.surfaces.matrix.homeserver import Homeserver, Json
from coterie.surfaces.matrix.schemas import SURFACE, room_ref
from coterie.surfaces.matrix.surface import MatrixSurface
from tests.contracts.loopback import Fault, Feature, ShownMessage
from tests.contracts.surface_app import SurfaceApp
from tests.contracts.surface_contract import SurfaceContract
from tests.real.matrix_app import MatrixApp, MatrixUser, shown_by
from tests.real.second_client import EncryptedMatrixUser
from tests.real.synapse import Synapse

pytestmark = pytest.mark.timeout(600)


_LONGEST_SYNC_S = 240
_LONGEST_SYNC_OF_A_GROUP_S = 2
"""In a group an event may be left out, so that waiting for it has to end; what is encrypted may wait for its key."""


class MatrixPlatform:
    """Users and rooms by short names, created when first needed; encrypted if the client is."""

    features: frozenset[Feature] = frozenset({"groups", "threads", "replies", "files", "renames"})

    def __init__(
        self, synapse: Synapse, app: MatrixApp, monkeypatch: pytest.MonkeyPatch, client: type[MatrixUser]
    ) -> None:
        self._synapse = synapse
        self._app = app
        self._client = client
        self._people: dict[str, MatrixUser] = {}
        self._rooms: dict[str, str] = {}
        self._faults: list[Fault] = []
        self._edits_refused = False
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

    async def say(
        self,
        who: str,
        room: str,
        text: str,
        key: str,
        *,
        times: int = 1,
        reply_to: str | None = None,
        thread: str | None = None,
        mention: bool = False,
    ) -> str:
        human = await self.human(who)
        room_id = await self.room(human, room)
        more: Json = {}
        if mention:
            more["m.mentions"] = {"user_ids": [self._app.bot_user]}
        if thread is not None:
            more["m.relates_to"] = {"rel_type": "m.thread", "event_id": thread}
        elif reply_to is not None:
            reply_to = reply_to if reply_to.startswith("$") else "$nothing:localhost"
            more["m.relates_to"] = {"m.in_reply_to": {"event_id": reply_to}}
        event = await human.say(room_id, text, f"{room}.{key}", more)
        await self._sync(room_id, event, times)
        return event

    async def _sync(self, room_id: str, event: str, times: int = 1) -> None:
        """Sync until the event was read; in a group it may be left out."""
        key = f"in:{SURFACE}/{room_id}:{event}"
        several = len(self._members_of(room_id)) > 2
        async with self._syncing:
            before = self._app.router.inbound.inbox.cursor(SURFACE)
            # An encrypted event is read when its key has arrived, which may be one sync later.
            now = asyncio.get_running_loop().time
            start = now()
            while not self._app.store.query("SELECT 1 FROM event WHERE key = ?", (key,)):
                is_left_out = several and not self._app.bot.crypto.has_pending
                if is_left_out and now() > start + _LONGEST_SYNC_OF_A_GROUP_S:
                    break
                skipped = SkippedInputs(self._app.store).latest()
                assert now() < start + _LONGEST_SYNC_S, f"{event} was not read; skipped: {skipped}"
                await self._app.following.sync_once(0.5)
            for _ in range(times - 1):  # the homeserver tells it again, as after a crash
                back = SurfaceSynced(surface=SURFACE, cursor=before or "")
                await self._app.store.append([NewEvent(f"surface:{SURFACE}", back)])
                await self._app.following.sync_once(0)

    async def press(self, who: str, room: str, label: str) -> None:
        raise NotImplementedError("Matrix has no buttons")

    async def send_file(self, who: str, room: str, name: str, data: bytes) -> None:
        human = await self.human(who)
        room_id = await self.room(human, room)
        if isinstance(human, EncryptedMatrixUser):
            await human.send_file(room_id, name, data)
        else:
            uri = await human.server.upload(_one_chunk(data), len(data), "image/png", "x.png")
            await human.say(room_id, name, more={"msgtype": "m.image", "url": uri, "info": {"mimetype": "image/png"}})
        async with asyncio.timeout(30):
            while not self._app.store.query("SELECT 1 FROM inbox WHERE incoming LIKE '%\"path\"%'"):
                async with self._syncing:
                    await self._app.following.sync_once(0.2)

    async def join(self, who: str, room: str) -> None:
        human = await self.human(who)
        await self.room(human, room)
        async with self._syncing:
            await self._app.following.sync_once(0)

    async def leave(self, who: str, room: str) -> None:
        await self._people[who].server.leave(self._rooms[room])
        async with self._syncing:
            await self._app.following.sync_once(0)

    async def rename(self, who: str, room: str, title: str) -> None:
        await self._people[who].server.put_state(self._rooms[room], "m.room.name", "", {"name": title})
        async with self._syncing:
            await self._app.following.sync_once(0)

    def room_ref(self, room: str) -> RoomRef:
        return room_ref(self._rooms[room])

    def notice_thread(self, room: str) -> str | None:
        return None

    def is_in(self, room: str) -> bool:
        return self._app.bot_user in self._members(room)

    def refuse_edits(self) -> None:
        self._edits_refused = True

    def account(self, who: str) -> str:
        return self._people[who].user

    def shown(self, room: str) -> list[str]:
        return [message.text for message in self.messages(room) if not message.files]

    def messages(self, room: str) -> list[ShownMessage]:
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
            texts = reader.shown_now(events[::-1], room_id, self._app.bot_user)
            events = [reader.opened(room_id, event) for event in events]
        else:
            texts = shown_by(events[::-1], self._app.bot_user)
        return [self._shown_message(event_id, text, events, reader) for event_id, text in texts]

    def _shown_message(self, event_id: str, text: str, events: list[Json], reader: MatrixUser) -> ShownMessage:
        content = next(event["content"] for event in events if event["event_id"] == event_id)
        relation = content.get("m.relates_to", {})
        reply_to = None if relation.get("is_falling_back") else relation.get("m.in_reply_to", {}).get("event_id")
        thread = relation.get("event_id") if relation.get("rel_type") == "m.thread" else None
        reactions = [
            event["content"]["m.relates_to"]["key"]
            for event in events
            if event["type"] == "m.reaction" and event["content"]["m.relates_to"]["event_id"] == event_id
        ]
        shown = ShownMessage(event_id, text, reply_to, thread, reactions=reactions)
        if file := content.get("file", content if "url" in content else None):
            address = f"{self._synapse.url}/_matrix/client/v1/media/download/{file['url'].removeprefix('mxc://')}"
            headers = {"Authorization": f"Bearer {reader.server.token}"}
            data = httpx.get(address, headers=headers, trust_env=False, timeout=60).content
            if "key" in file:
                data = bytes(decrypt_attachment(data, file["key"]["k"], file["hashes"]["sha256"], file["iv"]))
            shown.files.append((text, data))
        return shown

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
        return self._members_of(self._rooms[room])

    def _members_of(self, room_id: str) -> set[str]:
        sql = "SELECT user_id FROM local_current_membership WHERE room_id = ? AND membership = 'join'"
        return {user for (user,) in self._synapse.query(sql, room_id)}

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
        is_edit = content.get("m.relates_to", {}).get("rel_type") == "m.replace"
        if ours and is_edit and self._edits_refused:
            raise PlatformRefused("This message cannot be edited.", "Nothing can be done.")
        event = await self._sent(server, room, kind, content, transaction)
        if fault == "taken, then hung up":
            raise PlatformUnreachable("The line broke.")
        if fault == "stuck after taking":
            await asyncio.Event().wait()
        return event


async def _one_chunk(data: bytes) -> AsyncIterator[bytes]:
    yield data


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
