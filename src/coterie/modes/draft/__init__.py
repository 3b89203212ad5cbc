"""Draft mode: write documents together with characters."""

from coterie.modes.draft.diff import Span, word_diff
from coterie.modes.draft.documents import FileDocument
from coterie.modes.draft.edit_formats import (
    BrokenBlock,
    EditBlock,
    ReplyPart,
    TextPart,
    parse_reply,
    parser_for,
    visible_text,
)
from coterie.modes.draft.errors import (
    DraftError,
    EditConflict,
    LiveDocumentGone,
    NoSuchDocument,
    NotADocument,
    NotPending,
    PositionUnknown,
    StaleProposal,
)
from coterie.modes.draft.events import AnchorData, Member
from coterie.modes.draft.git import CHANGE_TRAILER, THREAD_TRAILER, Contributor, DocumentVersion, Revision
from coterie.modes.draft.live_document import LiveDocument, Update, utf16_length
from coterie.modes.draft.proposals import proposal_id
from coterie.modes.draft.queries import PendingDocument, Proposal, Thread, ThreadNote
from coterie.modes.draft.replies import sse_frames
from coterie.modes.draft.service import DraftService
from coterie.modes.draft.threads import Notification, StartedReply

__all__ = [
    "CHANGE_TRAILER",
    "THREAD_TRAILER",
    "AnchorData",
    "BrokenBlock",
    "Contributor",
    "DocumentVersion",
    "DraftError",
    "DraftService",
    "EditBlock",
    "EditConflict",
    "FileDocument",
    "LiveDocument",
    "LiveDocumentGone",
    "Member",
    "NoSuchDocument",
    "NotADocument",
    "NotPending",
    "Notification",
    "PendingDocument",
    "PositionUnknown",
    "Proposal",
    "ReplyPart",
    "Revision",
    "Span",
    "StaleProposal",
    "StartedReply",
    "TextPart",
    "Thread",
    "ThreadNote",
    "Update",
    "parse_reply",
    "parser_for",
    "proposal_id",
    "sse_frames",
    "utf16_length",
    "visible_text",
    "word_diff",
]
