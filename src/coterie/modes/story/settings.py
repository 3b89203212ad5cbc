"""How stories are told: budgets, recall, and the mark for notes that no character sees."""

from __future__ import annotations

from pydantic import Field

from coterie.base.config import Section


class StorySettings(Section):
    """Stories: how much a prompt may hold, and how much is recalled."""

    ooc_marker: str = Field(default="((", min_length=1)
    """What begins a note to the player, which no character sees."""
    reader_from_words: int = Field(default=40, ge=0)
    """From how many words on a message without any marks is read by the classifier, to tell speech from action; 0
    never asks it. A shorter one is taken as speech."""
    retrieval_k: int = Field(default=4, ge=0, le=100)
    """How many memories are recalled for a reply."""
    narrative_budget_hard: int = Field(default=8000, ge=512)
    """No prompt is ever longer, in tokens."""
    narrative_budget_soft: int = Field(default=6000, ge=256)
    """Above this, what is nice to have is left out."""
    reply_tokens: int = Field(default=600, ge=16)
    """The longest reply, in tokens."""
    classifier_budget_hard: int = Field(default=4000, ge=256)
    """No question to the classifier is longer, in tokens."""
