"""What the crowd brings to the house: its events, and its views."""

from __future__ import annotations

from coterie.kernel import View
from coterie.modes.crowd import events

__all__ = ["events", "views"]


def views() -> list[View]:
    """None: what a room needs at hand is in memory, and everything else is read from the log."""
    return []
