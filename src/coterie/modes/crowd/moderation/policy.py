"""What a room lets pass, as its file says it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from coterie.base.config import Section

PolicyAction = Literal["allow", "flag", "refuse"]


class ModerationPolicy(Section):
    """How strict a room is."""

    mild: PolicyAction = "flag"
    """Severity 1: let in and noted, by default."""
    coarse: PolicyAction = "refuse"
    """Severity 2."""
    vile: Literal["flag", "refuse"] = "refuse"
    """Severity 3: slurs, threats, calls to self-harm. Cannot be allowed without a note."""
    links: Literal["allow", "listed", "none"] = "listed"
    allowed_hosts: tuple[str, ...] = Field(default=("twitch.tv", "youtube.com", "youtu.be", "wikipedia.org"))
    redact: bool = True
    """Take out e-mail addresses, telephone numbers, street addresses, keys."""

    def action_for(self, severity: int) -> PolicyAction:
        return (self.mild, self.coarse, self.vile)[severity - 1]
