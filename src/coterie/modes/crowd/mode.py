"""What the crowd brings to the house: its events, and its view of who has changed."""

from __future__ import annotations

from coterie.kernel import View
from coterie.modes.crowd import events
from coterie.modes.crowd.drift import Drifts

__all__ = ["events", "views"]


def views() -> list[View]:
    return [Drifts()]
