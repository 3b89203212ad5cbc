"""Errors about documents, repositories, threads and proposals.

DraftError
├── NoSuchDocument     no such document, branch, workspace or proposal
├── NotADocument       a file that is not text, not Markdown, or outside the workspace
├── WorkspaceError     Git refused an operation
├── Clash              both sides changed the same words; has the difference
├── NotPending         the proposal was decided already
├── StaleChange        the proposal's original text is not in the document
├── LiveDocumentGone   typed text refers to a version that is not kept any more
├── BadKeystrokes      updates that do not fit the text
└── Unplaced           the position in the document is unknown
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
