"""What receives the events of Telegram, Twitch and a crowd's broker, on stand-ins for the rooms behind it.

A receiver does all that the server does with an input, except that nothing is sent, and what would be stored is only
serialised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel, ValidationError
from telegram import Bot, User

from coterie.base.clock import SystemClock
from coterie.base.untrusted import parse_json_without_deep_parts
from coterie.messaging.inbox import MessageReceived, SurfaceSynced
from coterie.modes.crowd.cluster.gateway import KIND_HEADER, TOKEN_HEADER, ClusterGateway
from coterie.modes.crowd.cluster.session import ClusterSession
from coterie.modes.crowd.errors import MessageRefused
from coterie.modes.crowd.events import CrowdOpened, CrowdRuled
from coterie.modes.crowd.gateway.admission import ChatIdentity, ChatTokens
from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.protocol import ChatMessage, ChatPost
from coterie.modes.crowd.settings import SHIPPED_CONFIGS, RoomConfig, RoomTwitch, _parse
from coterie.surfaces.telegram.service import TelegramService
from coterie.surfaces.telegram.settings import TelegramSettings
from coterie.surfaces.twitch.bridge import TwitchBridge, TwitchSettings
from coterie.surfaces.twitch.irc import _parse as parse_irc

BOT = {"id": 123456, "is_bot": True, "first_name": "Coterie", "username": "coterie_bot"}


class TelegramReceiver:
    """A bot in chats with strangers."""

    def __init__(self) -> None:
        messages: Any = SimpleNamespace(inbound=self)
        self.inbox = SimpleNamespace(find=lambda _: None)
        self._service = TelegramService(messages, TelegramSettings(), lambda _: messages)
        bot = Bot(f"{BOT['id']}:token", base_url="http://127.0.0.1:1/bot")
        bot._bot_user = User.de_json(dict(BOT), bot)
        self._service._bot = bot
        self._service._acknowledge = _without_effect  # type: ignore[method-assign, assignment]
        self._loop = asyncio.new_event_loop()

    def receive(self, data: bytes) -> None:
        try:
            update = parse_json_without_deep_parts(data)
        except ValueError:
            return
        if isinstance(update, dict):
            self._loop.run_until_complete(self._service.accept([update, {"update_id": 2}]))

    async def accept(self, incoming: Any, cursor: SurfaceSynced, skipped: Any) -> None:
        payloads = [cursor, *skipped, *(MessageReceived(incoming=event) for event in incoming)]
        for payload in payloads:
            payload.model_dump_json()

    def is_known(self, _account: object) -> bool:
        return False

    def close(self) -> None:
        self._loop.close()


class TwitchReceiver:
    """A bridge to a room that admits everything."""

    def __init__(self) -> None:
        room: Any = self
        self.admission = SimpleNamespace(room="a")
        self._bridge = TwitchBridge(room, room, TwitchSettings(account="us"), RoomTwitch(channel="streamer"))
        self._loop = asyncio.new_event_loop()

    def receive(self, data: bytes) -> None:
        self._loop.run_until_complete(self._handle(data))

    async def _handle(self, data: bytes) -> None:
        for line in parse_irc(data):
            await self._bridge.handle(line)
        storing = list(self._bridge._storing.values())
        await asyncio.gather(*storing)

    async def post(self, post: ChatPost, **_: object) -> ChatMessage:
        return _stored(post)

    async def moderate(self, ruling: CrowdRuled) -> None:
        ruling.model_dump_json()

    def now_ms(self) -> int:
        return 1

    def latest(self, _count: int) -> list[ChatMessage]:
        return []

    def close(self) -> None:
        self._loop.close()


class BrokerReceiver:
    """The gateway of a room behind a broker, in a session with one persona. Every delivery has to be acknowledged."""

    def __init__(self) -> None:
        room: Any = self
        self.sessions: Any = None
        self.broker: Any = self
        self.admission = SimpleNamespace(room="a", is_persona=lambda _: True, sent=lambda _: None)
        tokens = ChatTokens(b"k" * 32, SystemClock())
        self._token = tokens.issue("a", ChatIdentity("personas", "worker"))
        self._gateway = ClusterGateway(room, room, room, tokens)
        persona = _parse(Persona, SHIPPED_CONFIGS / "personas" / "aunt_entropy.toml").model_dump(mode="json")
        rules = _parse(RoomConfig, SHIPPED_CONFIGS / "rooms" / "late-shift.toml").model_dump(mode="json")
        self.opened = CrowdOpened(room="a", seed=1, start_ms=1, rules=rules, personas=(persona,))
        session = ClusterSession(self.opened, room, room, room, speaking="model")
        self._gateway.on_record = session._on_record
        self._gateway.answer_recall = session._recall
        self._acknowledged = False
        self._loop = asyncio.new_event_loop()

    def receive_record(self, kind: str) -> Callable[[bytes], object]:
        return lambda data: self._deliver(self._gateway._handle_record, data, kind)

    def receive_post(self, data: bytes) -> None:
        self._deliver(self._gateway._handle_post, data)

    def receive_recall(self, data: bytes) -> None:
        self._deliver(self._gateway._handle_recall, data)

    def _deliver(self, handle: Callable[[Any], Coroutine[Any, Any, None]], data: bytes, kind: str = "") -> None:
        headers = {TOKEN_HEADER: self._token, KIND_HEADER: kind}
        delivery = SimpleNamespace(data=data, headers=headers, ack=self._acknowledge, respond=self._acknowledge)
        delivery.metadata = SimpleNamespace(num_delivered=1)
        self._acknowledged = False
        self._gateway._recorded.clear()  # otherwise most would be taken for repetitions
        self._loop.run_until_complete(handle(delivery))
        if not self._acknowledged:
            raise AssertionError("It was not acknowledged, so the broker delivers it again.")

    async def _acknowledge(self, *_: object) -> None:
        self._acknowledged = True

    async def post(self, post: ChatPost) -> ChatMessage:
        return _stored(post)

    def record(self, payload: BaseModel) -> None:
        payload.model_dump_json()

    async def flush(self) -> None:
        """There is nothing to write."""

    def audit_stranger(self, _rule: str, _why: str) -> None:
        """Strangers are not counted."""

    def now_ms(self) -> int:
        return 1

    def close(self) -> None:
        self._loop.close()


def _stored(post: ChatPost) -> ChatMessage:
    try:
        return ChatMessage(
            id="a-1",
            number=1,
            room="a",
            author=post.author,
            text=post.text,
            reply_to=post.reply_to,
            ts=1,
            nonce=post.id,
        )
    except ValidationError:
        raise MessageRefused("shape", "It is not a line of a chat.", "Shorten it.") from None


async def _without_effect(_update: object) -> None:
    """Nothing is sent."""
