"""The platform-neutral messages between surfaces and modes.

A surface turns each platform event into an `Incoming…` and shows each `Outgoing…` as its platform can. All are frozen
models that are stored in the log as JSON, so they hold only what can be stored: half characters are replaced in texts
for people and refused in ids.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from coterie.base.values import ClampedTime, ShownText, Text


class _ProtocolModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Account(_ProtocolModel):
    """A user account on a platform."""

    surface: Text
    id: Text
    name: ShownText = ""
    """The display name, which users choose themselves: never proof of identity."""


class RoomRef(_ProtocolModel):
    """A room on a platform."""

    surface: Text
    id: Text


class Attachment(_ProtocolModel):
    name: ShownText
    """The sender's name for it; for display only."""
    path: Text
    """Relative to the character's workspace."""
    media_type: Text = "application/octet-stream"
    size: int = 0


class _Incoming(_ProtocolModel):
    account: Account
    room: RoomRef
    key: Text
    """The platform's own id of the event: the same key again is the same event."""
    at: ClampedTime | None = None
    """The platform's timestamp."""
    thread: Text | None = None
    """The platform's id of the thread; the answer goes to the same thread."""
    server: Text = ""
    """The platform's id of the server or group that the room belongs to; empty in direct chats."""
    group: bool = False
    """Whether other people read what is written in the room."""
    addressed: bool = True
    """Whether the bot is meant: in a direct chat, by a mention, a reply or a command. Matters in groups only; there a
    message that has the character's name counts as addressed too."""


class IncomingMessage(_Incoming):
    type: Literal["message"] = "message"
    text: ShownText
    attachments: tuple[Attachment, ...] = ()
    reply_to: Text | None = None
    """The platform's id of the message this one answers."""


class IncomingCommand(_Incoming):
    type: Literal["command"] = "command"
    name: Text
    """Without its prefix, in lower case."""
    arguments: ShownText = ""


class IncomingCallback(_Incoming):
    """A button was pressed."""

    type: Literal["callback"] = "callback"
    action: Text
    payload: Text = ""


class MemberChange(_Incoming):
    """The account invited us, or joined or left the room."""

    type: Literal["member"] = "member"
    change: Literal["invited", "joined", "left"]


class RoomTitleChange(_Incoming):
    """The account renamed the room on the platform."""

    type: Literal["title"] = "title"
    title: ShownText


Incoming = IncomingMessage | IncomingCommand | IncomingCallback | MemberChange | RoomTitleChange
AnyIncoming = Annotated[Incoming, Field(discriminator="type")]


class Button(_ProtocolModel):
    label: ShownText
    action: Text
    payload: Text = ""


class _Outgoing(_ProtocolModel):
    room: RoomRef
    thread: Text | None = None
    """The thread of the message it answers."""


class OutgoingMessage(_Outgoing):
    type: Literal["message"] = "message"
    text: ShownText
    """Markdown; the surface converts it to the platform's format."""
    attachments: tuple[Attachment, ...] = ()
    reply_to: Text | None = None
    streamed: bool = False
    """Whether it was shown while streamed: then that message is edited to this final text."""
    code_fence: ShownText = ""
    """The line that opened the code block in which this part of a longer message begins; empty outside of code."""

    @property
    def markdown(self) -> str:
        """The text with the code block opened again in which it begins."""
        return f"{self.code_fence}\n{self.text}" if self.code_fence else self.text


class OutgoingPart(_Outgoing):
    """The next part of a message, shown at once where the platform can edit messages or show previews."""

    type: Literal["part"] = "part"
    text: ShownText
    reply_to: Text | None = None


class OutgoingUI(_Outgoing):
    """A question with buttons; `fallback` says what to write where there are none, and is added to the text there."""

    type: Literal["ui"] = "ui"
    text: ShownText
    buttons: tuple[Button, ...] = ()
    fallback: ShownText = ""


class OutgoingTyping(_Outgoing):
    """A reply is being written; it ends with the answer."""

    type: Literal["typing"] = "typing"


class OutgoingNotification(_Outgoing):
    """A message of the server, not of a character."""

    type: Literal["notification"] = "notification"
    text: ShownText


class OutgoingReaction(_Outgoing):
    type: Literal["reaction"] = "reaction"
    to: Text
    """The platform's id of the message."""
    emoji: Text


Outgoing = OutgoingMessage | OutgoingPart | OutgoingUI | OutgoingTyping | OutgoingNotification | OutgoingReaction
Deliverable = OutgoingMessage | OutgoingUI | OutgoingNotification | OutgoingReaction
"""What the outbox stores. Typing notices and parts are not sent again after a failure."""
AnyDeliverable = Annotated[Deliverable, Field(discriminator="type")]
