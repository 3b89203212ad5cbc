"""Run the Telegram surface: check the token, attach to the router, and receive updates by polling or by webhook.

Updates go to the inbox in one transaction with the position after them; only then is Telegram told that they arrived.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx
from telegram import Bot, Message, Update
from telegram.error import Conflict, InvalidToken, TelegramError
from telegram.request import HTTPXRequest

from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.supervisor import Supervisor
from coterie.base.untrusted import parse_json_without_deep_parts
from coterie.conversation import RoomError
from coterie.messaging import (
    BadFile,
    Incoming,
    IncomingCommand,
    IncomingMessage,
    MemberChange,
    MessageRouter,
    MessengerConnection,
    MessengerStatus,
    Outgoing,
    OutgoingNotification,
    PlatformRateLimited,
    PlatformUnreachable,
    Quarantine,
    RoomFiles,
    RoomRef,
    SurfaceError,
    SurfaceSynced,
    testing_connection,
)
from coterie.surfaces.telegram.settings import WEBHOOK_PATH, TelegramSettings
from coterie.surfaces.telegram.surface import TelegramSurface, telegram_error
from coterie.surfaces.telegram.updates import SURFACE, UPDATES, files_of, read_update

COMMANDS = (
    ("start", "Begin a chat"),
    ("new", "Begin a new chat"),
    ("chats", "List your chats"),
    ("rename", "Rename this chat"),
    ("archive", "Archive this chat"),
    ("settings", "Show the settings"),
    ("stop", "End the running reply"),
    ("help", "List all commands"),
)
GREETING = "Hello. In this group I answer when I am mentioned (@{name}), named or replied to. /help lists commands."
_MAX_DOWNLOAD = 20_000_000
_MAX_WAIT_S = 3_600.0
_log = get_logger(__name__)


@dataclass(frozen=True)
class BotInfo:
    """Who the bot is."""

    id: int
    name: str
    username: str

    @property
    def link(self) -> str:
        return f"https://t.me/{self.username}"


async def check_token(settings: TelegramSettings) -> BotInfo:
    """Ask Telegram who the bot is. `PlatformUnreachable` if the token is wrong or Telegram does not answer in time."""
    bot = _bot(settings, timeout_s=3.5)
    try:
        async with testing_connection("Telegram"):
            return await _who_is(bot)
    finally:
        await bot.shutdown()


class TelegramService:
    def __init__(
        self,
        router: MessageRouter,
        settings: TelegramSettings,
        files: Callable[[str], RoomFiles],
        supervisor: Supervisor | None = None,
    ) -> None:
        """`files` gives the files of a character."""
        self._router = router
        self._settings = settings
        self._files = files
        self._bot: Bot | None = None
        self._username = ""
        self._connection = MessengerConnection(
            "Telegram", self._follow, supervisor or Supervisor(), on=settings.token is not None
        )

    @property
    def status(self) -> MessengerStatus:
        return self._connection.status

    def configure(self, settings: TelegramSettings) -> None:
        """Use these settings from now on, without a restart."""
        self._settings = settings
        self._connection.configure(on=settings.token is not None)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Run in the background; without a token, wait for one."""
        return self._connection.running()

    async def _follow(self) -> None:
        async with self.connected():
            while True:
                if self._settings.webhook_url:
                    await asyncio.Event().wait()
                await self.poll_once()

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Check the token and attach; the caller polls."""
        self._bot = bot = _bot(self._settings, timeout_s=20.0)
        self._http = httpx.AsyncClient(base_url=f"{bot.base_url}/", trust_env=False)
        try:
            info = await _who_is(bot)
            self._username = info.username
            self._connection.identify(f"{info.name} (@{info.username})", info.link)
            await _checked(bot.set_my_commands(COMMANDS))
            if self._settings.webhook_url:
                address = self._settings.webhook_url.rstrip("/") + WEBHOOK_PATH
                await _checked(
                    bot.set_webhook(address, allowed_updates=UPDATES, secret_token=webhook_secret(self._settings))
                )
            else:
                await _checked(bot.delete_webhook())
            surface = TelegramSurface(bot, self._files_in, drafts=self._settings.drafts)
            self._router.dispatcher.on(MemberChange, "invited", surface=SURFACE)(self.on_invite)
            self._router.attach(surface)
            self._connection.set_state("connected")
            _log.info("Telegram is connected", bot=info.username)
            try:
                yield
            finally:
                self._router.detach(surface)
        finally:
            await self._http.aclose()
            await bot.shutdown()

    async def on_invite(self, incoming: MemberChange) -> AsyncIterator[Outgoing]:
        yield OutgoingNotification(room=incoming.room, text=GREETING.format(name=self._username))

    async def poll_once(self, wait_s: int | None = None) -> int:
        """Receive the next updates and make them durable. Returns how many there were."""
        bot = self._connected_bot()
        wait_s = self._settings.poll_s if wait_s is None else wait_s
        options: dict[str, Any] = {"timeout": str(wait_s), "allowed_updates": json.dumps(UPDATES)}
        if (offset := self._offset(bot)) is not None:
            options["offset"] = str(offset)
        updates = await self._get_updates(options, wait_s)
        received = [update for update in updates if isinstance(update, dict)] if isinstance(updates, list) else []
        if received:
            await self.accept(received)
        return len(received)

    async def _get_updates(self, options: dict[str, str], wait_s: int) -> Any:
        """As JSON, and not by the library's own method: it fails for all updates if it cannot read one."""
        try:
            response = await self._http.post("getUpdates", data=options, timeout=wait_s + 10)
            body = parse_json_without_deep_parts(response.content)
        except httpx.TransportError as error:
            raise PlatformUnreachable(f"Telegram cannot be reached ({type(error).__name__}).") from error
        except ValueError:
            raise PlatformUnreachable(f"Telegram answered {response.status_code}.") from None
        if isinstance(body, dict) and body.get("ok"):
            return body.get("result")
        if response.status_code == 429:
            raise PlatformRateLimited("Telegram limits the rate.", _retry_after_s(body))
        if response.status_code in (401, 404):
            raise telegram_error(InvalidToken())
        if response.status_code == 409:
            raise telegram_error(Conflict(""))
        raise PlatformUnreachable(f"Telegram answered {response.status_code}.")

    def accepts_webhook(self, secret: str) -> bool:
        """Whether an update that was posted with this secret is Telegram's. The caller then passes it to `accept`."""
        is_right = hmac.compare_digest(secret.encode("utf-8", "replace"), webhook_secret(self._settings).encode())
        return is_right and self.status.state == "connected"

    async def accept(self, raw: Sequence[dict[str, Any]]) -> None:
        """Store the events of updates, in one transaction with the position after them. Raises if that failed."""
        bot = self._connected_bot()
        quarantine = Quarantine(SURFACE, (PlatformUnreachable, PlatformRateLimited))
        incoming: list[Incoming] = []
        updates: list[Update] = []
        for one in raw:
            with quarantine.reading(one, event_id=str(one.get("update_id", ""))):
                update = Update.de_json(one, bot)
                incoming += [await self._complete(event, update) for event in read_update(update, bot.bot)]
                updates.append(update)
        numbers = [number for one in raw if isinstance(number := one.get("update_id"), int)]
        cursor = SurfaceSynced(surface=SURFACE, cursor=f"{bot.id}:{max(numbers, default=-1) + 1}")
        await self._router.inbound.accept(incoming, cursor, quarantine.skipped)
        dates = [event.at for event in incoming if event.at is not None]
        if dates:
            self._connection.received_at(max(dates))
        for update in updates:
            if update.callback_query is not None:
                await self._acknowledge(update)

    async def _complete(self, event: Incoming, update: Update) -> Incoming:
        """With its files saved, and a code in `/start CODE` as a link."""
        is_known = self._router.inbound.is_known(event.account)
        if isinstance(event, IncomingCommand) and event.name == "start" and event.arguments.strip() and not is_known:
            return event.model_copy(update={"name": "link"})
        is_new = self._router.inbound.inbox.find(event) is None
        if isinstance(event, IncomingMessage) and update.message is not None and is_known and is_new:
            return await self._with_files(event, update.message)
        return event

    async def _with_files(self, incoming: IncomingMessage, message: Message) -> IncomingMessage:
        bot, saved = self._connected_bot(), []
        for file in files_of(message):
            try:
                if file.size > _MAX_DOWNLOAD:
                    raise BadFile("Telegram gives bots files of up to 20 MB.", "Send a smaller one.")
                remote = await _checked(bot.get_file(file.id))
                data = bytes(await _checked(remote.download_as_bytearray()))
                chunks = _single_chunk(data)
                saved.append(
                    await self._files_in(incoming.room).save(
                        incoming.room, file.name, chunks, file.media_type, sender=self._router.chats.sender(incoming).id
                    )
                )
            except (PlatformUnreachable, PlatformRateLimited):
                raise  # the update is received again
            except (RoomError, SurfaceError) as error:
                _log.warning("a file was not saved", room=incoming.room.id, error=redact(str(error)))
                text = f"{incoming.text}\n(a file came with this and could not be saved: {error.what})".strip()
                incoming = incoming.model_copy(update={"text": text})
        return incoming.model_copy(update={"attachments": tuple(saved)}) if saved else incoming

    async def _acknowledge(self, update: Update) -> None:
        """End the button's waiting animation and remove the buttons: the question is answered."""
        query = update.callback_query
        if query is None:
            return
        with suppress(TelegramError):
            await query.answer()
        if isinstance(query.message, Message):
            with suppress(TelegramError):
                await self._connected_bot().edit_message_reply_markup(query.message.chat.id, query.message.message_id)

    def _offset(self, bot: Bot) -> int | None:
        """The position of the first update that was not received; none for another bot than last time."""
        identity, _, offset = (self._router.inbound.inbox.cursor(SURFACE) or "").partition(":")
        return int(offset) if identity == str(bot.id) and offset.isdecimal() else None

    def _connected_bot(self) -> Bot:
        if self._bot is None:
            raise PlatformUnreachable("Telegram is not connected.", ambiguous=False)
        return self._bot

    def _files_in(self, room: RoomRef) -> RoomFiles:
        binding = self._router.chats.rooms.find(room)
        return self._files(binding.character if binding is not None else "shared")


