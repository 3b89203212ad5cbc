"""What happens while people and characters write together. Talk never writes Git; what Git took is told here.

Threads are rooms: their messages are the engine's turns. A workspace has a stream of its own, for what concerns all
threads of a document. Places are recorded as they were found, so that a replay asks neither Git nor a model.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from coterie.kernel import Payload
from coterie.modes.draft.anchors import Anchor
from coterie.modes.draft.formats import ChangeFormat
from coterie.modes.draft.placing import How

ThreadKind = Literal["discussion", "anchored", "review"]
NoticeKind = Literal["chat_reply_to_my_message", "chat_message_in_participated_thread"]


class Place(BaseModel):
    """Exact words of a document, what stood around them, and where."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    exact: str
    prefix: str
    suffix: str
    start: int
    end: int

    @classmethod
    def of(cls, anchor: Anchor) -> Place:
        return cls(exact=anchor.exact, prefix=anchor.prefix, suffix=anchor.suffix, start=anchor.start, end=anchor.end)


class Member(BaseModel):
    """A character in a thread, with what it is there for. F13"""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bot: str
    brief: str = ""
    model: str = ""
    """The task in the settings whose chain answers; empty for the draft role's own."""
    format: ChangeFormat = "auto"


class Moved(BaseModel):
    """Where a proposal's words stand after an edit, or that they are gone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    change: str
    start: int
    end: int
    fresh: bool


class WorkspaceOpened(Payload, kind="workspace_opened"):
    """A folder became a workspace."""

    name: str
    folder: str
    """Where the repository is."""


class ThreadOpened(Payload, kind="thread_opened"):
    """A thread began beside a document, with who answers in it."""

    workspace: str
    document: str
    branch: str
    thread_kind: ThreadKind
    title: str
    members: tuple[Member, ...]
    place: Place | None = None
    """What an anchored thread is about."""
    blob: str = ""
    against: str = ""
    """For a review: the branch that is compared with."""


class SelectionQuoted(Payload, kind="selection_quoted"):
    """The words that a message is about."""

    turn: str
    place: Place
    blob: str
    """The version of the document that it was selected in."""


class ThreadNoted(Payload, kind="thread_noted"):
    """A note that nobody said: people see it, models do not."""

    text: str
    about: str = ""
    """The change or the reply it is about."""


class ChangeProposed(Payload, kind="change_proposed"):
    """A proposal, with the place that was found for it or why none was."""

    change: str
    reply: str
    author: str
    workspace: str
    document: str
    branch: str
    original: str
    """As the model quoted it."""
    proposed: str
    reason: str
    commit: str
    """The branch's head when it was looked for."""
    blob: str
    place: Place | None = None
    how: How | None = None
    score: float = 1.0
    missing: Literal["", "absent", "ambiguous"] = ""
    inserts: bool = False
    """Put in after the place instead of replacing it."""
    again: str = ""
    """The stale change that this one proposes anew."""


class ChangeRepaired(Payload, kind="change_repaired"):
    """The model was asked once for a better quote."""

    change: str
    quote: str
    commit: str
    blob: str
    place: Place | None = None
    how: How | None = None
    score: float = 1.0


class ChangeAccepted(Payload, kind="change_accepted"):
    """A proposal was committed, as it was or edited."""

    change: str
    commit: str
    blob: str
    before: str
    """The document's blob before."""
    text: str
    """What was written."""
    edited: bool = False


class ChangeDeclined(Payload, kind="change_declined"):
    """A proposal was declined, with a comment for the model."""

    change: str
    comment: str = ""


class ChangeWithdrawn(Payload, kind="change_withdrawn"):
    """A proposal was taken back, or made anew as another."""

    change: str


class AcceptUndone(Payload, kind="accept_undone"):
    """An accepted proposal was taken back by a commit, and is pending again."""

    change: str
    commit: str
    blob: str
    place: Place
    """Where its original stands again."""


class DocumentSaved(Payload, kind="document_saved"):
    """Somebody wrote in the document by hand."""

    document: str
    branch: str
    commit: str
    blob: str


class ChangesMoved(Payload, kind="changes_moved"):
    """The document changed: where every pending proposal's words stand now."""

    document: str
    branch: str
    commit: str
    blob: str
    moved: tuple[Moved, ...]


class DocumentWatched(Payload, kind="document_watched"):
    """A person wants to hear of a document, or no longer."""

    person: str
    document: str
    watching: bool


class NoticeGiven(Payload, kind="notice_given"):
    """A person is told of a message."""

    person: str
    notice: NoticeKind
    message: str


class NoticesRead(Payload, kind="notices_read"):
    """A person has read their notices."""

    person: str
    messages: tuple[str, ...]
