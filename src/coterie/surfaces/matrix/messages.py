"""Convert Matrix events to neutral messages, and Markdown to Matrix HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from markdown_it import MarkdownIt

from coterie.base.values import add_seconds
from coterie.messaging import (
    Account,
    Attachment,
    Incoming,
    IncomingCommand,
    IncomingMessage,
    MemberChange,
    RoomRef,
)
from coterie.surfaces.matrix.schemas import Json, MessageContent, Relation, RoomEvent

SURFACE = "matrix"
COMMAND_PREFIX = "!"
_REPLY_FALLBACK = re.compile(r"\A(?:> [^\n]*\n)+\n?")
_TEXT_TYPES = ("m.text", "m.emote")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MEDIA_TYPES = ("m.file", "m.image", "m.audio", "m.video")


def room_ref(room: str) -> RoomRef:
    return RoomRef(surface=SURFACE, id=room)


def read_event(room: str, event: Json, own: str) -> Incoming | None:
    """The message or command of an event; None for our own messages, edits, notices of other bots, and state.

    Raises ValueError if it is a message that cannot be read.
    """
    if event.get("type") != "m.room.message" or event.get("sender") == own:
        return None
    envelope = RoomEvent.model_validate(event)
    if envelope.content.get("msgtype") not in (*_TEXT_TYPES, *MEDIA_TYPES):
        return None
    content = MessageContent.model_validate(envelope.content)
    relation = content.relation or Relation()
    if relation.rel_type == "m.replace":
        return None
    base: dict[str, Any] = {
        "account": Account(surface=SURFACE, id=envelope.sender, name=_localpart(envelope.sender)),
        "room": room_ref(room),
        "key": envelope.event_id,
        "at": add_seconds(_EPOCH, envelope.origin_server_ts / 1000),
        "thread": relation.event_id if relation.rel_type == "m.thread" else None,
    }
    text = content.body
    if relation.in_reply_to is not None:
        text = _REPLY_FALLBACK.sub("", text, count=1)
    if content.msgtype in MEDIA_TYPES:
        return IncomingMessage(**base, text=_caption(content))
    if text.startswith(COMMAND_PREFIX) and text[1:2].isalpha():
        name, _, rest = text[1:].partition(" ")
        return IncomingCommand(**base, name=name.lower(), arguments=rest)
    reply = None if relation.in_reply_to is None or relation.is_falling_back else relation.in_reply_to.event_id
    return IncomingMessage(**base, text=f"*{text}*" if content.msgtype == "m.emote" else text, reply_to=reply)


def read_invite(room: str, state: Sequence[Json], own: str) -> MemberChange | None:
    """The invitation among the state events of a room that we were invited to."""
    for event in state:
        if event["type"] == "m.room.member" and event["state_key"] == own:
            sender = event["sender"]
            account = Account(surface=SURFACE, id=sender, name=_localpart(sender))
            return MemberChange(account=account, room=room_ref(room), key=f"invite {sender}", change="invited")
    return None


def with_file(incoming: IncomingMessage, file: Attachment) -> IncomingMessage:
    return incoming.model_copy(update={"attachments": (*incoming.attachments, file)})


def _caption(content: MessageContent) -> str:
    """The text sent with a file: the body, if the event has a file name besides."""
    return content.body if content.filename is not None and content.filename != content.body else ""


def _localpart(user: str) -> str:
    return user.removeprefix("@").partition(":")[0]


@cache
def _markdown() -> MarkdownIt:
    # Raw HTML is escaped, and a single line break is kept, as people write in chats.
    return MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("strikethrough").disable("image")


def to_html(text: str) -> str | None:
    """The text as HTML; None if it has no formatting."""
    html = str(_markdown().render(text)).strip()
    inner = html.removeprefix("<p>").removesuffix("</p>")
    return None if inner == text else html
