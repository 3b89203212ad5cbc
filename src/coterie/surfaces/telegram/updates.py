"""Turn Telegram's updates into neutral events.

A room is a chat, or one topic of it: its id is `CHAT` or `CHAT/TOPIC`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from telegram import Chat, ChatMember, ChatMemberUpdated, Message, MessageEntity, Update, User

from coterie.messaging import (
    Account,
    Incoming,
    IncomingCallback,
    IncomingCommand,
    IncomingMessage,
    MemberChange,
    RoomRef,
    RoomTitleChange,
)

SURFACE = "telegram"
UPDATES = ["message", "callback_query", "my_chat_member"]
"""The kinds of updates that are asked for."""
_COMMAND = re.compile(r"/(\w+)(?:@(\w+))?\s*")
_PRESENT = (ChatMember.MEMBER, ChatMember.ADMINISTRATOR, ChatMember.OWNER, ChatMember.RESTRICTED)


@dataclass(frozen=True)
class TelegramFile:
    """A file of a message, by Telegram's id."""

    id: str
    name: str
    media_type: str
    size: int


def room_ref(chat: int, topic: int | None = None) -> RoomRef:
    return RoomRef(surface=SURFACE, id=f"{chat}/{topic}" if topic is not None else str(chat))


def chat_and_topic(room: RoomRef) -> tuple[int, int | None]:
    chat, _, topic = room.id.partition("/")
    return int(chat), int(topic) if topic else None


def read_update(update: Update, bot: User) -> list[Incoming]:
    """The events of an update; none for what the bot or another bot did, and for what is of no concern."""
    if update.message is not None:
        return _read_message(update.message, bot)
    if (query := update.callback_query) is not None:
        if query.message is None or query.data is None:
            return []
        action, _, payload = query.data.partition(":")
        topic = _topic(query.message) if isinstance(query.message, Message) else None
        fields = _fields(query.from_user, query.message.chat, topic, f"callback {query.id}")
        return [IncomingCallback(**fields, action=action, payload=payload)]
    if (change := update.my_chat_member) is not None and _was_added(change):
        fields = _fields(change.from_user, change.chat, None, f"update {update.update_id}")
        return [MemberChange(**fields, change="invited")]
    return []


def files_of(message: Message) -> list[TelegramFile]:
    """The files of a message; of a photo its largest size."""
    if message.photo:
        photo = message.photo[-1]
        return [TelegramFile(photo.file_id, f"photo-{message.message_id}.jpg", "image/jpeg", photo.file_size or 0)]
    for file, suffix in (
        (message.document, "bin"),
        (message.audio, "mp3"),
        (message.video, "mp4"),
        (message.voice, "ogg"),
        (message.video_note, "mp4"),
    ):
        if file is not None:
            name = getattr(file, "file_name", None) or f"file-{message.message_id}.{suffix}"
            media_type = getattr(file, "mime_type", None) or "application/octet-stream"
            return [TelegramFile(file.file_id, name, media_type, file.file_size or 0)]
    return []


def _read_message(message: Message, bot: User) -> list[Incoming]:
    sender = message.from_user
    if sender is None or sender.is_bot:
        return []
    key, topic = str(message.message_id), _topic(message)
    fields = _fields(sender, message.chat, topic, key)
    fields["at"] = message.date
    joined = [user for user in message.new_chat_members or () if not user.is_bot]
    if joined:
        return [
            MemberChange(**{**fields, "account": _account(user), "key": f"{key} {user.id}"}, change="joined")
            for user in joined
        ]
    if (left := message.left_chat_member) is not None:
        return [] if left.is_bot else [MemberChange(**{**fields, "account": _account(left)}, change="left")]
    title = message.new_chat_title or (message.forum_topic_edited.name if message.forum_topic_edited else None)
    if title:
        return [RoomTitleChange(**fields, title=title)]
    text = message.text or message.caption or (message.sticker.emoji if message.sticker else None) or ""
    if not text and not files_of(message):
        return []
    if (command := _COMMAND.match(text)) is not None and message.text:
        name, addressee = command[1], command[2]
        if addressee and addressee.lower() != (bot.username or "").lower():
            return []
        return [IncomingCommand(**fields, name=name.lower(), arguments=text[command.end() :])]
    reply = message.reply_to_message
    if reply is not None and reply.forum_topic_created is not None:
        reply = None  # in a topic every message replies to its beginning
    is_reply_to_us = reply is not None and reply.from_user is not None and reply.from_user.id == bot.id
    fields["addressed"] = not fields["group"] or is_reply_to_us or _mentions(message, bot)
    reply_to = str(reply.message_id) if reply is not None else None
    return [IncomingMessage(**fields, text=_without_mention(text, bot), reply_to=reply_to)]


def _fields(user: User, chat: Chat, topic: int | None, key: str) -> dict[str, Any]:
    is_group = chat.type != Chat.PRIVATE
    return {
        "account": _account(user),
        "room": room_ref(chat.id, topic),
        "key": key,
        "group": is_group,
        "server": str(chat.id) if is_group else "",
    }


def _account(user: User) -> Account:
    return Account(surface=SURFACE, id=str(user.id), name=user.full_name)


def _topic(message: Message) -> int | None:
    """The topic of a message. Replies outside of topics have a thread too, which is none."""
    return message.message_thread_id if message.is_topic_message else None


def _mentions(message: Message, bot: User) -> bool:
    found = {
        **message.parse_entities([MessageEntity.MENTION]),
        **message.parse_caption_entities([MessageEntity.MENTION]),
    }
    if any(text.lower() == f"@{bot.username}".lower() for text in found.values()):
        return True
    entities = (*message.entities, *message.caption_entities)
    return any(entity.user is not None and entity.user.id == bot.id for entity in entities)


def _without_mention(text: str, bot: User) -> str:
    """Without the bot's name at the beginning: it says who is meant, not what."""
    rest = re.sub(rf"\A@{re.escape(bot.username or '')}\b[\s,:]*", "", text, flags=re.IGNORECASE)
    return rest or text


def _was_added(change: ChatMemberUpdated) -> bool:
    before, after = change.old_chat_member.status, change.new_chat_member.status
    return change.chat.type != Chat.PRIVATE and before not in _PRESENT and after in _PRESENT
