"""The port of a mode: how a conversation of any kind is held on any surface. P2

A mode keeps its chats under ids of its own (contexts); a surface's room points at one of them. Modes register their
conversations in app.py, and neither they nor the surfaces know of each other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from coterie.eventstore import NewEvent
from coterie.messaging.protocol import Account, Attachment, Deliverable, RoomRef


@dataclass(frozen=True, slots=True)
class ReplyText:
    """More of what is being said."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplyFinished:
    """All that was said, as it ended."""

    text: str
    speaker: str
    """A name to show."""
    error: str = ""
    """Why it broke off, in a sentence for the person; empty where it did not."""
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplyActivity:
    """What is being done meanwhile, in a few words; nothing that was said."""

    text: str


ReplyUpdate = ReplyText | ReplyActivity | ReplyFinished


@dataclass(frozen=True, slots=True)
class NewChat:
    """A chat that begins when its drafts are recorded, in one transaction with whatever points at it."""

    context: str
    new_events: Sequence[NewEvent]
    greeting: str = ""


@dataclass(frozen=True, slots=True)
class ChatStatus:
    """How a chat stands, for whoever asks."""

    title: str
    character: str
    turns: int
    notes: tuple[tuple[str, str], ...] = ()
    """What else there is to know, by name."""


class Conversation(Protocol):
    mode: str

    async def open(self, person: str, character: str, title: str = "", *, at_once: bool = False) -> NewChat:
        """Prepare a chat; `at_once` without asking a model how it begins. `NotAllowed` for whom it is not."""
        ...

    async def add_person(self, context: str, person: str) -> None:
        """Somebody else may talk in this chat from now on; the same again changes nothing."""
        ...

    async def remove_person(self, context: str, person: str) -> None:
        """They are not in this chat any more; what they were there for, they were."""
        ...

    def send_message(
        self, context: str, text: str, *, person: str, key: str, attachments: Sequence[Attachment] = ()
    ) -> AsyncIterator[ReplyUpdate]:
        """The answer, ending with a `Spoken`. The same key again gives the same answer, without saying it twice."""
        ...

    def retry(self, context: str, *, person: str) -> AsyncIterator[ReplyUpdate]:
        """Another answer to the last message."""
        ...

    async def stop(self, context: str) -> bool:
        """End what is being said; False if nobody was speaking."""
        ...

    def status(self, context: str) -> ChatStatus: ...

    async def rename(self, context: str, title: str) -> None: ...


# When a growing message may be edited again: soon enough to feel alive, seldom enough for the platform. P5, D14
#
# Edits wait at least `least_s`; they go when the text has rested for `rest_s`, or when `most_s` have passed. Each makes
# the next wait a little longer, so that even an endless reply has a bounded number of edits.


@dataclass(frozen=True, slots=True)
class EditPace:
    min_interval_s: float = 0.2
    max_interval_s: float = 1.5
    idle_s: float = 0.5
    max_edits: int = 30
    """How often one message may be edited while it grows."""
    growth: float = 1.1
    """How much longer each wait is than the one before."""


class EditPacer:
    """One message's edits. Times are monotonic seconds; the first showing counts as the edit at `now`."""

    def __init__(self, pace: EditPace, now: float) -> None:
        self._pace = pace
        self._last = now
        self._grew = now
        self._edits = 0
        self._not_before = now

    def text_changed(self, now: float) -> None:
        self._grew = now

    def edited(self, now: float) -> None:
        self._last = now
        self._edits += 1

    def pause_until(self, until: float) -> None:
        """The platform asked for patience."""
        self._not_before = max(self._not_before, until)

    def next_edit_at(self) -> float | None:
        """When the next edit may go; None when there have been enough."""
        if self._edits >= self._pace.max_edits:
            return None
        slower = self._pace.growth**self._edits
        soonest = self._last + self._pace.min_interval_s * slower
        latest = self._last + self._pace.max_interval_s * slower
        return max(self._not_before, soonest, min(latest, self._grew + self._pace.idle_s))


# The port of a platform. An adapter holds the connection, hands incoming events to `InboundProcessor.accept` and shows
# what it is given; delivery, order, retries, people and conversations are not its concern. Every adapter passes
# tests/contracts/surface_contract.py.


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a platform can do."""

    max_length: int = 4_000
    """The longest text of one message, in the platform's measure."""
    length_in_bytes: bool = False
    """Whether that counts bytes of UTF-8 instead of characters."""
    deduplicates: bool = False
    """Whether sending the same token twice shows one message: then an ambiguous send is simply repeated."""
    can_edit: bool = False
    """Whether a message can be changed after it was sent; streaming needs it."""
    can_create_rooms: bool = False
    pace: EditPace = field(default_factory=EditPace)
    command_prefix: str = "/"
    """What begins a command."""

    def length_of(self, text: str) -> int:
        return len(text.encode()) if self.length_in_bytes else len(text)


class Surface(Protocol):
    name: str
    capabilities: Capabilities

    async def send(self, outgoing: Deliverable, token: str) -> str:
        """Show it and return the platform's id of it. `token` is the platform's idempotency key."""
        ...

    async def edit(self, outgoing: Deliverable, message: str, token: str) -> None:
        """Let the message with this id show `outgoing` instead."""
        ...

    async def typing(self, room: RoomRef, on: bool) -> None: ...

    async def create_room(self, person: Account, title: str, key: str) -> RoomRef:
        """A new room for a person; the same key again is the same room. Only asked where `abilities.makes_rooms`."""
        ...

    async def rename_room(self, room: RoomRef, title: str) -> None: ...
