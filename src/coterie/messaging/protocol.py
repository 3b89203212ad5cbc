"""The platform-neutral messages between surfaces and modes.

A surface turns each platform event into an `Incoming…` and shows each `Outgoing…` as its platform can. All are frozen
models that are stored in the log as JSON.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class _ProtocolModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Account(_ProtocolModel):
    """A user account on a platform."""

    surface: str
    id: str
    name: str = ""
    """The display name, which users choose themselves: never proof of identity."""


class RoomRef(_ProtocolModel):
    """A room on a platform."""

    surface: str
    id: str


class Attachment(_ProtocolModel):
    name: str
    """The sender's name for it; for display only."""
    path: str
    """Relative to the character's workspace."""
    media_type: str = "application/octet-stream"
    size: int = 0


class _Incoming(_ProtocolModel):
    account: Account
    room: RoomRef
    key: str
    """The platform's own id of the event: the same key again is the same event."""
    at: datetime | None = None
    """The platform's timestamp."""
    thread: str | None = None
    """The platform's id of the thread; the answer goes to the same thread."""


class IncomingMessage(_Incoming):
    type: Literal["message"] = "message"
    text: str
    attachments: tuple[Attachment, ...] = ()
    reply_to: str | None = None
    """The platform's id of the message this one answers."""


class IncomingCommand(_Incoming):
    type: Literal["command"] = "command"
    name: str
    """Without its prefix, in lower case."""
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
    """The thread of the message it answers."""


class OutgoingMessage(_Outgoing):
    type: Literal["message"] = "message"
    text: str
    """Markdown; the surface converts it to the platform's format."""
    attachments: tuple[Attachment, ...] = ()
    reply_to: str | None = None
    streamed: bool = False
    """Whether it was shown while streamed: then that message is edited to this final text."""


class OutgoingPart(_Outgoing):
    """The next part of a message, shown at once where the platform can edit messages."""

    type: Literal["part"] = "part"
    text: str


class OutgoingUI(_Outgoing):
    """A question with buttons; `fallback` says what to write where there are none."""

    type: Literal["ui"] = "ui"
    text: str
    buttons: tuple[Button, ...] = ()
    fallback: str = ""


class OutgoingTyping(_Outgoing):
    """A reply is being written; it ends with the answer."""

    type: Literal["typing"] = "typing"


class OutgoingNotification(_Outgoing):
    """A message of the server, not of a character."""

    type: Literal["notification"] = "notification"
    text: str


class OutgoingReaction(_Outgoing):
    type: Literal["reaction"] = "reaction"
    to: str
    """The platform's id of the message."""
    emoji: str


Outgoing = OutgoingMessage | OutgoingPart | OutgoingUI | OutgoingTyping | OutgoingNotification | OutgoingReaction
Deliverable = OutgoingMessage | OutgoingUI | OutgoingNotification | OutgoingReaction
"""What the outbox stores. Typing notices and parts are not sent again after a failure."""
AnyDeliverable = Annotated[Deliverable, Field(discriminator="type")]
