"""Settings of the story mode."""

from __future__ import annotations

from pydantic import Field

from coterie.base.config import PageSetting, Section


class StorySettings(Section):
    """Stories: prompt budgets, recall, and out-of-character notes."""

    ooc_marker: PageSetting[str] = Field(default="((", min_length=1)
    """Begins an out-of-character note, which no character sees."""
    reader_from_words: PageSetting[int] = Field(default=40, ge=0)
    """Minimum number of words for which the classifier separates speech from action in a message without marks; 0 turns
    it off. A shorter message counts as speech."""
    retrieval_k: PageSetting[int] = Field(default=4, ge=0, le=100)
    """How many memories are recalled for a reply."""
    narrative_budget_hard: PageSetting[int] = Field(default=8000, ge=512)
    """Maximum length of a prompt, in tokens."""
    narrative_budget_soft: PageSetting[int] = Field(default=6000, ge=256)
    """Length in tokens above which optional parts are left out."""
    reply_tokens: PageSetting[int] = Field(default=600, ge=16)
    """Maximum length of a reply, in tokens."""
    classifier_budget_hard: PageSetting[int] = Field(default=4000, ge=256)
    """Maximum length of a classifier prompt, in tokens."""
