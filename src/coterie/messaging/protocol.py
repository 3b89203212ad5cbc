"""The neutral words between surfaces and the engine. P1

A surface turns what happens on its platform into one of the `Incoming…` and shows each `Outgoing…` as its platform can.
They are plain frozen values that turn into JSON and back, because they are kept in the log on both ways.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class _ProtocolModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Account(_ProtocolModel):
    """Somebody as a platform knows them."""

    surface: str
    id: str
    name: str = ""
    """What the platform says they are called: theirs to choose, so never proof of anything."""


class RoomRef(_ProtocolModel):
    """A room as a platform knows it."""

    surface: str
    id: str


class Attachment(_ProtocolModel):
    name: str
    """As the sender called it; for showing only."""
    path: str
    """Relative to the character's workspace."""
    media_type: str = "application/octet-stream"
    size: int = 0


class _Incoming(_ProtocolModel):
    account: Account
    room: RoomRef
    key: str
    """The platform's own id of what happened: the same key again is the same thing again."""
    at: datetime | None = None
    """When it happened, as the platform tells it."""
    thread: str | None = None
    """Where in the room, in the platform's own words; the answer goes there."""


class IncomingMessage(_Incoming):
    type: Literal["message"] = "message"
    text: str
    attachments: tuple[Attachment, ...] = ()
    reply_to: str | None = None
    """The platform's id of the message this one answers."""


class IncomingCommand(_Incoming):
    type: Literal["command"] = "command"
    name: str
    """Without its mark, in small letters."""
    arguments: str = ""


class IncomingCallback(_Incoming):
    """A button was pressed."""

    type: Literal["callback"] = "callback"
    action: str
    payload: str = ""


class MemberChange(_Incoming):
    type: Literal["member"] = "member"
    change: Literal["invited", "joined", "left"]


Incoming = IncomingMessage | IncomingCommand | IncomingCallback | MemberChange
AnyIncoming = Annotated[Incoming, Field(discriminator="type")]


class Button(_ProtocolModel):
    label: str
    action: str
    payload: str = ""


class _Outgoing(_ProtocolModel):
    room: RoomRef
    thread: str | None = None
    """As it came in: where in the room this belongs."""


class OutgoingMessage(_Outgoing):
    type: Literal["message"] = "message"
    text: str
    """Markdown; the surface makes it its platform's own."""
    attachments: tuple[Attachment, ...] = ()
    reply_to: str | None = None
    streamed: bool = False
    """Whether it was shown growing before: what stands there then takes this, its final form."""


class OutgoingPart(_Outgoing):
    """More of a message that is being made: shown growing where the platform can, else only when it is whole."""

    type: Literal["part"] = "part"
    text: str


class OutgoingUI(_Outgoing):
    """A question with answers to choose from. Where there are no buttons, `fallback` tells what to write."""

    type: Literal["ui"] = "ui"
    text: str
    buttons: tuple[Button, ...] = ()
    fallback: str = ""


class OutgoingTyping(_Outgoing):
    """Somebody is about to say something; it is over when the answer is there."""

    type: Literal["typing"] = "typing"


class OutgoingNotification(_Outgoing):
    """Something the person should know that no character said."""

    type: Literal["notification"] = "notification"
    text: str


class OutgoingReaction(_Outgoing):
    type: Literal["reaction"] = "reaction"
    to: str
    """The platform's id of the message."""
    emoji: str


Outgoing = OutgoingMessage | OutgoingPart | OutgoingUI | OutgoingTyping | OutgoingNotification | OutgoingReaction
Deliverable = OutgoingMessage | OutgoingUI | OutgoingNotification | OutgoingReaction
"""What the outbox keeps. Typing and parts are over before they could be sent again."""
AnyDeliverable = Annotated[Deliverable, Field(discriminator="type")]
