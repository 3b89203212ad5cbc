"""Users and a bot on our own Discord, for the surface contract and the tests of Discord."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from pydantic import SecretStr

from coterie.messaging.message_router import MessageRouter
from coterie.messaging.ports import EditPace, Surface
from coterie.messaging.protocol import OutgoingMessage, OutgoingNotification, OutgoingUI, RoomRef
from coterie.surfaces.discord import service as service_module
from coterie.surfaces.discord import surface as surface_module
from coterie.surfaces.discord.messages import SURFACE, room_ref
from coterie.surfaces.discord.service import DiscordService, GatewayConnection
from coterie.surfaces.discord.settings import DiscordSettings
from coterie.surfaces.discord.surface import DiscordSurface
from tests.contracts.loopback import Fault, Feature, ShownMessage
from tests.contracts.surface_app import SurfaceApp
from tests.surfaces.discord.discord_server import BOT, DiscordServer, Json, Sent

GROUPS = ("square",)
"""Public threads; the other rooms are private threads with one person."""
QUICK = EditPace(min_interval_s=0.02, max_interval_s=0.06, idle_s=0.04)
service_module.GUILDS_WAIT_S = 0.05


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


class DiscordPlatform:
    features: frozenset[Feature] = frozenset({"groups", "replies", "files", "renames"})

    def __init__(self, server: DiscordServer, url: str, app: SurfaceApp) -> None:
        self.server = server
        self.settings = DiscordSettings(token=SecretStr(server.token), api_url=url)
        self._app = app
        self._rooms: dict[str, Json] = {}
        self._said: dict[tuple[str, str], tuple[str, str, Json]] = {}
        self._stack = AsyncExitStack()
        self._lock = asyncio.Lock()

    async def connect(self) -> None:
        self.service = DiscordService(self._app.router, self.settings, self._app.files_in_workspace)
        self.service._files_in = self._app.files_in  # type: ignore[method-assign]
        self.connection = await self._stack.enter_async_context(self.service.connected())
        surface = self._app.router.surfaces[SURFACE]
        assert isinstance(surface, DiscordSurface)
        surface.capabilities = replace(surface.capabilities, pace=QUICK)
        following = asyncio.create_task(self.connection.follow())
        self._stack.push_async_callback(_end, following)
        await asyncio.wait(
            (following, caught_up := asyncio.create_task(self.connection.caught_up.wait())),
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not caught_up.done():
            caught_up.cancel()
            following.result()

    async def restart(self) -> None:
        """After a crash of the app, or to connect again with the same app."""
        await self.disconnect()
        await self.connect()

    async def disconnect(self) -> None:
        await self._stack.aclose()
        self.server.faults.clear()

    async def close(self) -> None:
        await self._stack.aclose()
        assert not self.server.violations, self.server.violations

    @property
    def surface(self) -> Surface:
        return self._app.router.surfaces[SURFACE]

    def reconnect(self, router: MessageRouter) -> None:
        raise NotImplementedError("restart() connects again")

    def account(self, who: str) -> str:
        return str(self.server.user(who)["id"])

    async def place(self, who: str, room: str) -> Json:
        if room not in self._rooms:
            user = self.server.user(who)
            self._rooms[room] = self.server.thread(user["id"], room, [user["id"]], private=room not in GROUPS)
            await self.server.dispatch("THREAD_CREATE", self._rooms[room])
        return self._rooms[room]

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
        user = self.server.user(who)
        async with self._lock:
            channel = await self.place(who, room)
        if room in GROUPS:
            self.server.members[channel["id"]].add(user["id"])
        if (room, key) in self._said:  # the gateway tells it again
            number, kind, data = self._said[room, key]
            await self.server.dispatch(kind, data)
        elif text.startswith("!"):
            name, _, rest = text[1:].partition(" ")
            await self.server.slash(user, channel, name, rest.strip())
            number, (_, data) = list(self.server._interactions.items())[-1]
            kind = "INTERACTION_CREATE"
        else:
            more: Json = {}
            if reply_to is not None and reply_to.isdecimal():
                more |= {"message_reference": {"message_id": reply_to, "channel_id": channel["id"]}, "type": 19}
            mentioned = f"<@{BOT['id']}> {text}" if mention else text
            data = await self.server.write(user, channel, mentioned, **more)
            number, kind = data["id"], "MESSAGE_CREATE"
        for _ in range(times - 1):
            await self.server.dispatch(kind, data)
        self._said[room, key] = (number, kind, data)
        await self.settle(data if kind == "INTERACTION_CREATE" else None)
        return str(number)

    async def settle(self, interaction: Json | None = None) -> None:
        """Wait until what the gateway told is stored."""
        if interaction is not None:
            key = f"in:{SURFACE}/{interaction['channel_id']}:interaction {interaction['id']}"
            inbound, stored = self._app.router.inbound, self._app.store.reader.id_by_key

            def is_answered_or_will_be() -> bool:
                # It is stored a moment before the room's task is started.
                received = stored(key)
                return received is not None and (inbound.is_busy or inbound.inbox.state(received) == "answered")

            await until(is_answered_or_will_be)
            return
        await settle(self.server, self.connection)

    async def press(self, who: str, room: str, label: str) -> None:
        sent = next(
            sent for sent in reversed(self._sent(room)) if label in [button["label"] for button in sent.buttons]
        )
        button = next(button for button in sent.buttons if button["label"] == label)
        await self.server.press(self.server.user(who), self._rooms[room], sent, button["custom_id"])
        _, (_, interaction) = list(self.server._interactions.items())[-1]
        await self.settle(interaction)

    async def send_file(self, who: str, room: str, name: str, data: bytes) -> None:
        channel = await self.place(who, room)
        await self.server.write(self.server.user(who), channel, "", attachments=[self.server.upload(name, data)])
        await self.settle()

    async def join(self, who: str, room: str) -> None:
        await self.server.change_member(await self.place(who, room), self.server.user(who), joins=True)
        await self.settle()

    async def leave(self, who: str, room: str) -> None:
        await self.server.change_member(await self.place(who, room), self.server.user(who), joins=False)
        await self.settle()

    async def rename(self, who: str, room: str, title: str) -> None:
        await self.server.rename(self.server.user(who), await self.place(who, room), title)
        await self.settle()

    def room_ref(self, room: str) -> RoomRef:
        return room_ref(int(self._rooms[room]["id"]))

    def notice_thread(self, room: str) -> str | None:
        return None

    def is_in(self, room: str) -> bool:
        return self._rooms[room]["id"] not in self.server.left

    def messages(self, room: str) -> list[ShownMessage]:
        shown: list[ShownMessage] = []
        for sent in self._sent(room):
            reference: dict[str, Any] = sent.json.get("message_reference") or {}
            labels = tuple(button["label"] for button in sent.buttons)
            reply_to = str(reference["message_id"]) if reference else None
            message = ShownMessage(sent.id, self._source(room, sent), reply_to, None, labels, sent.files)
            message.reactions, message.edits = sent.reactions, sent.edits
            shown.append(message)
        return shown

    def _source(self, room: str, sent: Sent) -> str:
        """The Markdown behind a delivered message, after a check that Discord got it; what Discord shows for a message
        that was not delivered completely."""
        for queued in self._app.router.delivery.outbox.delivered(self.room_ref(room)):
            outgoing = queued.outgoing
            if queued.message == sent.id and isinstance(outgoing, OutgoingMessage | OutgoingUI | OutgoingNotification):
                assert sent.text == surface_module._text(outgoing)
                return outgoing.text
        return sent.text

    def shown(self, room: str) -> list[str]:
        return [message.text for message in self.messages(room) if message.text]

    def fail_next(self, *faults: Fault) -> None:
        self.server.faults.extend(faults)

    def refuse_edits(self) -> None:
        self.server.edits_refused = True

    def most_edits(self) -> int:
        return max(sent.edits for sent in self.server.sent.values())

    def _sent(self, room: str) -> list[Sent]:
        return self.server.in_channel(self._rooms[room]["id"]) if room in self._rooms else []


async def settle(server: DiscordServer, connection: GatewayConnection) -> None:
    """Wait until everything that the gateway told is stored."""
    session = list(server.sessions.values())[-1]
    client = connection._client
    await until(lambda: (client.ws.sequence or 0) >= len(session.sent))
    for _ in range(5):  # the library starts a task for each event
        await asyncio.sleep(0)
    await connection.wait_received()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task


@asynccontextmanager
async def discord(app: SurfaceApp) -> AsyncIterator[DiscordPlatform]:
    server = DiscordServer()
    async with server.running() as url:
        platform = DiscordPlatform(server, url, app)
        await platform.connect()
        try:
            yield platform
        finally:
            await platform.close()
