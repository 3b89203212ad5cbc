"""Draft: writing a document together with a character.

This is what surfaces may use of it; the rest is its own business.
"""

from coterie.modes.draft.blocks import BrokenBlock, EditBlock, ReplyPart, ReplyText
from coterie.modes.draft.changes import PendingDocument, Proposal
from coterie.modes.draft.commits import CHANGE_TRAILER, THREAD_TRAILER, Revision
from coterie.modes.draft.drafting import DraftService
from coterie.modes.draft.errors import (
    Clash,
    DraftError,
    LiveDocumentGone,
    NoSuchDocument,
    NotADocument,
    NotPending,
    StaleChange,
    Unplaced,
)
from coterie.modes.draft.events import AnchorData, Member
from coterie.modes.draft.formats import parse_reply, parser_for
from coterie.modes.draft.notices import Notification
from coterie.modes.draft.people import Contributor
from coterie.modes.draft.placement import proposal_id
from coterie.modes.draft.placing import Span
from coterie.modes.draft.sheet import LiveDocument, Update, utf16_length
from coterie.modes.draft.talking import StartedTurn
from coterie.modes.draft.threads import Thread, ThreadNote
from coterie.modes.draft.wire import sse_frames
from coterie.modes.draft.wording import word_diff
from coterie.modes.draft.workspace import DocumentVersion

__all__ = [
    "CHANGE_TRAILER",
    "THREAD_TRAILER",
    "StartedTurn",
    "EditBlock",
    "Proposal",
    "Clash",
    "DraftError",
    "DraftService",
    "Member",
    "NoSuchDocument",
    "NotADocument",
    "NotPending",
    "Notification",
    "Contributor",
    "ReplyPart",
    "AnchorData",
    "Revision",
    "LiveDocument",
    "LiveDocumentGone",
    "Span",
    "BrokenBlock",
    "StaleChange",
    "ReplyText",
    "Thread",
    "ThreadNote",
    "Unplaced",
    "Update",
    "DocumentVersion",
    "PendingDocument",
    "proposal_id",
    "sse_frames",
    "parser_for",
    "parse_reply",
    "utf16_length",
    "word_diff",
]
