"""The Telegram adapter: sends and edits messages, files, buttons and reactions through the Bot API.

The Bot API has no idempotent send. A send that may have arrived is repeated, and recorded as possibly shown twice.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import httpx
from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, InputFile, Message, ReplyParameters
from telegram.constants import ChatAction, ParseMode, ReactionEmoji
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
)

from coterie.base.logging import get_logger
from coterie.messaging import (
    Account,
    Attachment,
    Button,
    Capabilities,
    Deliverable,
    EditPace,
    OutgoingMessage,
    OutgoingReaction,
    OutgoingUI,
    PlatformRateLimited,
    PlatformRefused,
    PlatformUnreachable,
    RoomFiles,
    RoomRef,
    SurfaceError,
)
from coterie.surfaces.telegram.markup import to_html
from coterie.surfaces.telegram.updates import SURFACE, chat_and_topic, room_ref

FilesOf = Callable[[RoomRef], RoomFiles]
"""The files of the character who answers in a room."""
T = TypeVar("T")
_MAX_TEXT = 4_096
_MAX_FILE = 50_000_000
_MAX_PHOTO = 10_000_000
_MAX_CALLBACK_BYTES = 64
_MAX_TITLE = 128
_PHOTOS = ("image/jpeg", "image/png", "image/webp")
_BUTTONS_PER_ROW = 4
_REMEMBERED = 1_000
_log = get_logger(__name__)
os.environ.setdefault("PTB_TIMEDELTA", "true")
"""The library's switch for its future type of time spans; without it every rate limit is a deprecation warning."""


def telegram_error(error: TelegramError) -> SurfaceError:
    """What an error of the Bot API means for a delivery."""
    match error:
        case RetryAfter():
            return PlatformRateLimited("Telegram limits the rate.", _retry_after_s(error))
        case InvalidToken():
            return PlatformUnreachable(
                "Telegram does not accept the bot's token: it is wrong or was revoked.",
                "Get a new one from @BotFather, and enter it in Settings → Messengers.",
                ambiguous=False,
            )
        case Conflict():
            return PlatformUnreachable(
                "Another program receives this bot's messages.",
                "Stop it, or give Coterie a bot of its own.",
                ambiguous=False,
            )
        case ChatMigrated():
            return PlatformRefused("The group became a supergroup.", "Write there again, and a chat begins.")
        case BadRequest() | Forbidden():
            return PlatformRefused(f"Telegram refused: {error.message[:200]}", "Check the bot's rights in the chat.")
        case NetworkError():
            return _network_error(error)
        case _:
            return PlatformUnreachable(f"Telegram's answer cannot be read ({error.message[:100]}).")


def _network_error(error: NetworkError) -> PlatformUnreachable:
    cause = error.__cause__
    if cause is None:  # Telegram answered that it failed
        return PlatformUnreachable(f"Telegram answered: {error.message[:100]}", ambiguous=False)
    is_certain = isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    return PlatformUnreachable(f"Telegram cannot be reached ({type(cause).__name__}).", ambiguous=not is_certain)


def _retry_after_s(error: RetryAfter) -> float:
    wait = error.retry_after
    return wait.total_seconds() if isinstance(wait, timedelta) else float(wait)


