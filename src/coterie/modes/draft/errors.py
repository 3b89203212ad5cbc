"""What can be wrong with a document, its repository, a thread or a proposal.

DraftError
├── NoSuchDocument     no document, branch, thread or change of this name
├── NotADocument       a file that cannot be one: not text, not Markdown, outside the workspace
├── WorkspaceError     the repository would not take it
├── Clash              somebody changed the same words; carries the difference
├── NotPending         the proposal was decided already
├── StaleChange        its original is not in the document any more
├── SheetGone          what was typed counts from a text that is not remembered
├── BadKeystrokes      what was typed cannot have been typed
└── Unplaced           it is not known where in the document it belongs
"""

from __future__ import annotations

from coterie.base.errors import CoterieError


class DraftError(CoterieError):
    exit_code = 40


class NoSuchDocument(DraftError):
    http_status = 404


class NotADocument(DraftError):
    pass


class WorkspaceError(DraftError):
    pass


class Clash(DraftError):
    http_status = 409

    def __init__(self, what: str, fix: str, difference: str = "") -> None:
        super().__init__(what, fix)
        self.difference = difference


class NotPending(DraftError):
    http_status = 409


class StaleChange(DraftError):
    http_status = 409


class Unplaced(DraftError):
    http_status = 409


class LiveDocumentGone(DraftError):
    http_status = 410


class BadKeystrokes(DraftError):
    pass
