"""A line of chat: as somebody sends it (`ChatPost`), and as everybody sees it once it is numbered (`ChatMessage`)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from coterie.modes.crowd.protocol.wire import WireMessage, WireModel

MAX_MESSAGE_CHARS = 500

ONE_LINE = r"^[^\x00-\x1f\x7f\u2028\u2029]+$"
AuthorName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f@\u2028\u2029]+$", max_length=40)]
LineText = Annotated[str, StringConstraints(pattern=ONE_LINE, max_length=MAX_MESSAGE_CHARS)]
MessageId = Annotated[str, StringConstraints(pattern=r"^[!-~]+$", max_length=64)]
RoomName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64)]
AuthorKind = Literal["human", "persona", "system"]
SpeakReason = Literal["base", "event", "mention", "reply", "trend", "greeting"]


class ChatAuthor(WireModel):
    name: AuthorName
    kind: AuthorKind
    badges: tuple[str, ...] = ()
    colour: Annotated[str, StringConstraints(pattern=r"^#[0-9a-f]{6}$")] | None = None


class Trace(WireModel):
    """Where the seconds went between what was heard and the line on the screen, and why it was said. C10"""

    because: SpeakReason | None = None
    spoken_ms: int | None = None
    """When the last of the stream's words that led to it was spoken."""
    heard_ms: int | None = None
    """When the words or the message that led to it came in."""
    decided_ms: int | None = None
    written_ms: int | None = None
    posted_ms: int | None = None
    decision: str | None = None
    """Names the decision, whose numbers can be looked up."""


class ChatPost(WireMessage):
    """What a sender asks the gateway to post. Who they are and what they may do is the gateway's to know."""

    shape = "chat_post"

    id: MessageId
    """The sender's own; the same id again is the same message, said once."""
    room: RoomName
    author: ChatAuthor
    text: str = Field(min_length=1)
    """Checked against the room's rules by the gateway, so that a mistake is told and audited."""
    reply_to: MessageId | None = None
    trace: Trace | None = None


class ChatMessage(WireMessage):
    shape = "chat_message"

    id: MessageId
    """`room-number`; numbers of a room only grow, and a reader resumes after the last one it saw."""
    number: int = Field(ge=1)
    room: RoomName
    author: ChatAuthor
    text: LineText
    reply_to: MessageId | None = None
    mentions: tuple[str, ...] = ()
    """Names, as their owners write them."""
    emotes: tuple[str, ...] = ()
    ts: int
    """Milliseconds since 1970, by the gateway's clock."""
    nonce: MessageId | None = None
    """The sender's id of it."""
    trace: Trace | None = None