class TelegramSurface:
    name = SURFACE

    def __init__(self, bot: Bot, files: FilesOf, *, drafts: bool = False) -> None:
        self.capabilities = Capabilities(
            max_length=_MAX_TEXT,
            length_unit="utf-16",
            max_file_bytes=_MAX_FILE,
            can_edit=not drafts,
            previews=drafts,
            buttons=True,
            reactions=True,
            can_create_rooms=True,
            pace=EditPace(min_interval_s=0.3, max_interval_s=2.0, idle_s=1.0),
        )
        self._bot = bot
        self._files = files
        self._created: OrderedDict[str, RoomRef] = OrderedDict()
        self._sent_texts: OrderedDict[str, str] = OrderedDict()
        """The ids of texts whose files are not sent yet, by token, so that a retry does not repeat the text."""

    async def send(self, outgoing: Deliverable, token: str) -> str:
        chat, topic = chat_and_topic(outgoing.room)
        if isinstance(outgoing, OutgoingReaction):
            return await self._react(outgoing, chat, topic)
        message = self._sent_texts.get(token, "")
        if outgoing.text.strip() and not message:
            message = await self._send_text(outgoing, chat, topic)
            _remember(self._sent_texts, token, message)
        if isinstance(outgoing, OutgoingMessage):
            for number, file in enumerate(outgoing.attachments):
                sent = await self._send_file(outgoing, file, f"{token}.f{number}")
                message = message or sent
        return message

    async def edit(self, outgoing: Deliverable, message: str, token: str) -> None:
        if isinstance(outgoing, OutgoingReaction):
            raise PlatformRefused("A reaction cannot be edited.", "Nothing needs to be done.")
        chat, _ = chat_and_topic(outgoing.room)

        async def edit(text: str, parse_mode: str | None) -> None:
            try:
                await self._bot.edit_message_text(text, chat, int(message), parse_mode=parse_mode)
            except BadRequest as error:
                if "not modified" not in error.message.lower():
                    raise

        await self._formatted(outgoing, edit)
        if isinstance(outgoing, OutgoingMessage):
            for number, file in enumerate(outgoing.attachments):
                await self._send_file(outgoing, file, f"{token}.f{number}")

    async def preview(self, outgoing: OutgoingMessage, token: str) -> None:
        chat, topic = chat_and_topic(outgoing.room)
        draft = int.from_bytes(hashlib.sha256(token.encode()).digest()[:4]) >> 1 or 1
        await self._formatted(
            outgoing,
            lambda text, parse_mode: self._bot.send_message_draft(
                chat, draft, text, message_thread_id=topic, parse_mode=parse_mode
            ),
        )

    async def typing(self, room: RoomRef, on: bool) -> None:
        if on:  # it ends with the next message
            chat, topic = chat_and_topic(room)
            await _checked(self._bot.send_chat_action(chat, ChatAction.TYPING, message_thread_id=topic))

    async def create_room(self, person: Account, title: str, key: str, asked_in: RoomRef) -> RoomRef | None:
        """A topic of the chat it was asked in; None if that chat has no topics."""
        chat, _ = chat_and_topic(asked_in)
        cached = self._created.get(f"{chat} {key}")
        is_private = chat > 0
        if cached is not None or (is_private and not self._bot.bot.has_topics_enabled):
            return cached
        try:
            topic = await _checked(self._bot.create_forum_topic(chat, title[:_MAX_TITLE] or "Chat"))
        except PlatformRefused as error:
            _log.info("no topic could be created", chat=chat, error=str(error))
            return None
        room = room_ref(chat, topic.message_thread_id)
        _remember(self._created, f"{chat} {key}", room)
        return room

    async def rename_room(self, room: RoomRef, title: str) -> None:
        chat, topic = chat_and_topic(room)
        if topic is None:
            return  # the name of a chat is its people's
        try:
            await _checked(self._bot.edit_forum_topic(chat, topic, title[:_MAX_TITLE]))
        except PlatformRefused as error:
            if "not_modified" not in str(error).lower().replace(" ", "_"):
                raise

    async def is_private(self, room: RoomRef, account: Account) -> bool:
        return str(chat_and_topic(room)[0]) == account.id  # a private chat has the id of its person

    async def leave_room(self, room: RoomRef) -> None:
        chat, _ = chat_and_topic(room)
        if chat < 0:
            await _checked(self._bot.leave_chat(chat))

    async def direct_room(self, person: Account) -> RoomRef | None:
        """The private chat, if the person has begun one: a bot cannot."""
        with suppress(PlatformRefused):
            await _checked(self._bot.send_chat_action(int(person.id), ChatAction.TYPING))
            return room_ref(int(person.id))
        return None

    async def _react(self, outgoing: OutgoingReaction, chat: int, topic: int | None) -> str:
        """Telegram has a fixed set of reactions; any other emoji is written as a reply."""
        emoji = outgoing.emoji.replace("\ufe0f", "")
        known = {reaction.value.replace("\ufe0f", ""): reaction.value for reaction in ReactionEmoji}
        if emoji in known and outgoing.to.isdecimal():
            await _checked(self._bot.set_message_reaction(chat, int(outgoing.to), known[emoji]))
            return f"{outgoing.to} {outgoing.emoji}"
        room, to = outgoing.room, outgoing.to
        return await self._send_text(OutgoingMessage(room=room, text=outgoing.emoji, reply_to=to), chat, topic)

    async def _send_text(self, outgoing: Any, chat: int, topic: int | None) -> str:
        options: dict[str, Any] = {"message_thread_id": topic}
        if isinstance(outgoing, OutgoingMessage) and outgoing.reply_to is not None and outgoing.reply_to.isdecimal():
            options["reply_parameters"] = ReplyParameters(int(outgoing.reply_to), allow_sending_without_reply=True)
        if isinstance(outgoing, OutgoingUI) and outgoing.buttons:
            options["reply_markup"] = _keyboard(outgoing.buttons)
        sent = await self._formatted(
            outgoing, lambda text, mode: self._bot.send_message(chat, text, parse_mode=mode, **options)
        )
        return await self._in_topic(sent, topic)

    async def _in_topic(self, sent: Message, topic: int | None) -> str:
        """The id of a sent message. What fell out of a deleted topic into the main chat is removed there."""
        if topic is None or sent.message_thread_id == topic:
            return str(sent.message_id)
        with suppress(SurfaceError):
            await _checked(self._bot.delete_message(sent.chat_id, sent.message_id))
        raise PlatformRefused("This topic was deleted.", "Write in another one.")

    async def _formatted(self, outgoing: Any, call: Callable[[str, str | None], Awaitable[T]]) -> T:
        """Send formatted text; plain text if Telegram cannot read the formatting. Notices are plain."""
        if isinstance(outgoing, OutgoingMessage) and (html := to_html(outgoing.markdown)):
            try:
                return await _checked(call(html, ParseMode.HTML))
            except PlatformRefused as error:
                text = str(error).lower()
                if "parse entities" not in text and "too long" not in text:
                    raise
                _log.warning("formatted text was refused: sending it plain", error=str(error))
        return await _checked(call(outgoing.text, None))

    async def _send_file(self, outgoing: OutgoingMessage, file: Attachment, token: str) -> str:
        if token in self._sent_texts:
            return self._sent_texts[token]
        chat, topic = chat_and_topic(outgoing.room)
        is_photo = file.media_type in _PHOTOS and file.size <= _MAX_PHOTO
        with self._files(outgoing.room).open(file.path, outgoing.room) as opened:
            content = InputFile(opened, filename=file.name or "file", read_file_handle=False)
            send = self._bot.send_photo if is_photo else self._bot.send_document
            sent = await _checked(send(chat, content, message_thread_id=topic))
        message = await self._in_topic(sent, topic)
        _remember(self._sent_texts, token, message)
        return message


async def _checked(call: Awaitable[T]) -> T:
    try:
        return await call
    except TelegramError as error:
        raise telegram_error(error) from error


def _keyboard(buttons: tuple[Button, ...]) -> InlineKeyboardMarkup:
    shown = [
        InlineKeyboardButton(button.label, callback_data=f"{button.action}:{button.payload}")
        for button in buttons
        if len(f"{button.action}:{button.payload}".encode()) <= _MAX_CALLBACK_BYTES
    ]
    rows = [shown[at : at + _BUTTONS_PER_ROW] for at in range(0, len(shown), _BUTTONS_PER_ROW)]
    return InlineKeyboardMarkup(rows)


def _remember(memory: OrderedDict[str, T], key: str, value: T) -> None:
    memory[key] = value
    if len(memory) > _REMEMBERED:
        memory.popitem(last=False)
