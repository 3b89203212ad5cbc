"""The ports of messaging: `Conversation`, which a mode implements, and `Surface`, which a platform adapter implements.

A mode keeps its chats under ids of its own (contexts); a surface's room points at one of them. `app.py` joins the two,
and neither knows of the other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from coterie.eventstore import NewEvent
from coterie.messaging.protocol import Account, Attachment, Deliverable, OutgoingMessage, RoomRef


@dataclass(frozen=True, slots=True)
class ReplyDelta:
    """The next part of a reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplyFinished:
    """A reply as it ended, with all of its text."""

    text: str
    speaker: str
    """The name to show."""
    error: str = ""
    """Why it broke off, in a sentence for the person; empty if it did not."""
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplyActivity:
    """What is being done before or between text, in a few words; not part of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplyReaction:
    """An emoji put to the message that is answered; a reply may follow."""

    emoji: str


ReplyUpdate = ReplyDelta | ReplyActivity | ReplyReaction | ReplyFinished


async def with_full_text(updates: AsyncIterator[ReplyUpdate]) -> AsyncIterator[ReplyUpdate]:
    """The updates with a last delta where `ReplyFinished` has other text than the deltas before it.

    For surfaces that show text as it arrives: some modes send their text only with `ReplyFinished`.
    """
    text = ""
    async for update in updates:
        if isinstance(update, ReplyDelta):
            text += update.text
        elif isinstance(update, ReplyFinished) and update.text != text:
            if update.text.startswith(text):
                yield ReplyDelta(update.text[len(text) :])
            elif update.text:  # what was shown was given up
                yield ReplyDelta(f"\n\n{update.text}")
        yield update


def with_quote(text: str, quote: str) -> str:
    """The text after the quoted message, as Markdown."""
    return "\n".join([*(f"> {line}" for line in quote.splitlines()), "", text]) if quote else text


@dataclass(frozen=True, slots=True)
class NewChat:
    """A chat that begins when its events are appended, in one transaction with the room that points at it."""

    context: str
    new_events: Sequence[NewEvent]
    greeting: str = ""


@dataclass(frozen=True, slots=True)
class ChatStatus:
    """The state of a chat, for the `context` command."""

    title: str
    character: str
    turns: int
    notes: tuple[tuple[str, str], ...] = ()
    """Further facts, each with its label."""


class Conversation(Protocol):
    """How a mode holds its chats on any surface."""

    mode: str

    async def open(self, person: str, character: str, title: str = "", *, at_once: bool = False) -> NewChat:
        """Prepare a chat, with `at_once` without a model call. `PermissionDenied` if the person may not have one."""
        ...

    async def add_person(self, context: str, person: str) -> None:
        """Let somebody else talk in this chat; repeating it changes nothing."""
        ...

    async def remove_person(self, context: str, person: str) -> None:
        """Take a person out of this chat; they keep what they took part in before."""
        ...

    def send_message(
        self, context: str, text: str, *, person: str, key: str, attachments: Sequence[Attachment] = (), quote: str = ""
    ) -> AsyncIterator[ReplyUpdate]:
        """The reply, ending with `ReplyFinished`. The same key again gives the same reply without a second message.

        `quote` is the beginning of the message that this one replies to."""
        ...

    def retry(self, context: str, *, person: str) -> AsyncIterator[ReplyUpdate]:
        """Another reply to the last message."""
        ...

    async def stop(self, context: str) -> bool:
        """End the running reply; False if there is none."""
        ...

    def status(self, context: str) -> ChatStatus: ...

    async def rename(self, context: str, title: str) -> None: ...


@dataclass(frozen=True, slots=True)
class EditPace:
    """How often a platform allows a growing message to be edited."""

    min_interval_s: float = 0.2
    max_interval_s: float = 1.5
    idle_s: float = 0.5
    """An edit is due when the text has not changed for this long."""
    max_edits: int = 30
    growth: float = 1.1
    """The factor by which each interval is longer than the one before."""


class EditPacer:
    """Decides when one message may be edited next. Times are monotonic seconds; the first send is at `now`.

    An edit goes when the text has been idle, or at the maximum interval. Intervals grow, so that even a very long reply
    has a bounded number of edits.
    """

    def __init__(self, pace: EditPace, now: float) -> None:
        self._pace = pace
        self._last_edit = now
        self._last_change = now
        self._edits = 0
        self._not_before = now

    def text_changed(self, now: float) -> None:
        self._last_change = now

    def edited(self, now: float) -> None:
        self._last_edit = now
        self._edits += 1

    def pause_until(self, until: float) -> None:
        """The platform asked to wait."""
        self._not_before = max(self._not_before, until)

    def next_edit_at(self) -> float | None:
        """When the next edit may go; None after the maximum number of edits."""
        if self._edits >= self._pace.max_edits:
            return None
        slower = self._pace.growth**self._edits
        soonest = self._last_edit + self._pace.min_interval_s * slower
        latest = self._last_edit + self._pace.max_interval_s * slower
        return max(self._not_before, soonest, min(latest, self._last_change + self._pace.idle_s))


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a platform can do."""

    max_length: int = 4_000
    """The longest text of one message, in `length_unit`."""
    length_unit: Literal["characters", "bytes", "utf-16"] = "characters"
    """What `max_length` counts: characters, bytes of UTF-8, or code units of UTF-16."""
    max_file_bytes: int | None = None
    """The largest file that can be sent; None if only our own limit counts."""
    deduplicates: bool = False
    """Whether sending the same token twice shows one message, so that an ambiguous send can simply be repeated."""
    dedupe_window_s: float | None = None
    """For how long after the first send it does; None for always."""
    can_edit: bool = False
    """Whether a message can be edited after it was sent; a reply is then streamed by edits."""
    previews: bool = False
    """Whether `Surface.preview` shows unfinished text that has no message id; a reply is then streamed by previews."""
    buttons: bool = False
    """Whether the buttons of a question are shown."""
    reactions: bool = False
    """Whether reactions to messages are shown; they are left out elsewhere."""
    can_create_rooms: bool = False
    pace: EditPace = field(default_factory=EditPace)
    typing_repeat_s: float = 4.0
    """The typing notice is repeated after this long, before the platform lets it expire."""
    command_prefix: str = "/"

    def deduplicates_after(self, age_s: float) -> bool:
        """Whether sending a token again that was first sent this long ago shows nothing twice."""
        return self.deduplicates and (self.dedupe_window_s is None or age_s < self.dedupe_window_s)

    def length_of(self, text: str) -> int:
        if self.length_unit == "bytes":
            return len(text.encode())
        if self.length_unit == "utf-16":
            return len(text) + sum(letter > "\uffff" for letter in text)
        return len(text)