def webhook_secret(settings: TelegramSettings) -> str:
    """Derived from the token, so that only Telegram and we know it."""
    token = settings.token.get_secret_value() if settings.token is not None else ""
    return hashlib.sha256(f"webhook {token}".encode()).hexdigest()


def _bot(settings: TelegramSettings, timeout_s: float) -> Bot:
    token = settings.token.get_secret_value().strip() if settings.token is not None else ""
    redact.register(token)
    url = settings.api_url.rstrip("/")

    def request() -> HTTPXRequest:
        return HTTPXRequest(
            read_timeout=timeout_s,
            write_timeout=timeout_s,
            connect_timeout=min(timeout_s, 5.0),
            media_write_timeout=300.0,
            httpx_kwargs={"trust_env": False},
        )

    try:
        return Bot(
            token,
            base_url=f"{url}/bot",
            base_file_url=f"{url}/file/bot",
            request=request(),
            get_updates_request=request(),
        )
    except TelegramError as error:
        raise telegram_error(error) from error


async def _who_is(bot: Bot) -> BotInfo:
    await _checked(bot.initialize())
    return BotInfo(bot.id, bot.bot.full_name, bot.username)


async def _checked(call: Any) -> Any:
    try:
        return await call
    except TelegramError as error:
        raise telegram_error(error) from error


def _retry_after_s(body: Any) -> float:
    """How long Telegram wants us to wait, as far as it says so."""
    parameters = body.get("parameters") if isinstance(body, dict) else None
    wait = parameters.get("retry_after") if isinstance(parameters, dict) else None
    return min(max(0.0, float(wait)), _MAX_WAIT_S) if isinstance(wait, int | float) and abs(wait) < 1e9 else 5.0


async def _single_chunk(data: bytes) -> AsyncIterator[bytes]:
    yield data
