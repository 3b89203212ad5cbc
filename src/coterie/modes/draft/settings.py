"""Settings of the draft mode."""

from __future__ import annotations

from pydantic import Field

from coterie.base.config import PageSetting, Section
from coterie.modes.draft.edit_formats import ChangeFormat


class DraftSettings(Section):
    """Documents: how much of one a model sees, and how long its replies may be."""

    document_tokens: PageSetting[int] = Field(default=24_000, ge=256)
    """Of a longer document, a model sees the part around the selection."""
    history_tokens: PageSetting[int] = Field(default=6_000, ge=0)
    """How much of the thread a model sees, newest messages first."""
    reply_tokens: PageSetting[int] = Field(default=2_000, ge=16)
    """The maximum length of a reply."""
    formats: PageSetting[dict[str, ChangeFormat]] = Field(default_factory=dict)
    """Provider → format in which its models write changes: `tags`, `search_replace` or `json`. By default, the embedded
    model writes `json` and all others write `tags`."""