class Surface(Protocol):
    """A platform adapter: it holds the connection, passes what arrives to `InboundProcessor.accept`, and shows what it
    is given. Delivery, order, retries, people and chats are handled here. tests/contracts/surface_contract.py tests it.
    """

    name: str
    capabilities: Capabilities

    async def send(self, outgoing: Deliverable, token: str) -> str:
        """Show it and return the platform's id of it. `token` is the idempotency key."""
        ...

    async def edit(self, outgoing: Deliverable, message: str, token: str) -> None:
        """Replace the message with this id by `outgoing`. `PlatformRefused` if it cannot be edited: it is sent anew."""
        ...

    async def preview(self, outgoing: OutgoingMessage, token: str) -> None:
        """Show unfinished text in place of the last preview with this token; the message itself is sent later, and ends
        the preview. Needs `capabilities.previews`."""
        ...

    async def typing(self, room: RoomRef, on: bool) -> None: ...

    async def create_room(self, person: Account, title: str, key: str, asked_in: RoomRef) -> RoomRef | None:
        """A new room for a person, beside the one it was asked for in; the same key again gives the same room. None if
        there can be no further room there. Needs `capabilities.can_create_rooms`."""
        ...

    async def rename_room(self, room: RoomRef, title: str) -> None: ...

    async def leave_room(self, room: RoomRef) -> None:
        """Leave a room with several people."""
        ...

    async def direct_room(self, person: Account) -> RoomRef | None:
        """The room in which only this person reads what we write; None if we cannot write to them first."""
        ...


@runtime_checkable
class KnowsPrivateRooms(Protocol):
    """A surface that knows who is in a room. On others, every room counts as one that others may read."""

    async def is_private(self, room: RoomRef, account: Account) -> bool:
        """Whether nobody but this account and ours is in the room or invited to it."""
        ...
