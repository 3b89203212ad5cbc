"""Requests and responses of the API for drafts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from coterie.base.values import Count, FilePath, Key, Name, Prose
from coterie.conversation import Turn
from coterie.modes.draft import (
    CHANGE_TRAILER,
    MAX_BRANCH,
    THREAD_TRAILER,
    AnchorData,
    DocumentVersion,
    DraftService,
    LiveDocument,
    Member,
    Notification,
    Proposal,
    Revision,
    Span,
    StartedReply,
    Thread,
    ThreadNote,
    Update,
    can_retry,
    parse_reply,
    visible_text,
)
from coterie.surfaces.web.story.schemas import RequestModel, ResponseModel

Document = Annotated[str, StringConstraints(max_length=4_000_000)]
Branch = Annotated[str, StringConstraints(max_length=MAX_BRANCH)]
_MAX_LINES = 100_000
_Replacement = Annotated[list[Count | Document], Field(max_length=_MAX_LINES)]


class WorkspaceRequest(RequestModel):
    name: Name
    folder: FilePath | None = None
    """An existing repository; without it a new one is created. One outside the folder for workspaces needs a
    confirmation."""


class WorkspaceResponse(ResponseModel):
    id: str
    name: str
    folder: str
    branch: str
    """The branch that HEAD names."""


class DocumentResponse(ResponseModel):
    path: str
    title: str


class DocumentVersionResponse(ResponseModel):
    path: str
    title: str
    branch: str
    commit: str
    base: str
    """Sent back with a save, to name the version it is based on."""
    text: str

    @classmethod
    def of(cls, version: DocumentVersion) -> DocumentVersionResponse:
        return cls(
            path=version.path,
            title=version.title,
            branch=version.branch,
            commit=version.commit,
            base=version.blob,
            text=version.text,
        )


class SaveRequest(RequestModel):
    text: Document
    base: Key = ""
    """The `base` of the version it is based on; empty for a new document."""
    branch: Branch | None = None
    thread: Key | None = None
    """Where the edit is noted."""


class EditorUpdateRequest(RequestModel):
    client: Annotated[str, StringConstraints(max_length=100)]
    """The page's own id, by which it recognises its updates."""
    changes: Annotated[list[Count | _Replacement], Field(max_length=_MAX_LINES)]
    """A CodeMirror change set: a number of kept characters, a list for a replacement."""


class EditRequest(RequestModel):
    branch: Branch
    epoch: Key
    version: Count
    """The version that the updates are based on."""
    updates: Annotated[list[EditorUpdateRequest], Field(max_length=1_000)]
    thread: Key | None = None
    """Where the edit is noted once it is committed."""


class LiveDocumentResponse(ResponseModel):
    branch: str
    epoch: str
    version: int
    text: str
    base: str
    """Sent back with a save, to name the version it is based on."""
    saved: bool

    @classmethod
    def of(cls, sheet: LiveDocument) -> LiveDocumentResponse:
        return cls(
            branch=sheet.branch,
            epoch=sheet.epoch,
            version=sheet.version,
            text=sheet.text,
            base=sheet.blob,
            saved=not sheet.unsaved,
        )


class EditorUpdateResponse(ResponseModel):
    client: str
    changes: list[int | list[int | str]]


class EditResponse(ResponseModel):
    taken: bool
    """Whether the updates were applied; if not, rebase them on the returned ones and send them again."""
    updates: list[EditorUpdateResponse]
    """All updates after that version, the client's own included."""
    base: str
    saved: bool

    @classmethod
    def of(cls, sheet: LiveDocument, since: list[Update], *, taken: bool = True) -> EditResponse:
        updates = [EditorUpdateResponse(client=one.client, changes=one.changes) for one in since]
        return cls(taken=taken, updates=updates, base=sheet.blob, saved=not sheet.unsaved)


class BranchRequest(RequestModel):
    name: Name
    source: Branch


class MergeRequest(RequestModel):
    source: Branch
    target: Branch


class Selection(RequestModel):
    start: Count
    end: Annotated[Count, Field(ge=1)]
    exact: Document = ""
    """The selected text; searched for if the document changed meanwhile."""

    def span(self) -> Span:
        return Span(self.start, self.end)


class MemberRequest(Member):
    bot: Key
    brief: Prose = ""
    model: Key = ""


class ThreadRequest(RequestModel):
    document: FilePath
    branch: Branch | None = None
    title: Prose = ""
    members: Annotated[list[MemberRequest], Field(max_length=100)]
    selection: Selection | None = None
    against: Branch = ""


