"""How documents are written together."""

from __future__ import annotations

from pydantic import Field

from coterie.base.config import Section
from coterie.modes.draft.edit_formats import ChangeFormat


class DraftSettings(Section):
    """Documents: how much of one a model reads, and how long it may answer."""

    document_tokens: int = Field(default=24_000, ge=256)
    """Of a longer document a model sees what stands around the selection."""
    history_tokens: int = Field(default=6_000, ge=0)
    """How much of the thread a model sees, newest first."""
    reply_tokens: int = Field(default=2_000, ge=16)
    """The longest reply about a document, in tokens."""
    formats: dict[str, ChangeFormat] = Field(default_factory=dict)
    """Provider → how it is asked to write changes: `tags`, `search_replace`, or `json`. Where none is named, the
    embedded model writes `json` and all others write `tags`."""
