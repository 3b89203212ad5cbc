"""How patient the house is with agents."""

from __future__ import annotations

from pydantic import Field

from coterie.base.config import Section


class AgentsSettings(Section):
    """Remote agents, as agents.yaml names them."""

    silence_timeout_s: float = Field(default=3.0, gt=0)
    """A message of which an agent says nothing for so long, not even that it works, is given up."""
    reply_timeout_s: float = Field(default=600.0, gt=0)
    """The longest an agent may take for one answer."""
    heartbeat_s: float = Field(default=10.0, gt=0)
    """How often a quiet line is tried; unanswered for as long again, it is opened anew."""
    max_retry_pause_s: float = Field(default=30.0, gt=0)
    """The longest pause between two tries to reach an agent that nobody is waiting for."""