class ThreadMessageRequest(RequestModel):
    text: Prose
    to: Key | None = None
    """The member that answers, or empty for nobody. Otherwise the member named in the text answers, or the first one
    if the author writes alone or asks a question that is not addressed to a person."""
    selection: Selection | None = None
    key: Name | None = None
    """A repeated key is the same message."""


class StartedTurnResponse(ResponseModel):
    turn: str
    reply: str
    """Empty if nobody answers."""
    speaker: str

    @classmethod
    def of(cls, asked: StartedReply) -> StartedTurnResponse:
        return cls(turn=asked.turn, reply=asked.reply, speaker=asked.speaker)


class AcceptRequest(RequestModel):
    text: Document | None = None
    """An edited text to use instead of the proposed one."""


class DeclineRequest(RequestModel):
    comment: Prose = ""


class WatchRequest(RequestModel):
    document: FilePath
    watching: bool = True


class ThreadResponse(ResponseModel):
    id: str
    workspace: str
    document: str
    branch: str
    kind: Literal["discussion", "anchored", "review"]
    title: str
    members: list[Member]
    quote: str | None
    """The quoted text of an anchored thread."""

    @classmethod
    def of(cls, thread: Thread) -> ThreadResponse:
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


class ThreadMessageResponse(ResponseModel):
    id: str
    role: Literal["person", "character"]
    author: str
    text: str
    """Without the blocks that became proposals."""
    state: Literal["open", "done", "truncated"]
    why: str
    """Why a truncated reply broke off: `stopped`, `restart`, `length`, or the error in a sentence."""
    status: int | None
    """The provider's HTTP status if it refused the reply."""
    can_retry: bool
    """Whether the reply can be asked for again."""
    model: str
    quote: str | None
    at: datetime

    @classmethod
    def of(
        cls, turn: Turn, thread: Thread, quote: AnchorData | None, turns: Sequence[Turn] = ()
    ) -> ThreadMessageResponse:
        text = turn.text
        if not turn.by_person:
            pieces = parse_reply(turn.text, thread.member(turn.speaker).format)
            text = visible_text(pieces)
        return cls(
            id=turn.id,
            role="person" if turn.by_person else "character",
            author=turn.speaker,
            text=text,
            state=turn.state,
            why=turn.why,
            status=turn.status,
            can_retry=can_retry(turn, turns),
            model=turn.model,
            quote=quote.exact if quote else None,
            at=turn.at,
        )


class ThreadNoteResponse(ResponseModel):
    text: str
    about: str

    @classmethod
    def of(cls, note: ThreadNote) -> ThreadNoteResponse:
        return cls(text=note.text, about=note.about)


class ProposalResponse(ResponseModel):
    id: str
    thread: str
    reply: str
    author: str
    document: str
    branch: str
    original: str
    """The document's text where it was found; otherwise the quotation."""
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
    def of(cls, change: Proposal) -> ProposalResponse:
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
            commit=change.accepted_commit or None,
            comment=change.comment,
        )


class ThreadDetailResponse(ResponseModel):
    thread: ThreadResponse
    messages: list[ThreadMessageResponse]
    notes: list[ThreadNoteResponse]
    changes: list[ProposalResponse]

    @classmethod
    def of(cls, draft: DraftService, thread: Thread) -> ThreadDetailResponse:
        turns = draft.timeline.latest(thread.room, 500)
        return cls(
            thread=ThreadResponse.of(thread),
            messages=[
                ThreadMessageResponse.of(turn, thread, draft.thread_queries.quote(thread.room, turn.id), turns)
                for turn in turns
            ],
            notes=[ThreadNoteResponse.of(note) for note in draft.thread_queries.notes(thread.room)],
            changes=[ProposalResponse.of(change) for change in draft.proposal_queries.of_thread(thread.room)],
        )


class CommitResponse(ResponseModel):
    commit: str
    author: str
    when: int
    subject: str
    change: str | None
    thread: str | None

    @classmethod
    def of(cls, revision: Revision) -> CommitResponse:
        return cls(
            commit=revision.id,
            author=revision.author,
            when=revision.when,
            subject=revision.subject,
            change=revision.trailers.get(CHANGE_TRAILER),
            thread=revision.trailers.get(THREAD_TRAILER),
        )


class NotificationResponse(ResponseModel):
    message: str
    thread: str
    kind: str
    read: bool

    @classmethod
    def of(cls, notice: Notification) -> NotificationResponse:
        return cls(message=notice.message, thread=notice.room.partition(":")[2], kind=notice.kind, read=notice.read)


class DocumentDiffResponse(ResponseModel):
    path: str
    patch: str


class MergeResponse(ResponseModel):
    commit: str
