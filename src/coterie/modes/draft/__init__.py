"""Draft: writing a document together with a character.

This is what surfaces may use of it; the rest is its own business.
"""

from coterie.modes.draft.blocks import Block, Piece, Spoilt, Text
from coterie.modes.draft.changes import Change, Waiting
from coterie.modes.draft.commits import CHANGE, THREAD, Revision
from coterie.modes.draft.drafting import Drafting
from coterie.modes.draft.errors import (
    Clash,
    DraftError,
    NoSuchDocument,
    NotADocument,
    NotPending,
    SheetGone,
    StaleChange,
    Unplaced,
)
from coterie.modes.draft.events import Member, Place
from coterie.modes.draft.formats import parser_for, read_reply
from coterie.modes.draft.notices import Notice
from coterie.modes.draft.people import Person
from coterie.modes.draft.placement import change_id
from coterie.modes.draft.placing import Span
from coterie.modes.draft.sheet import Sheet, Update, units
from coterie.modes.draft.talking import Asked
from coterie.modes.draft.threads import Thread, ThreadNote
from coterie.modes.draft.wire import frames
from coterie.modes.draft.wording import wording
from coterie.modes.draft.workspace import Version

__all__ = [
    "CHANGE",
    "THREAD",
    "Asked",
    "Block",
    "Change",
    "Clash",
    "DraftError",
    "Drafting",
    "Member",
    "NoSuchDocument",
    "NotADocument",
    "NotPending",
    "Notice",
    "Person",
    "Piece",
    "Place",
    "Revision",
    "Sheet",
    "SheetGone",
    "Span",
    "Spoilt",
    "StaleChange",
    "Text",
    "Thread",
    "ThreadNote",
    "Unplaced",
    "Update",
    "Version",
    "Waiting",
    "change_id",
    "frames",
    "parser_for",
    "read_reply",
    "units",
    "wording",
]
