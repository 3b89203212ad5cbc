"""Errors about documents, repositories, threads and proposals."""

from __future__ import annotations

from coterie.base.errors import CoterieError


class DraftError(CoterieError):
    exit_code = 40


class NoSuchDocument(DraftError):
    """No such document, branch, workspace or proposal."""

    http_status = 404


class NotADocument(DraftError):
    """A file that is not text, not Markdown, or outside the workspace."""


class WorkspaceError(DraftError):
    """Git refused an operation."""


class WorkspaceMissing(WorkspaceError):
    """The folder of a workspace is not there, or has no repository."""

    http_status = 409


class EditConflict(DraftError):
    """Both sides changed the same words. `difference` is a unified diff."""

    http_status = 409

    def __init__(self, what: str, fix: str, difference: str = "") -> None:
        super().__init__(what, fix)
        self.difference = difference


class PathTaken(DraftError):
    """The path of a new document is a folder, or lies below a file."""

    http_status = 409


class SecretInDocument(DraftError):
    """The text has a configured secret that the document did not have. A person's text is refused, not changed."""


class NotPending(DraftError):
    """The proposal was decided already."""

    http_status = 409


class StaleProposal(DraftError):
    """The proposal's original text is not in the document."""

    http_status = 409


class PositionUnknown(DraftError):
    """The text was not found in the document, or found several times."""

    http_status = 409


class LiveDocumentGone(DraftError):
    """Typed text refers to an update number that is not kept any more."""

    http_status = 410


class InvalidUpdate(DraftError):
    """Updates that do not fit the text."""
