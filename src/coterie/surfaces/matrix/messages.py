"""Convert Matrix events to neutral messages, and Markdown to Matrix HTML."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from typing import Any

from markdown_it import MarkdownIt

from coterie.messaging import (
    Account,
    Attachment,
    Incoming,
    IncomingCommand,
    IncomingMessage,
    MemberChange,
    RoomRef,
)
from coterie.surfaces.matrix.homeserver import Json

SURFACE = "matrix"
COMMAND_PREFIX = "!"
_REPLY_FALLBACK = re.compile(r"\A(?:> [^\n]*\n)+\n?")
_TEXT_TYPES = ("m.text", "m.emote")
MEDIA_TYPES = ("m.file", "m.image", "m.audio", "m.video")


def room_ref(room: str) -> RoomRef:
    return RoomRef(surface=SURFACE, id=room)


def read_event(room: str, event: Json, own: str) -> Incoming | None:
    """The message or command of an event; None for our own messages, edits, notices of other bots, and state."""
    content = event.get("content")
    if event.get("type") != "m.room.message" or event.get("sender") == own or not isinstance(content, dict):
        return None
    relation = content.get("m.relates_to")
    relation = relation if isinstance(relation, dict) else {}
    if relation.get("rel_type") == "m.replace" or content.get("msgtype") not in (*_TEXT_TYPES, *MEDIA_TYPES):
        return None
    base: dict[str, Any] = {
        "account": Account(surface=SURFACE, id=str(event["sender"]), name=_localpart(str(event["sender"]))),
        "room": room_ref(room),
        "key": str(event["event_id"]),
        "at": datetime.fromtimestamp(int(event.get("origin_server_ts", 0)) / 1000, UTC),
        "thread": relation.get("event_id") if relation.get("rel_type") == "m.thread" else None,
    }
    text = str(content.get("body", ""))
    if "m.in_reply_to" in relation:
        text = _REPLY_FALLBACK.sub("", text, count=1)
    if content["msgtype"] in MEDIA_TYPES:
        return IncomingMessage(**base, text=_caption(content))
    if text.startswith(COMMAND_PREFIX) and text[1:2].isalpha():
        name, _, rest = text[1:].partition(" ")
        return IncomingCommand(**base, name=name.lower(), arguments=rest)
    reply = relation.get("m.in_reply_to", {}).get("event_id") if not relation.get("is_falling_back") else None
    return IncomingMessage(**base, text=f"*{text}*" if content["msgtype"] == "m.emote" else text, reply_to=reply)


def read_invite(room: str, info: Json, own: str) -> MemberChange | None:
    for event in info.get("invite_state", {}).get("events", []):
        if event.get("type") == "m.room.member" and event.get("state_key") == own:
            sender = str(event["sender"])
            account = Account(surface=SURFACE, id=sender, name=_localpart(sender))
            return MemberChange(account=account, room=room_ref(room), key=f"invite {sender}", change="invited")
    return None


def with_file(incoming: IncomingMessage, file: Attachment) -> IncomingMessage:
    return incoming.model_copy(update={"attachments": (*incoming.attachments, file)})


def _caption(content: Json) -> str:
    """The text sent with a file: the body, if the event has a file name besides."""
    body = str(content.get("body", ""))
    return body if "filename" in content and content["filename"] != body else ""


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
