"""What the API takes and gives about documents, threads and proposals, as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from coterie.engine.turns import Turn
from coterie.modes.draft import (
    CHANGE,
    THREAD,
    Asked,
    Change,
    Drafting,
    Member,
    Notice,
    Place,
    Revision,
    Sheet,
    Span,
    Text,
    Thread,
    ThreadNote,
    Update,
    Version,
    read_reply,
)
from coterie.surfaces.web.shapes import Given, Name, Prose, Taken

Document = Annotated[str, StringConstraints(max_length=4_000_000)]


class WorkspaceTaken(Taken):
    name: Name
    folder: str | None = None
    """A repository that is there already; without it a new one is made."""


class WorkspaceShape(Given):
    id: str
    name: str
    folder: str
    branch: str
    """The branch that HEAD names."""


class DocumentShape(Given):
    path: str
    title: str


class VersionShape(Given):
    path: str
    title: str
    branch: str
    commit: str
    base: str
    """What a save of this version gives back, to say what it was made from."""
    text: str

    @classmethod
    def of(cls, version: Version) -> VersionShape:
        return cls(
            path=version.path,
            title=version.title,
            branch=version.branch,
            commit=version.commit,
            base=version.blob,
            text=version.text,
        )


class SaveTaken(Taken):
    text: Document
    base: str = ""
    """Of the version it was made from; empty for a new document."""
    branch: str | None = None
    thread: str | None = None
    """Where the edit is noted."""


class UpdateTaken(Taken):
    client: Annotated[str, StringConstraints(max_length=100)]
    """The page's own id, by which it knows its keystrokes again."""
    changes: list[int | list[int | str]]
    """A set of changes as CodeMirror writes it: a number is kept, a list is replaced."""


class TypedTaken(Taken):
    branch: str
    epoch: str
    version: int = Field(ge=0)
    """The number up to which everything is known."""
    updates: Annotated[list[UpdateTaken], Field(max_length=1_000)]
    thread: str | None = None
    """Where the edit is noted once it is committed."""


class SheetShape(Given):
    branch: str
    epoch: str
    version: int
    text: str
    base: str
    """What a save of this text gives back, to say what it was made from."""
    saved: bool

    @classmethod
    def of(cls, sheet: Sheet) -> SheetShape:
        return cls(
            branch=sheet.branch,
            epoch=sheet.epoch,
            version=sheet.version,
            text=sheet.text,
            base=sheet.blob,
            saved=not sheet.unsaved,
        )


class UpdateShape(Given):
    client: str
    changes: list[int | list[int | str]]


class TypedShape(Given):
    taken: bool
    """Whether what was sent is in; if not, others typed meanwhile: put yours after theirs, and send it again."""
    updates: list[UpdateShape]
    """Everything after the number that was named, one's own included."""
    base: str
    saved: bool

    @classmethod
    def of(cls, sheet: Sheet, since: list[Update], *, taken: bool = True) -> TypedShape:
        updates = [UpdateShape(client=one.client, changes=one.changes) for one in since]
        return cls(taken=taken, updates=updates, base=sheet.blob, saved=not sheet.unsaved)


class BranchTaken(Taken):
    name: Name
    source: str


class MergeTaken(Taken):
    source: str
    target: str


class Selection(Taken):
    start: int = Field(ge=0)
    end: int = Field(ge=1)
    exact: Document = ""
    """The selected words: they are looked for if others typed before them meanwhile."""

    def span(self) -> Span:
        return Span(self.start, self.end)


class ThreadTaken(Taken):
    document: str
    branch: str | None = None
    title: Prose = ""
    members: list[Member]
    selection: Selection | None = None
    against: str = ""


class SayTaken(Taken):
    text: Prose
    to: str | None = None
    """Who is asked; else who is named in the text, else the first of the thread."""
    selection: Selection | None = None
    key: Name | None = None
    """The same key again is the same message."""


class AskedShape(Given):
    turn: str
    reply: str
    speaker: str

    @classmethod
    def of(cls, asked: Asked) -> AskedShape:
        return cls(turn=asked.turn, reply=asked.reply, speaker=asked.speaker)


class AcceptTaken(Taken):
    text: Document | None = None
    """What shall stand there instead of what was proposed."""


class DeclineTaken(Taken):
    comment: Prose = ""


