"""The shape of what a homeserver sends: sync responses, events and encrypted messages.

A homeserver passes on what strangers wrote, so every part that is read is checked here first. A part that does not fit
is recorded and left out; the rest of the response is read. Events stay plain objects after the check, because they are
stored and verified as they were received.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from markdown_it import MarkdownIt
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from coterie.base.values import Int64, ShownText, Text, add_seconds
from coterie.messaging import (
    Account,
    Attachment,
    Incoming,
    IncomingCommand,
    IncomingMessage,
    MemberChange,
    PlatformUnreachable,
    Quarantine,
    RoomRef,
    RoomTitleChange,
)

Json = dict[str, Any]

Id = Annotated[Text, StringConstraints(min_length=1, max_length=1_000)]
"""An id of a user, room, event, device or session."""
Key = Annotated[Text, StringConstraints(max_length=100_000)]
"""A key or ciphertext in base64."""


def objects(value: Any) -> list[Json]:
    """The objects in a list; empty for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def object_at(value: Any, *names: str) -> Json:
    """The object at this path; empty if there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


class _Schema(BaseModel):
    model_config = ConfigDict(extra="ignore", populate_by_name=True)


class StateEvent(_Schema):
    """A state event as an invitation has it: without an id."""

    type: Text
    sender: Id
    state_key: Text
    content: Json


class RoomEvent(_Schema):
    """An event of a room, of any type."""

    type: Text
    sender: Id
    event_id: Id
    content: Json
    origin_server_ts: Int64 = 0
    state_key: Text | None = None


class ToDeviceEvent(_Schema):
    type: Text
    sender: Id
    content: Json


class ReplyReference(_Schema):
    event_id: Id | None = None


class Relation(_Schema):
    """How a message refers to another."""

    rel_type: Text | None = None
    event_id: Id | None = None
    in_reply_to: ReplyReference | None = Field(default=None, alias="m.in_reply_to")
    is_falling_back: bool = False


class FileMetadata(_Schema):
    mimetype: ShownText | None = None


class MessageContent(_Schema):
    msgtype: str
    body: ShownText = ""
    relation: Relation | None = Field(default=None, alias="m.relates_to")
    filename: ShownText | None = None
    info: FileMetadata | None = None
    url: Text | None = None
    file: Json | None = None


class EncryptedContent(_Schema):
    """The content of an event in an encrypted room."""

    session_id: Id
    ciphertext: Key
    sender_key: Text = ""


class OlmMessage(_Schema):
    type: Literal[0, 1]
    body: Key


class OlmContent(_Schema):
    """The content of an encrypted to-device message: one message per key of a device."""

    sender_key: Id
    ciphertext: dict[str, Any]


class OlmPayload(_Schema):
    """What an encrypted to-device message contains."""

    type: Text
    sender: Text
    recipient: Text
    recipient_keys: dict[str, Any]
    keys: dict[str, Any]
    content: Json


class RoomKey(_Schema):
    algorithm: Text
    room_id: Id
    session_id: Id
    session_key: Key


class KeyRequestBody(_Schema):
    algorithm: Text
    room_id: Id
    session_id: Id


class KeyRequest(_Schema):
    action: Text
    requesting_device_id: Id
    body: KeyRequestBody | None = None


class DeviceKeys(_Schema):
    """The published keys of a device."""

    user_id: Id
    device_id: Id
    algorithms: list[Text]
    keys: dict[str, Text]


@dataclass(frozen=True)
class JoinedRoom:
    state: list[Json] = field(default_factory=list)
    timeline: list[Json] = field(default_factory=list)
    limited: bool = False
    """Whether events before the timeline were left out."""
    prev_batch: str | None = None


@dataclass(frozen=True)
class Sync:
    """The checked parts of a sync response."""

    next_batch: str
    joined: dict[str, JoinedRoom] = field(default_factory=dict)
    invites: dict[str, list[Json]] = field(default_factory=dict)
    to_device: list[Json] = field(default_factory=list)
    changed_devices: list[str] = field(default_factory=list)
    """Users whose devices changed."""
    left_devices: list[str] = field(default_factory=list)
    """Users who share no encrypted room with us any more."""
    one_time_keys: int = 0
    """How many of our one-time keys the homeserver still has."""
    fallback_key_used: bool = False


class _Timeline(_Schema):
    events: list[Any] = []
    limited: bool = False
    prev_batch: Text | None = None


class _Events(_Schema):
    events: list[Any] = []


class _JoinedRoom(_Schema):
    timeline: Any = None
    state: Any = None


class _InvitedRoom(_Schema):
    invite_state: _Events = _Events()


class _Rooms(_Schema):
    join: Any = None
    invite: Any = None


class _DeviceLists(_Schema):
    changed: list[Any] = []
    left: list[Any] = []


class _Cursor(_Schema):
    next_batch: Annotated[Text, StringConstraints(min_length=1)]


class _KeyCounts(_Schema):
    signed_curve25519: Int64 = 0


_Model = TypeVar("_Model", bound=BaseModel)
_EventModel = TypeVar("_EventModel", RoomEvent, StateEvent, ToDeviceEvent)


class ResponseReader:
    """Reads the parts of one response; what does not fit goes to the quarantine."""

    def __init__(self, quarantine: Quarantine) -> None:
        self._quarantine = quarantine

    def sync(self, raw: Any) -> Sync:
        """Raises `PlatformUnreachable` if it is no sync response at all: without a position there is no way on."""
        cursor = self._model(_Cursor, raw)
        if cursor is None:
            raise PlatformUnreachable("The homeserver's answer is not a sync response.", "Check matrix.homeserver.")
        rooms = self._part(_Rooms, raw, "rooms") or _Rooms()
        lists = self._part(_DeviceLists, raw, "device_lists") or _DeviceLists()
        to_device = self._part(_Events, raw, "to_device") or _Events()
        counts = self._part(_KeyCounts, raw, "device_one_time_keys_count") or _KeyCounts()
        unused = raw.get("device_unused_fallback_key_types")
        return Sync(
            next_batch=cursor.next_batch,
            joined={room: self._joined_room(room, info) for room, info in self._rooms(rooms.join)},
            invites={
                room: self.events(StateEvent, invited.invite_state.events, room)
                for room, info in self._rooms(rooms.invite)
                if (invited := self._model(_InvitedRoom, info, room)) is not None
            },
            to_device=self.events(ToDeviceEvent, to_device.events),
            changed_devices=self._ids(lists.changed),
            left_devices=self._ids(lists.left),
            one_time_keys=max(counts.signed_curve25519, 0),
            fallback_key_used=isinstance(unused, list) and "signed_curve25519" not in unused,
        )

    def events(self, model: type[_EventModel], events: Sequence[Any], room: str = "") -> list[Json]:
        """The events that fit the model, as they were received."""
        return [event for event in events if self._model(model, event, room) is not None]

    def event_page(self, raw: Any, room: str) -> tuple[list[Json], str | None]:
        """A page of earlier events, and the position of the next page."""
        if not isinstance(raw, dict):
            return [], None
        chunk, end = raw.get("chunk"), raw.get("end")
        events = self.events(RoomEvent, chunk, room) if isinstance(chunk, list) else []
        return events, end if isinstance(end, str) and end else None

    def _joined_room(self, room: str, raw: Any) -> JoinedRoom:
        info = self._model(_JoinedRoom, raw, room) or _JoinedRoom()
        timeline = (self._model(_Timeline, info.timeline, room) if info.timeline is not None else None) or _Timeline()
        state = (self._model(_Events, info.state, room) if info.state is not None else None) or _Events()
        return JoinedRoom(
            state=self.events(RoomEvent, state.events, room),
            timeline=self.events(RoomEvent, timeline.events, room),
            limited=timeline.limited,
            prev_batch=timeline.prev_batch or None,
        )

    def _rooms(self, raw: Any) -> list[tuple[str, Any]]:
        if raw is None:
            return []
        if not isinstance(raw, dict):
            self._quarantine.add(raw, ValueError("it is not an object with rooms"))
            return []
        return [(room, info) for room, info in raw.items() if self._ids([room])]

    def _ids(self, values: Sequence[Any]) -> list[str]:
        return [parsed.id for value in values if (parsed := self._model(_Identified, {"id": value})) is not None]

    def _part(self, model: type[_Model], raw: Any, name: str) -> _Model | None:
        return self._model(model, raw[name]) if raw.get(name) is not None else None

    def _model(self, model: type[_Model], raw: Any, room: str = "") -> _Model | None:
        try:
            return model.model_validate(raw)
        except ValidationError as error:
            event_id = raw.get("event_id") if isinstance(raw, dict) else None
            self._quarantine.add(raw, error, room=room, event_id=event_id if isinstance(event_id, str) else "")
            return None


class _Identified(_Schema):
    id: Id


# Convert Matrix events to neutral messages, and Markdown to Matrix HTML.


SURFACE = "matrix"
COMMAND_PREFIX = "!"
MEMBER, NAME = "m.room.member", "m.room.name"
_REPLY_FALLBACK = re.compile(r"\A(?:> [^\n]*\n)+\n?")
_TEXT_TYPES = ("m.text", "m.emote")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MEDIA_TYPES = ("m.file", "m.image", "m.audio", "m.video")


def room_ref(room: str) -> RoomRef:
    return RoomRef(surface=SURFACE, id=room)


def read_event(room: str, event: Json, own: str) -> Incoming | None:
    """The message, command, change of membership or new name of an event; None for what we did ourselves, edits,
    notices of other bots, and other state.

    `addressed` says whether a message mentions us. Raises ValueError if it is a message that cannot be read.
    """
    kind = event.get("type")
    if kind == MEMBER:
        return _read_member(room, RoomEvent.model_validate(event), event, own)
    if event.get("sender") == own:
        return None
    if kind == NAME and event.get("state_key") == "":
        return _read_title(room, RoomEvent.model_validate(event))
    if kind != "m.room.message":
        return None
    envelope = RoomEvent.model_validate(event)
    if envelope.content.get("msgtype") not in (*_TEXT_TYPES, *MEDIA_TYPES):
        return None
    content = MessageContent.model_validate(envelope.content)
    relation = content.relation or Relation()
    if relation.rel_type == "m.replace":
        return None
    base: dict[str, Any] = {
        **_envelope_fields(room, envelope),
        "thread": relation.event_id if relation.rel_type == "m.thread" else None,
        "addressed": _mentions(envelope.content, own),
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


def _envelope_fields(room: str, envelope: RoomEvent) -> dict[str, Any]:
    return {
        "account": Account(surface=SURFACE, id=envelope.sender, name=_localpart(envelope.sender)),
        "room": room_ref(room),
        "key": envelope.event_id,
        "at": add_seconds(_EPOCH, envelope.origin_server_ts / 1000),
    }


def _mentions(content: Json, own: str) -> bool:
    """Whether a message mentions us: by the list of mentions, or as clients without it write it."""
    users = object_at(content, "m.mentions").get("user_ids")
    if isinstance(users, list) and own in users:
        return True
    texts = (str(content.get("body", "")), str(content.get("formatted_body", "")))
    name = re.compile(rf"(?<!\w){re.escape(_localpart(own))}(?!\w)", re.IGNORECASE)
    return any(own in text for text in texts) or name.search(texts[0]) is not None


def _read_member(room: str, envelope: RoomEvent, event: Json, own: str) -> MemberChange | None:
    """Somebody else joined or left; None for a changed profile and for invitations."""
    user, membership = envelope.state_key, envelope.content.get("membership")
    previous = object_at(event, "unsigned", "prev_content").get("membership")
    change = {"join": "joined", "leave": "left", "ban": "left"}.get(str(membership))
    if not user or user == own or change is None or membership == previous:
        return None
    if change == "left" and previous not in (None, "join"):  # a declined or withdrawn invitation
        return None
    fields = _envelope_fields(room, envelope) | {"account": Account(surface=SURFACE, id=user, name=_localpart(user))}
    return MemberChange(**fields, change="joined" if change == "joined" else "left")


def _read_title(room: str, envelope: RoomEvent) -> RoomTitleChange | None:
    title = envelope.content.get("name")
    if not isinstance(title, str) or not title.strip():
        return None
    return RoomTitleChange(**_envelope_fields(room, envelope), title=title[:200])


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
