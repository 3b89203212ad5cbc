"""What happens on Matrix, in neutral words. P1"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from typing import Any

from markdown_it import MarkdownIt

from coterie.messaging.protocol import (
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
_FALLBACK = re.compile(r"\A(?:> [^\n]*\n)+\n?")
_TEXTS = ("m.text", "m.emote")
MEDIA_TYPES = ("m.file", "m.image", "m.audio", "m.video")


def room_ref(room: str) -> RoomRef:
    return RoomRef(surface=SURFACE, id=room)


def read_event(room: str, event: Json, own: str) -> Incoming | None:
    """None for what is not said to us: our own words, edits, notices of other bots, state."""
    content = event.get("content")
    if event.get("type") != "m.room.message" or event.get("sender") == own or not isinstance(content, dict):
        return None
    relation = content.get("m.relates_to")
    relation = relation if isinstance(relation, dict) else {}
    if relation.get("rel_type") == "m.replace" or content.get("msgtype") not in (*_TEXTS, *MEDIA_TYPES):
        return None
    base: dict[str, Any] = {
        "account": Account(surface=SURFACE, id=str(event["sender"]), name=_localpart(str(event["sender"]))),
        "room": room_ref(room),
        "key": str(event["event_id"]),
        "at": datetime.fromtimestamp(int(event.get("origin_server_ts", 0)) / 1000, UTC),
        "thread": relation.get("event_id") if relation.get("rel_type") == "m.thread" else None,
    }
    text = _FALLBACK.sub("", str(content.get("body", "")), count=1) if "m.in_reply_to" in relation else None
    text = str(content.get("body", "")) if text is None else text
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
    """A file's words: where there is a name too, the body is what was written with it."""
    body = str(content.get("body", ""))
    return body if "filename" in content and content["filename"] != body else ""


def _localpart(user: str) -> str:
    return user.removeprefix("@").partition(":")[0]


# Markdown as Matrix shows it: HTML made by us from text that is never trusted to be HTML. P5


@cache
def _markdown() -> MarkdownIt:
    # Raw HTML is shown as text, and a single line break stays one, as people write in chats.
    return MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("strikethrough").disable("image")


def to_html(text: str) -> str | None:
    """None where the plain text says it all."""
    html = str(_markdown().render(text)).strip()
    inner = html.removeprefix("<p>").removesuffix("</p>")
    return None if inner == text else html
