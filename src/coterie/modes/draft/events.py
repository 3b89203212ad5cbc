"""Events of the draft mode.

Threads are rooms: their messages are turns. A workspace has its own stream for what concerns all threads of a document.
Positions in documents are recorded as they were found, so that replay reads neither Git nor a model.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from coterie.eventstore import Payload
from coterie.modes.draft.edit_formats import ChangeFormat
from coterie.modes.draft.locate import Anchor, MatchKind

ThreadKind = Literal["discussion", "anchored", "review"]
GuestRole = Literal["reader", "commenter", "writer"]
NoticeKind = Literal["chat_reply_to_my_message", "chat_message_in_participated_thread"]


class AnchorData(BaseModel):
    """A passage of a document: its exact text, the text around it, and its offsets."""

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
    """A character in a thread, with its task there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bot: str
    brief: str = ""
    model: str = ""
    """The task in the settings whose models answer; empty for those of the draft role."""
    format: ChangeFormat = "auto"


class MovedAnchor(BaseModel):
    """The position of a proposal's text after an edit; not `fresh` if the text is gone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    change: str
    start: int
    end: int
    fresh: bool


class WorkspaceOpened(Payload, kind="workspace_opened"):
    """A folder was opened as a workspace."""

    name: str
    """The given name, else the folder's."""
    folder: str
    """The repository's folder: relative to the data folder if it is in there, else its whole path."""


class WorkspaceMoved(Payload, kind="workspace_moved"):
    """The folder of a workspace is another one now."""

    folder: str
    """The repository's folder: relative to the data folder if it is in there, else its whole path."""


class ThreadOpened(Payload, kind="thread_opened"):
    """A thread about a document was opened."""

    workspace: str
    """The workspace's id; its stream is `draft:<id>`."""
    document: str
    """The document's path in the repository."""
    branch: str
    """The Git branch it is on."""
    thread_kind: ThreadKind
    """About the whole document (`discussion`), a passage (`anchored`), or two branches (`review`)."""
    title: str
    """The given title, else the document's."""
    members: tuple[Member, ...]
    """The characters that answer, with their tasks."""
    place: AnchorData | None = None
    """The passage that an anchored thread is about."""
    blob: str = ""
    """The Git blob of the document at that time."""
    against: str = ""
    """For a review: the branch to compare with."""


class SelectionQuoted(Payload, kind="selection_quoted"):
    """A message refers to selected text of the document."""

    turn: str
    """The id of the message's turn."""
    place: AnchorData
    """The selected text and its position."""
    blob: str
    """The Git blob of the document that it was selected in."""


class ThreadNoted(Payload, kind="thread_noted"):
    """A system note in a thread: shown to people, not sent to models."""

    text: str
    """The note's text."""
    about: str = ""
    """The proposal, reply or commit that it is about."""


class ChangeProposed(Payload, kind="change_proposed"):
    """A change was proposed, with its position in the document or the reason why it has none."""

    change: str
    """The proposal's id: the reply's id and a number, or a new id if it replaces a stale one."""
    reply: str
    """The id of the reply that contains it."""
    author: str
    """The id of the character that proposed it."""
    workspace: str
    """The workspace's id; its stream is `draft:<id>`."""
    document: str
    """The document's path in the repository."""
    branch: str
    """The Git branch it is on."""
    original: str
    """The text to replace, as the model quoted it."""
    proposed: str
    """The new text."""
    reason: str
    """The model's reason; may be empty."""
    commit: str
    """The branch's head when the text was searched."""
    blob: str
    """The Git blob of the document at that time."""
    place: AnchorData | None = None
    """The document's own passage; None if it was not found."""
    how: MatchKind | None = None
    """How the quote was matched, from `exact` to `fuzzy`; None without a position."""
    score: float = 1.0
    """The part of the quote that agrees, at most 1; also 1 without a position."""
    missing: Literal["", "absent", "ambiguous"] = ""
    """Why there is no position: the quote was not found, or found several times."""
    inserts: bool = False
    """Insert after the passage instead of replacing it."""
    again: str = ""
    """The stale proposal that this one replaces."""