class WatchTaken(Taken):
    document: str
    watching: bool = True


class ThreadShape(Given):
    id: str
    workspace: str
    document: str
    branch: str
    kind: Literal["discussion", "anchored", "review"]
    title: str
    members: list[Member]
    quote: str | None
    """The words an anchored thread is about."""

    @classmethod
    def of(cls, thread: Thread) -> ThreadShape:
        return cls(
            id=thread.id,
            workspace=thread.workspace,
            document=thread.document,
            branch=thread.branch,
            kind=thread.kind,
            title=thread.title,
            members=list(thread.members),
            quote=thread.place.exact if thread.place else None,
        )


class MessageShape(Given):
    id: str
    role: Literal["person", "character"]
    author: str
    text: str
    """Without the blocks that became proposals."""
    state: Literal["open", "done", "truncated"]
    why: str
    model: str
    quote: str | None
    at: datetime

    @classmethod
    def of(cls, turn: Turn, thread: Thread, quote: Place | None) -> MessageShape:
        text = turn.text
        if not turn.by_person:
            pieces = read_reply(turn.text, thread.member(turn.speaker).format)
            text = "".join(piece.text for piece in pieces if isinstance(piece, Text))
        return cls(
            id=turn.id,
            role="person" if turn.by_person else "character",
            author=turn.speaker,
            text=text,
            state=turn.state,
            why=turn.why,
            model=turn.model,
            quote=quote.exact if quote else None,
            at=turn.at,
        )


class NoteShape(Given):
    text: str
    about: str

    @classmethod
    def of(cls, note: ThreadNote) -> NoteShape:
        return cls(text=note.text, about=note.about)


class ChangeShape(Given):
    id: str
    thread: str
    reply: str
    author: str
    document: str
    branch: str
    original: str
    """The document's own words, where they were found; else what was quoted."""
    proposed: str
    reason: str
    state: Literal["pending", "accepted", "declined", "edited-and-accepted", "withdrawn"]
    stale_since: datetime | None
    start: int | None
    end: int | None
    inserts: bool
    how: str | None
    """exact, normalised, markup, ellipsis or fuzzy."""
    missing: str
    commit: str | None
    comment: str

    @classmethod
    def of(cls, change: Change) -> ChangeShape:
        return cls(
            id=change.id,
            thread=change.room.partition(":")[2],
            reply=change.reply,
            author=change.author,
            document=change.document,
            branch=change.branch,
            original="" if change.inserts else change.exact if change.placed else change.original,
            proposed=change.proposed,
            reason=change.reason,
            state=change.state,
            stale_since=change.stale_since,
            start=change.start if change.fresh else None,
            end=change.end if change.fresh else None,
            inserts=change.inserts,
            how=change.how,
            missing=change.missing,
            commit=change.accepted or None,
            comment=change.comment,
        )


class ThreadWhole(Given):
    thread: ThreadShape
    messages: list[MessageShape]
    notes: list[NoteShape]
    changes: list[ChangeShape]

    @classmethod
    def of(cls, draft: Drafting, thread: Thread) -> ThreadWhole:
        turns = draft.timeline.latest(thread.room, 500)
        return cls(
            thread=ThreadShape.of(thread),
            messages=[MessageShape.of(turn, thread, draft.threads.quote(thread.room, turn.id)) for turn in turns],
            notes=[NoteShape.of(note) for note in draft.threads.notes(thread.room)],
            changes=[ChangeShape.of(change) for change in draft.changes.of_thread(thread.room)],
        )


class RevisionShape(Given):
    commit: str
    author: str
    when: int
    subject: str
    change: str | None
    thread: str | None

    @classmethod
    def of(cls, revision: Revision) -> RevisionShape:
        return cls(
            commit=revision.id,
            author=revision.author,
            when=revision.when,
            subject=revision.subject,
            change=revision.trailers.get(CHANGE),
            thread=revision.trailers.get(THREAD),
        )


class NoticeShape(Given):
    message: str
    thread: str
    kind: str
    read: bool

    @classmethod
    def of(cls, notice: Notice) -> NoticeShape:
        return cls(message=notice.message, thread=notice.room.partition(":")[2], kind=notice.kind, read=notice.read)


class DifferenceShape(Given):
    path: str
    patch: str


class Merged(Given):
    commit: str
