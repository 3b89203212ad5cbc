"""Users and a bot on our Bot API server, for the surface contract and the tests of Telegram."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from pydantic import SecretStr

from coterie.eventstore import NewEvent
from coterie.messaging.inbox import SurfaceSynced
from coterie.messaging.message_router import MessageRouter
from coterie.messaging.ports import EditPace, Surface
from coterie.messaging.protocol import OutgoingMessage, RoomRef
from coterie.surfaces.telegram.markup import to_html
from coterie.surfaces.telegram.service import TelegramService
from coterie.surfaces.telegram.settings import TelegramSettings
from coterie.surfaces.telegram.surface import TelegramSurface
from coterie.surfaces.telegram.updates import SURFACE, room_ref
from tests.contracts.loopback import Fault, Feature, ShownMessage
from tests.contracts.surface_app import SurfaceApp
from tests.surfaces.telegram.bot_api import BOT, BotApi, Json, SentMessage

GROUPS = ("square",)
"""The rooms with several people; the others are topics of somebody's private chat."""
QUICK = EditPace(min_interval_s=0.02, max_interval_s=0.06, idle_s=0.04)


class TelegramPlatform:
    features: frozenset[Feature] = frozenset({"groups", "replies", "files", "renames"})

    def __init__(self, api: BotApi, url: str, app: SurfaceApp, *, drafts: bool = False) -> None:
        self.api = api
        self.settings = TelegramSettings(token=SecretStr(api.token), api_url=url, poll_s=1, drafts=drafts)
        self._app = app
        self._users: dict[str, int] = {}
        self._rooms: dict[str, tuple[Json, int | None]] = {}
        self._said: dict[tuple[str, str], str] = {}
        self._stack = AsyncExitStack()
        self._polling = asyncio.Lock()

    async def connect(self) -> None:
        self.service = TelegramService(self._app.router, self.settings, lambda _: self._app.files_in(self._any_room()))
        self.service._files_in = self._app.files_in  # type: ignore[method-assign]
        await self._stack.enter_async_context(self.service.connected())
        surface = self._app.router.surfaces[SURFACE]
        assert isinstance(surface, TelegramSurface)
        fields = {name: getattr(surface.capabilities, name) for name in surface.capabilities.__dataclass_fields__}
        surface.capabilities = type(surface.capabilities)(**{**fields, "pace": QUICK})

    async def restart(self) -> None:
        """After a crash of the app."""
        await self._stack.aclose()
        self.api.faults.clear()
        await self.connect()

    async def restart_service(self) -> None:
        """Connect again, with the same app."""
        await self._stack.aclose()
        await self.connect()

    async def close(self) -> None:
        await self._stack.aclose()
        assert self.api.violations == []

    @property
    def surface(self) -> Surface:
        return self._app.router.surfaces[SURFACE]

    def reconnect(self, router: MessageRouter) -> None:
        raise NotImplementedError("restart() connects again")

    def user(self, who: str) -> Json:
        number = self._users.setdefault(who, 1_000 + len(self._users))
        return {"id": number, "is_bot": False, "first_name": who.title()}

    def account(self, who: str) -> str:
        return str(self.user(who)["id"])

    def place(self, who: str, room: str) -> tuple[Json, int | None]:
        if room not in self._rooms:
            if room in GROUPS:
                group = {"id": -1_000 - len(self._rooms), "type": "supergroup", "title": room}
                self._rooms[room] = (group, None)
            else:
                user = self.user(who)
                chat, topic = {"id": user["id"], "type": "private", "first_name": who}, 50_000 + len(self._rooms)
                self.api.topics[user["id"], topic] = room
                self._rooms[room] = (chat, topic)
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
        chat, topic = self.place(who, room)
        text = f"/{text[1:]}" if text.startswith("!") else f"@{BOT['username']} {text}" if mention else text
        more: dict[str, Any] = {}
        if reply_to is not None and reply_to.isdecimal():
            ours = (chat["id"], int(reply_to)) in self.api.sent
            original = {"message_id": int(reply_to), "date": 1, "chat": chat, "text": "…"}
            more["reply_to_message"] = {**original, "from": BOT if ours else self.user(who)}
        if (room, key) in self._said:  # the server gives everything again
            await self.poll(times=2)
            return self._said[room, key]
        self._said[room, key] = str(self.api.message(self.user(who), chat, text, topic, **more))
        await self.poll(times)
        return self._said[room, key]

    async def poll(self, times: int = 1) -> None:
        async with self._polling:
            await self.service.poll_once(0)
            for _ in range(times - 1):  # the server gives them again, as after a crash
                back = SurfaceSynced(surface=SURFACE, cursor=f"{BOT['id']}:0")
                await self._app.store.append([NewEvent(f"surface:{SURFACE}", back)])
                await self.service.poll_once(0)

    async def press(self, who: str, room: str, label: str) -> None:
        sent = next(
            sent for sent in reversed(self._sent(room)) if label in [one["text"] for row in sent.buttons for one in row]
        )
        data = next(one["callback_data"] for row in sent.buttons for one in row if one["text"] == label)
        query = {"id": f"q{sent.id}", "from": self.user(who), "chat_instance": "1", "data": data}
        self.api.update(callback_query={**query, "message": self.api._as_json(sent)})
        await self.poll()

    async def send_file(self, who: str, room: str, name: str, data: bytes) -> None:
        file = {"file_id": self.api.upload(data), "file_unique_id": "u", "file_size": len(data)}
        chat, topic = self.place(who, room)
        self.api.message(self.user(who), chat, topic=topic, document={**file, "file_name": name})
        await self.poll()

    async def join(self, who: str, room: str) -> None:
        chat, topic = self.place(who, room)
        self.api.message(self.user(who), chat, topic=topic, new_chat_members=[self.user(who)])
        await self.poll()

    async def leave(self, who: str, room: str) -> None:
        chat, topic = self.place(who, room)
        self.api.message(self.user(who), chat, topic=topic, left_chat_member=self.user(who))
        await self.poll()

    async def rename(self, who: str, room: str, title: str) -> None:
        chat, topic = self.place(who, room)
        self.api.message(self.user(who), chat, topic=topic, forum_topic_edited={"name": title})
        await self.poll()

    def room_ref(self, room: str) -> RoomRef:
        chat, topic = self._rooms[room]
        return room_ref(chat["id"], topic)

    def notice_thread(self, room: str) -> str | None:
        return None

    def is_in(self, room: str) -> bool:
        return self._rooms[room][0]["id"] not in self.api.left

    def messages(self, room: str) -> list[ShownMessage]:
        shown: list[ShownMessage] = []
        for sent in self._sent(room):
            if sent.file is not None:
                shown.append(ShownMessage(str(sent.id), "", files=[sent.file]))
                continue
            labels = tuple(button["text"] for row in sent.buttons for button in row)
            reply_to = str(sent.reply_to) if sent.reply_to is not None else None
            message = ShownMessage(str(sent.id), self._source(room, sent), reply_to, None, labels)
            message.reactions, message.edits = sent.reactions, sent.edits
            shown.append(message)
        return shown

    def _source(self, room: str, sent: SentMessage) -> str:
        """The Markdown behind a delivered message, after a check that Telegram got it in its own markup; what Telegram
        shows for a message that was not delivered completely."""
        for queued in self._app.router.delivery.outbox.delivered(self.room_ref(room)):
            if queued.message == str(sent.id) and hasattr(queued.outgoing, "text"):
                if isinstance(queued.outgoing, OutgoingMessage):
                    assert sent.html == to_html(queued.outgoing.markdown)
                else:
                    assert sent.html == queued.outgoing.text
                return queued.outgoing.text
        return sent.text

    def shown(self, room: str) -> list[str]:
        return [message.text for message in self.messages(room) if not message.files]

    def fail_next(self, *faults: Fault) -> None:
        self.api.faults.extend(faults)

    def refuse_edits(self) -> None:
        self.api.edits_refused = True

    def most_edits(self) -> int:
        return max(sent.edits for sent in self.api.sent.values())

    def _sent(self, room: str) -> list[SentMessage]:
        chat, topic = self._rooms.get(room, ({"id": 0}, None))
        return self.api.in_chat(chat["id"], topic)

    def _any_room(self) -> RoomRef:
        return room_ref(1)


@asynccontextmanager
async def telegram(app: SurfaceApp, *, drafts: bool = False) -> AsyncIterator[TelegramPlatform]:
    api = BotApi()
    async with api.running() as url:
        platform = TelegramPlatform(api, url, app, drafts=drafts)
        await platform.connect()
        try:
            yield platform
        finally:
            await platform.close()