class ChangeRepaired(Payload, kind="change_repaired"):
    """The model was asked once for a better quote."""

    change: str
    """The proposal's id."""
    quote: str
    """The new quote; empty if there is none."""
    commit: str
    """The branch's head when the text was searched."""
    blob: str
    """The Git blob of the document at that time."""
    place: AnchorData | None = None
    """The document's own passage; None if it was not found."""
    how: MatchKind | None = None
    """How the quote was matched, from `exact` to `fuzzy`; None without a position."""
    score: float = 1.0
    """The part of the quote that agrees, at most 1; also 1 without a position."""


class ChangeAccepted(Payload, kind="change_accepted"):
    """A proposal was committed, as proposed or edited."""

    change: str
    """The proposal's id."""
    commit: str
    """The commit that wrote it."""
    blob: str
    """The Git blob of the document after the commit."""
    before: str
    """The Git blob of the document before the commit."""
    text: str
    """The text that was written."""
    edited: bool = False
    """Whether the text differs from the proposed one."""


class ChangeDeclined(Payload, kind="change_declined"):
    """A proposal was declined."""

    change: str
    """The proposal's id."""
    comment: str = ""
    """The person's comment, which later prompts include; may be empty."""


class ChangeWithdrawn(Payload, kind="change_withdrawn"):
    """A proposal was withdrawn, or replaced by a new one."""

    change: str
    """The proposal's id."""


class AcceptUndone(Payload, kind="accept_undone"):
    """An accepted proposal was undone by a commit, and is pending again."""

    change: str
    """The proposal's id."""
    commit: str
    """The commit that undid it."""
    blob: str
    """The Git blob of the document after the commit."""
    place: AnchorData
    """The position of the restored original text."""


class DocumentSaved(Payload, kind="document_saved"):
    """A person edited the document."""

    document: str
    """The document's path in the repository."""
    branch: str
    """The Git branch it is on."""
    commit: str
    """The commit that wrote it."""
    blob: str
    """The Git blob of the document after the commit."""


class ChangesMoved(Payload, kind="changes_moved"):
    """The document changed: the new positions of its pending proposals."""

    document: str
    """The document's path in the repository."""
    branch: str
    """The Git branch it is on."""
    commit: str
    """The commit that the positions refer to."""
    blob: str
    """The Git blob of the document in that commit."""
    moved: tuple[MovedAnchor, ...]
    """The pending proposals that had a position, with their new ones."""


class DocumentWatched(Payload, kind="document_watched"):
    """A person started or stopped watching a document."""

    person: str
    """The person's id; `you` is the owner."""
    document: str
    """The document's path in the repository."""
    watching: bool
    """False if the person stopped."""


class NoticeGiven(Payload, kind="notice_given"):
    """A person was notified of a message."""

    person: str
    """The person's id; `you` is the owner."""
    notice: NoticeKind
    """`chat_reply_to_my_message` for participants of the thread, the other for people who only watch the document."""
    message: str
    """The id of the message's turn."""


class NoticesRead(Payload, kind="notices_read"):
    """A person read their notifications."""

    person: str
    """The person's id; `you` is the owner."""
    messages: tuple[str, ...]
    """The ids of the turns that they were notified of."""


class DocumentShared(Payload, kind="document_shared"):
    """A link was created that opens one document for a guest."""

    link: str
    """The link's id."""
    digest: str
    """SHA-256 of the link's token, which itself is not stored."""
    person: str
    """The id of the person that the guest acts as."""
    document: str
    """The document's path in the repository."""
    branch: str
    """The Git branch it is on."""
    role: GuestRole
    """`reader` reads, `commenter` also writes messages, `writer` also edits and decides about proposals."""
    expires: datetime
    """When it expires."""


class ShareRevoked(Payload, kind="share_revoked"):
    """A link was revoked."""

    link: str
    """The link's id."""
