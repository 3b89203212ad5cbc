"""What happens while people and characters write together. Talk never writes Git; what Git took is told here.

Threads are rooms: their messages are the engine's turns. A workspace has a stream of its own, for what concerns all
threads of a document. Places are recorded as they were found, so that a replay asks neither Git nor a model.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from coterie.eventstore import Payload
from coterie.modes.draft.diff import MatchKind
from coterie.modes.draft.edit_formats import ChangeFormat
from coterie.modes.draft.locate.anchors import Anchor

ThreadKind = Literal["discussion", "anchored", "review"]
NoticeKind = Literal["chat_reply_to_my_message", "chat_message_in_participated_thread"]


class AnchorData(BaseModel):
    """Exact words of a document, what stood around them, and where."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    exact: str
    prefix: str
    suffix: str
    start: int
    end: int

    @classmethod
    def of(cls, anchor: Anchor) -> AnchorData:
        return cls(exact=anchor.exact, prefix=anchor.prefix, suffix=anchor.suffix, start=anchor.start, end=anchor.end)


class Member(BaseModel):
    """A character in a thread, with what it is there for. F13"""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bot: str
    brief: str = ""
    model: str = ""
    """The task in the settings whose chain answers; empty for the draft role's own."""
    format: ChangeFormat = "auto"


class MovedAnchor(BaseModel):
    """Where a proposal's words stand after an edit, or that they are gone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    change: str
    start: int
    end: int
    fresh: bool


class WorkspaceOpened(Payload, kind="workspace_opened"):
    """A folder became a workspace."""

    name: str
    """What people call it: a name that was given, else the folder's."""
    folder: str
    """Where the repository is."""


class ThreadOpened(Payload, kind="thread_opened"):
    """A thread began beside a document, with who answers in it."""

    workspace: str
    """The workspace's id; its stream is `draft:<id>`."""
    document: str
    """The document's path in the repository."""
    branch: str
    """The Git branch it is on."""
    thread_kind: ThreadKind
    """About all of it (`discussion`), some of its words (`anchored`), or two branches (`review`)."""
    title: str
    """The name it was given, else the document's title."""
    members: tuple[Member, ...]
    """The characters that answer, with what each is there for."""
    place: AnchorData | None = None
    """What an anchored thread is about."""
    blob: str = ""
    """The document's version then, as a Git blob."""
    against: str = ""
    """For a review: the branch that is compared with."""


class SelectionQuoted(Payload, kind="selection_quoted"):
    """The words that a message is about."""

    turn: str
    """The message's turn, by id."""
    place: AnchorData
    """The selected words, and where they stood."""
    blob: str
    """The version of the document that it was selected in."""


class ThreadNoted(Payload, kind="thread_noted"):
    """A note that nobody said: people see it, models do not."""

    text: str
    """As people read it."""
    about: str = ""
    """The change, the reply or the commit it is about."""


class ChangeProposed(Payload, kind="change_proposed"):
    """A proposal, with the place that was found for it or why none was."""

    change: str
    """The change's id: the reply's and a number, or one of its own if it is made anew."""
    reply: str
    """The reply it was made in, by id."""
    author: str
    """Who proposed it: a character's id."""
    workspace: str
    """The workspace's id; its stream is `draft:<id>`."""
    document: str
    """The document's path in the repository."""
    branch: str
    """The Git branch it is on."""
    original: str
    """As the model quoted it."""
    proposed: str
    """What shall be written there."""
    reason: str
    """In the model's words; may be empty."""
    commit: str
    """The branch's head when it was looked for."""
    blob: str
    """The document's version then, as a Git blob."""
    place: AnchorData | None = None
    """The document's own words that are meant; None if they were not found."""
    how: MatchKind | None = None
    """How the quote was matched, from `exact` to `fuzzy`; None without a place."""
    score: float = 1.0
    """How much of the quote agrees, up to 1; without a place it is 1 too."""
    missing: Literal["", "absent", "ambiguous"] = ""
    """Why there is no place: the quote is nowhere, or in several places."""
    inserts: bool = False
    """Put in after the place instead of replacing it."""
    again: str = ""
    """The stale change that this one proposes anew."""


class ChangeRepaired(Payload, kind="change_repaired"):
    """The model was asked once for a better quote."""

    change: str
    """The change's id."""
    quote: str
    """What it gave; empty if nothing."""
    commit: str
    """The branch's head when it was looked for."""
    blob: str
    """The document's version then, as a Git blob."""
    place: AnchorData | None = None
    """The document's own words that are meant; None if they were not found."""
    how: MatchKind | None = None
    """How the quote was matched, from `exact` to `fuzzy`; None without a place."""
    score: float = 1.0
    """How much of the quote agrees, up to 1; without a place it is 1 too."""


class ChangeAccepted(Payload, kind="change_accepted"):
    """A proposal was committed, as it was or edited."""

    change: str
    """The change's id."""
    commit: str
    """The commit that wrote it."""
    blob: str
    """The document's version after it, as a Git blob."""
    before: str
    """The document's blob before."""
    text: str
    """What was written."""
    edited: bool = False
    """What was written is not what was proposed."""


class ChangeDeclined(Payload, kind="change_declined"):
    """A proposal was declined, with a comment for the model."""

    change: str
    """The change's id."""
    comment: str = ""
    """Why, if the person said so."""


class ChangeWithdrawn(Payload, kind="change_withdrawn"):
    """A proposal was taken back, or made anew as another."""

    change: str
    """The change's id."""


class AcceptUndone(Payload, kind="accept_undone"):
    """An accepted proposal was taken back by a commit, and is pending again."""

    change: str
    """The change's id."""
    commit: str
    """The commit that took it back."""
    blob: str
    """The document's version after it, as a Git blob."""
    place: AnchorData
    """Where its original stands again."""


class DocumentSaved(Payload, kind="document_saved"):
    """Somebody wrote in the document by hand."""

    document: str
    """The document's path in the repository."""
    branch: str
    """The Git branch it is on."""
    commit: str
    """The commit that wrote it."""
    blob: str
    """The document's version after it, as a Git blob."""


class ChangesMoved(Payload, kind="changes_moved"):
    """The document changed: where every pending proposal's words stand now."""

    document: str
    """The document's path in the repository."""
    branch: str
    """The Git branch it is on."""
    commit: str
    """The commit that the places are about."""
    blob: str
    """The document's version there, as a Git blob."""
    moved: tuple[MovedAnchor, ...]
    """The pending changes that had a place, and where it is now."""


class DocumentWatched(Payload, kind="document_watched"):
    """A person wants to hear of a document, or no longer."""

    person: str
    """The person's id; `you` is the owner."""
    document: str
    """The document's path in the repository."""
    watching: bool
    """False: no longer."""


class NoticeGiven(Payload, kind="notice_given"):
    """A person is told of a message."""

    person: str
    """Who is told, by id; `you` is the owner."""
    notice: NoticeKind
    """`chat_reply_to_my_message` for who wrote in the thread, the other for who only watches the document."""
    message: str
    """The turn they are told of, by id."""


class NoticesRead(Payload, kind="notices_read"):
    """A person has read their notices."""

    person: str
    """The person's id; `you` is the owner."""
    messages: tuple[str, ...]
    """The turns they had been told of, by id."""
