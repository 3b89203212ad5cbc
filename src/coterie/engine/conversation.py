"""The port of a mode: how a conversation of any kind is held on any surface. P2

A mode keeps its chats under ids of its own (contexts); a surface's room points at one of them. Modes register their
conversations in app.py, and neither they nor the surfaces know of each other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from coterie.engine.protocol import Attachment
from coterie.kernel import NewEvent


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
